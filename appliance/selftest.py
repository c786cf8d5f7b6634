"""`steelyard selftest`: is the engine sound on this machine?"""

import asyncio
import logging

from appliance.assembly import preparer_of, supervisor_of
from appliance.config import Config
from appliance.engine.reports import Ready
from appliance.models import ModelFile, check
from appliance.prepare.client import PrepareError
from appliance.supervisor import EngineCannotStart
from appliance.tune.store import applied

log = logging.getLogger(__name__)

FAILED = 1


def selftest(config: Config) -> int:
    """Loads the model in a child and proves one decode; prints what came of it."""
    config.server.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tell(config, check(config))


def tell(config: Config, model: ModelFile) -> int:
    """The same of a model that was checked."""
    try:
        ready = asyncio.run(proven(config, model))
    except (EngineCannotStart, PrepareError) as error:
        print(f"failed: {error}")
        return FAILED
    print(
        f"ok: {model.name} ({ready.model_desc}) loaded and decoded in {ready.load_seconds:.1f} s, "
        f"{ready.layers_offloaded} of {ready.n_layers} layers on a GPU"
    )
    for reason in ready.degraded:
        print(f"degraded: {reason}")
    return 0


async def proven(config: Config, model: ModelFile, niceness: int = 0) -> Ready:
    """What a child says that has opened the model and decoded with it, once another has opened its
    chat template; both are gone when this returns. `niceness`: theirs, 0 to 19. Raises
    EngineCannotStart, PrepareError."""
    config, _ = applied(config, model.sha256)
    supervisor, preparer = supervisor_of(config, model), preparer_of(config, model)
    supervisor.niceness = niceness
    try:
        await supervisor.start()
        ready = supervisor.snapshot.ready
        assert ready is not None
        await preparer.start()
    finally:
        await preparer.stop()
        await supervisor.stop()
    return ready
