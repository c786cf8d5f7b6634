"""Runs the installer that lies beside this file: `python3 -I -B FOLDER TASK ...`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from appliance.bundle.entry import main

sys.exit(main(sys.argv[1:]))
