"""Runs in the peer's own environment: llama-server's code until standard input closes.

The one argument is JSON: CommonParams by dotted name. The first line out is JSON: address and
versions. Imports nothing of ours, since nothing of ours is installed there.
"""

import importlib.metadata
import json
import os
import sys
from typing import Any


def assign(params: Any, name: str, value: Any) -> None:
    """Sets `a.b.c`; enumerations take their number. An unknown name is an error."""
    *path, last = name.split(".")
    for part in path:
        params = getattr(params, part)
    setattr(params, last, type(getattr(params, last))(value))


def main() -> None:
    import xllamacpp  # type: ignore[import-not-found, unused-ignore]

    params = xllamacpp.CommonParams()
    for name, value in json.loads(sys.argv[1]).items():
        assign(params, name, value)
    server = xllamacpp.Server(params)
    about = {
        "address": server.listening_address,
        "version": importlib.metadata.version("xllamacpp"),
        "build": xllamacpp.BUILD_INFO,
        "system": xllamacpp.get_system_info(),
    }
    print(json.dumps(about, default=str), flush=True)
    os.dup2(2, 1)  # nobody reads standard output from here on
    sys.stdin.read()


if __name__ == "__main__":
    main()
