"""The prepare process: a job that overruns or kills it fails alone, and it ends with the daemon."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from appliance.errors import ApiError, BadRequest, Overloaded, Unavailable
from appliance.prepare.client import PrepareError, Preparer
from appliance.prepare.messages import Prepared, PrepareLimits
from tests.box.preparing import MODEL, SLOW, refused, user

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def preparer() -> AsyncIterator[Preparer]:
    made = Preparer(MODEL)
    await made.start()
    yield made
    await made.stop()


async def test_template_that_never_ends_fails_alone() -> None:
    source = "{% if slow %}" + SLOW + "{% endif %}ok"
    preparer = Preparer(MODEL, PrepareLimits(template_s=3.0), chat_template=source)
    await preparer.start()
    slow = asyncio.create_task(preparer.chat(user("x", template_kwargs={"slow": True})))
    others = [asyncio.create_task(preparer.render(user("x"))) for _ in range(3)]
    with pytest.raises(BadRequest) as caught:
        await slow
    assert caught.value.code == "template_timeout"
    assert await asyncio.gather(*others) == ["ok"] * 3
    assert preparer.snapshot().timeouts == 1
    await preparer.stop()


async def test_grammar_that_takes_too_long_fails_alone() -> None:
    preparer = Preparer(MODEL, PrepareLimits(grammar_compile_s=0.05, grammar_bytes=10**8))
    await preparer.start()
    rules = "\n".join(f'r{i} ::= "a{i}" | r{i + 1}' for i in range(60_000))
    job = user("x", grammar=f'root ::= r0\n{rules}\nr60000 ::= "z"', grammar_type="gbnf")
    assert (await refused(preparer, job)).code == "grammar_timeout"
    await preparer.stop()


async def test_template_that_eats_memory_fails_alone() -> None:
    source = "{% if n %}{{ ('x' * n) | length }}{% endif %}ok"
    preparer = Preparer(MODEL, chat_template=source)
    await preparer.start()
    with pytest.raises(BadRequest, match="memory"):
        await preparer.chat(user("x", template_kwargs={"n": 10**11}))
    assert await preparer.render(user("x")) == "ok"
    assert preparer.snapshot().restarts == 0
    await preparer.stop()


async def test_killed_child_comes_back_and_no_job_is_lost(preparer: Preparer) -> None:
    before = preparer.snapshot()
    jobs = [asyncio.create_task(preparer.chat(user(f"x{i}"))) for i in range(8)]
    await asyncio.sleep(0)
    os.kill(before.pid, signal.SIGKILL)
    assert all(prepared.prompt for prepared in await asyncio.gather(*jobs))
    after = preparer.snapshot()
    assert after.alive
    assert after.pid != before.pid
    assert after.restarts == before.restarts + 1


async def test_idle_child_that_dies_is_replaced(preparer: Preparer) -> None:
    before = preparer.snapshot()
    os.kill(before.pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while preparer.snapshot().pid in (0, before.pid) or not preparer.snapshot().alive:
            await asyncio.sleep(0.02)


async def test_job_that_kills_its_child_twice_is_refused() -> None:
    preparer = Preparer(MODEL, PrepareLimits(template_s=30.0), chat_template=SLOW)
    await preparer.start()
    job = asyncio.create_task(preparer.chat(user("x")))
    killed: set[int] = set()
    async with asyncio.timeout(60):
        while not job.done():
            await asyncio.sleep(0.2)
            pid = preparer.snapshot().pid
            if pid and pid not in killed and preparer.snapshot().waiting == 0:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
    with pytest.raises(BadRequest) as caught:
        await job
    assert caught.value.code == "prepare_failed"
    await preparer.stop()


async def test_signals_meant_for_the_daemon_leave_the_child_alone(preparer: Preparer) -> None:
    before = preparer.snapshot()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(before.pid, number)
    assert (await preparer.chat(user("x"))).prompt
    assert preparer.snapshot().pid == before.pid


async def test_child_shows_what_it_is(preparer: Preparer) -> None:
    command = Path(f"/proc/{preparer.snapshot().pid}/cmdline").read_text()
    assert command.startswith("steelyard: prepare")
    assert "engine" not in command


async def test_cancelled_job_leaves_the_queue(preparer: Preparer) -> None:
    jobs = [asyncio.create_task(preparer.chat(user("x"))) for _ in range(4)]
    await asyncio.sleep(0)
    for job in jobs[1:]:
        job.cancel()
    await asyncio.wait(jobs[1:])
    assert preparer.snapshot().waiting <= 1
    await asyncio.wait(jobs)
    assert jobs[0].result().prompt
    assert preparer.snapshot().waiting == 0


async def test_full_queue_is_refused() -> None:
    preparer = Preparer(MODEL, PrepareLimits(waiting=2))
    await preparer.start()
    jobs = [asyncio.create_task(preparer.chat(user("x"))) for _ in range(12)]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert any(isinstance(result, Overloaded) for result in results)
    assert any(isinstance(result, Prepared) for result in results)
    await preparer.stop()


async def test_one_key_cannot_fill_the_queue_for_others() -> None:
    preparer = Preparer(MODEL, PrepareLimits(waiting=6))
    await preparer.start()
    done: list[str] = []

    async def ask(name: str, key: str) -> None:
        await preparer.chat(user("x"), key=key)
        done.append(name)

    many = [asyncio.create_task(ask(f"a{number}", "a")) for number in range(6)]
    one = asyncio.create_task(ask("b", "b"))
    late = asyncio.create_task(ask("late", "a"))
    *served, last, refused = await asyncio.gather(one, *many, late, return_exceptions=True)
    assert served == [None] * 6
    assert isinstance(last, Overloaded)
    assert "makes room for another key" in last.message
    assert isinstance(refused, Overloaded)
    assert "6 requests wait" in refused.message
    assert done == ["a0", "b", "a1", "a2", "a3", "a4"]
    await preparer.stop()


async def test_stop_refuses_what_waits_and_leaves_no_child() -> None:
    preparer = Preparer(MODEL, PrepareLimits(template_s=30.0), chat_template=SLOW)
    await preparer.start()
    pid = preparer.snapshot().pid
    jobs = [asyncio.create_task(preparer.chat(user("x"))) for _ in range(3)]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(30):
        await preparer.stop()
    for result in await asyncio.gather(*jobs, return_exceptions=True):
        assert isinstance(result, Unavailable)
    with pytest.raises(ApiError):
        await preparer.chat(user("x"))
    assert not Path(f"/proc/{pid}").exists()


async def test_unreadable_model_is_told_at_start(tmp_path: Path) -> None:
    path = tmp_path / "no.gguf"
    path.write_bytes(b"not a model")
    with pytest.raises(PrepareError, match="vocabulary"):
        await Preparer(str(path)).start()


async def test_broken_template_is_told_at_start() -> None:
    with pytest.raises(PrepareError, match="does not compile"):
        await Preparer(MODEL, chat_template="{% for %}").start()
