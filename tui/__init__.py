"""The console: lines of cells drawn by pure functions, and the terminal that paints them.

It is its own process and talks HTTP only; of the box it knows `appliance.frames`.
"""
