"""`python -m appliance.ledger.verify`, or `python3 DIRECTORY` where this directory was copied."""

import importlib
import sys
from pathlib import Path

if __package__:
    from .command import main
else:
    sys.dont_write_bytecode = True  # The stick it lies on stays as it is.
    _here = Path(__file__).resolve().parent
    sys.path[0] = str(_here.parent)
    main = importlib.import_module(f"{_here.name}.command").main

if __name__ == "__main__":
    sys.exit(main())
