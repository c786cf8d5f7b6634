"""`steelyard selftest`: is the engine sound on this machine?"""

import asyncio

from appliance.assembly import supervisor_of
from appliance.config import Config
from appliance.models import ModelFile, check
from appliance.supervisor import EngineCannotStart

FAILED = 1


def selftest(config: Config) -> int:
    """Loads the model in a child and proves one decode; prints what came of it."""
    config.server.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    model = check(config)
    return asyncio.run(_selftest(config, model))


async def _selftest(config: Config, model: ModelFile) -> int:
    supervisor = supervisor_of(config, model)
    try:
        await supervisor.start()
    except EngineCannotStart as error:
        print(f"failed: {error}")
        return FAILED
    ready = supervisor.snapshot.ready
    await supervisor.stop()
    assert ready is not None
    print(
        f"ok: {model.name} ({ready.model_desc}) loaded and decoded in {ready.load_seconds:.1f} s, "
        f"{ready.layers_offloaded} of {ready.n_layers} layers on a GPU"
    )
    for reason in ready.degraded:
        print(f"degraded: {reason}")
    return 0
