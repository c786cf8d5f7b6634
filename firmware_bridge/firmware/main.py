"""Where the board starts. On an RP2040 the board's own main.py calls run()."""

import sys

from firmware_bridge.firmware.board import Board


def run() -> None:
    if sys.platform == "rp2":
        from firmware_bridge.firmware.hal_rp2040 import Hal
    else:
        from firmware_bridge.firmware.hal_unix import Hal
    hal = Hal()
    board = Board(hal)
    while hal.alive:
        board.turn()


if __name__ == "__main__":
    run()
