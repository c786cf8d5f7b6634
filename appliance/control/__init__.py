"""What follows reality: windows of what was seen, and the corrections that follow from them.

Pure: no clock, no thread, no socket, no file. `now` is an argument (docs/control.md).
"""
