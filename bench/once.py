"""A benchmark that measures once and keeps what it found."""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from appliance.gguf import BadModel
from bench.load import LoadError
from bench.servers import StartError

Measure = Callable[[argparse.Namespace], dict[str, Any]]


def kept(measure: Measure, options: argparse.Namespace) -> int:
    """Measures, and writes all of it to `options.json` if that is a file; the exit status."""
    try:
        found = measure(options)
    except (LoadError, StartError, BadModel) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0
