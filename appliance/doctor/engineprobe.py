"""The child that opens the model and decodes with it, once. Prints what it found as JSON; all of
llama.cpp's log goes to standard error, where `loadlog.py` reads it."""

import json
import logging
import os
import sys

import msgspec

from appliance.engine.commands import Load
from appliance.engine.runner import EngineError, Runner
from appliance.engine.vocab import VocabError, hear_all
from appliance.vitals import read_vitals


def main() -> int:
    logging.basicConfig(level=logging.DEBUG, format="%(message)s", stream=sys.stderr)
    hear_all()
    load = msgspec.json.decode(sys.argv[1], type=Load)
    try:
        runner = Runner(load)
        timings = runner.probe()
    except (EngineError, VocabError) as error:
        print(json.dumps({"refused": str(error)}))
        return 0
    ready, vitals = runner.ready(), read_vitals(os.getpid())
    print(
        json.dumps(
            {
                "model": ready.model_desc,
                "system_info": ready.system_info,
                "layers": ready.n_layers,
                "layers_asked": ready.layers_asked,
                "model_bytes": ready.model_bytes,
                "load_seconds": ready.load_seconds,
                "timings": timings,
                "rss_bytes": vitals.rss_bytes if vitals is not None else 0,
                "degraded": list(ready.degraded),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
