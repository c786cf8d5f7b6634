"""Where the board starts. On an RP2040 the board's own main.py calls run()."""

import sys

from firmware_bridge.firmware.board import Board


def run(root: str = "", slot: str = "", how: int = 0) -> bool:
    """Until the line has ended. `slot` and `how` are the loader's choice (slots.py); empty: there
    are no slots."""
    if sys.platform == "rp2":
        from firmware_bridge.firmware.hal_rp2040 import Hal
    else:
        from firmware_bridge.firmware.hal_unix import Hal
    hal = Hal(root) if slot else Hal()
    board = Board(hal, slot, how)
    while hal.alive:
        board.turn()
    return True


if __name__ == "__main__":
    run()
