"""The bridge to the board: a microcontroller that watches the box. See docs/board.md."""
