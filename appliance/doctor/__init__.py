"""`steelyard doctor`: looks at all that the box stands on, and says what to do where it is ill.

Each area is one module whose `look` reads and measures, changes nothing, and yields findings. What
can kill a process (an engine, a GPU's driver) is tried in a child. `ground.py` is what they stand
on, `report.py` runs them.
"""
