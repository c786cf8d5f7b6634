"""The engine as a child process: over its socket, without its daemon, without a usable model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from appliance.engine.commands import Cancel, Command, Load, Ping, Shutdown, Submit
from appliance.engine.reports import Batch, Event, Fatal, Finished, Pong, Ready, Report, Started
from appliance.enginechild import EngineChild
from tests.box.engine_live import LOAD, ignoring_ends


@asynccontextmanager
async def a_child(load: Load) -> AsyncIterator[tuple[EngineChild, asyncio.Queue[Report | None]]]:
    """A real child as the daemon launches it, and what it says; None when its socket closes."""
    said: asyncio.Queue[Report | None] = asyncio.Queue()
    child = await EngineChild.launch("warning", said.put_nowait, lambda: said.put_nowait(None))
    child.send(load)
    try:
        yield child, said
    finally:
        child.kill()
        await child.reap()
        child.mute()


async def hear(said: asyncio.Queue[Report | None]) -> Report | None:
    return await asyncio.wait_for(said.get(), 60)


async def test_child_serves_over_its_socket_and_answers_pings_between_steps() -> None:
    async with a_child(LOAD) as (child, said):
        ready = await hear(said)
        assert isinstance(ready, Ready)
        assert (ready.n_ctx, ready.degraded) == (LOAD.n_ctx, ())
        long = Submit(
            id="r", prompt=tuple(range(100, 110)), max_tokens=900, sampling=ignoring_ends()
        )
        commands: list[Command] = [long, Ping(1.0)]
        for command in commands:
            child.send(command)
        heard: list[Report | Event] = []
        while not any(isinstance(event, Finished) for event in heard):
            report = await hear(said)
            assert isinstance(report, Batch | Pong)
            heard += report.events if isinstance(report, Batch) else [report]
            if isinstance(report, Batch) and any(isinstance(e, Started) for e in report.events):
                child.send(Ping(2.0))
            if isinstance(report, Pong) and report.at == 2.0:
                child.send(Cancel("r"))
        pongs = [report for report in heard if isinstance(report, Pong)]
        assert [pong.at for pong in pongs] == [1.0, 2.0]
        assert any(slot.request == "r" for slot in pongs[-1].slots)
        (finished,) = (event for event in heard if isinstance(event, Finished))
        assert (finished.reason, finished.counts.completion_tokens < 900) == ("cancelled", True)
        child.send(Shutdown())
        assert await child.reap() == 0


async def test_child_whose_daemon_is_gone_ends_by_itself() -> None:
    async with a_child(LOAD) as (child, said):
        assert isinstance(await hear(said), Ready)
        child.mute()  # closes the socket
        assert await child.reap(30) == 0


async def test_model_that_cannot_be_loaded_is_fatal_with_a_status_of_its_own(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(64))
    load = replace(LOAD, model_path=str(broken))
    async with a_child(load) as (child, said):
        report = await hear(said)
        assert isinstance(report, Fatal)
        assert "cannot load the model" in report.message
        assert await child.reap() == 1
