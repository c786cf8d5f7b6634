"""The board's firmware, in MicroPython. All but the hal_*.py files runs under CPython too."""
