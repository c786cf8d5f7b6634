"""The set-up assistant: one list of steps with their checks and writes, and two faces of it.

`full` draws on a terminal of 80x24 and more; `lines` asks line by line, for serial lines, screen
readers and whatever else. All but `full` needs the standard library alone.
"""
