"""`python -m appliance` is the `steelyard` command, and so is the installed one.

Ctrl-C is an end without a word from the first import to the last: modules are imported inside.
"""

import signal
import sys
from typing import NoReturn

INTERRUPTED = 130
"""As in commands/exits.py, which is not imported yet."""


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    try:
        from appliance.cli import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    # The interpreter's own end would print where it was interrupted.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


if __name__ == "__main__":
    main()
