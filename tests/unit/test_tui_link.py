"""The console's HTTP side against a box that follows a script, over real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tui.link
from tests.unit.certificates import issue
from tests.unit.console_box import ConsoleBox, Reply, console_box, event, make_live, make_rows
from tests.unit.console_views import STATE
from tui.link import Link
from tui.sse import Event, Events, TooLarge
from tui.trust import Trust, box_of

SOON_S = 20.0


class Watched:
    """A link whose changes can be waited for; it never waits before it connects again."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.problems: list[str] = []
        self._event = asyncio.Event()
        link._changed = self._changed

    def _changed(self) -> None:
        if self.link.problem is not None:
            self.problems.append(self.link.problem.key)
        self._event.set()
        if self.link.problem is not None and self.link.shown is None:
            asyncio.get_running_loop().call_soon(self.link.retry)

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(SOON_S):
            while not condition():
                self._event.clear()
                await self._event.wait()


@asynccontextmanager
async def following(url: str, known: Path | None = None, **given: Any) -> AsyncIterator[Watched]:
    key, ca = given.pop("key", "sk-steelyard-x"), given.pop("ca", "")
    link = Link(url, key, Trust(url, ca=ca, file=known or Path("/nowhere")), **given)
    watched = Watched(link)
    task = asyncio.create_task(link.follow())
    try:
        yield watched
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await link.close()


def make_link(box: ConsoleBox, **given: Any) -> Link:
    return Link(box.url, "sk-steelyard-x", Trust(box.url, file=Path("/nowhere")), **given)


# -- events ----------------------------------------------------------------------------------------


@given(st.data())
def test_events_are_the_same_however_the_stream_is_cut(data: st.DataObject) -> None:
    stream = b": ping\n\n" + event(make_live(host="盒子")) + b"id: 4\r\nevent: x\r\ndata: a\r\n\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader, found = Events(), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[begin:end])
    assert found == Events().feed(stream)
    assert [one.name for one in found] == ["live", "x"]


def test_event_of_several_data_lines_is_one() -> None:
    assert Events().feed(b"data: a\ndata: b\n\n") == [Event("message", b"a\nb")]


@pytest.mark.parametrize("line", [b"x", b"data: x\n"])
def test_event_without_end_is_given_up(line: bytes) -> None:
    reader = Events(limit=1000)
    with pytest.raises(TooLarge):
        reader.feed(line * 2000)


# -- following -------------------------------------------------------------------------------------


async def test_frames_arrive_and_the_key_and_the_frames_wanted_are_sent() -> None:
    async with console_box() as box:
        box.send(make_live(), make_rows(3), STATE)
        async with following(box.url) as seen:
            await seen.until(lambda: seen.link.state)
            assert seen.link.live == make_live()
            assert seen.link.rows == make_rows(3)
            assert seen.link.problem is None
        asked = box.asked[0]
        assert asked.path == "/events?frames=live%2Crows%2Cstate"
        assert asked.headers["authorization"] == "Bearer sk-steelyard-x"


async def test_frames_in_single_bytes_are_read() -> None:
    async with console_box() as box:
        box.pieces = [bytes((one,)) for one in event(make_live())]
        async with following(box.url) as seen:
            await seen.until(lambda: seen.link.live)


async def test_names_that_a_newer_box_adds_are_skipped() -> None:
    async with console_box() as box:
        live = event(make_live()).replace(b'"seq"', b'"new_thing":[1],"seq"')
        box.pieces = [b"event: weather\ndata: {}\n\n", live]
        async with following(box.url) as seen:
            await seen.until(lambda: seen.link.live)


async def test_console_connects_again_by_itself() -> None:
    async with console_box() as box:
        box.send(make_live(boot_id="one"))
        async with following(box.url) as seen:
            await seen.until(lambda: seen.link.live)
            box.hang_up()
            box.pieces = [event(make_live(boot_id="two"))]
            await seen.until(lambda: seen.link.live and seen.link.live.boot_id == "two")
            assert box.connections >= 2


async def test_stream_that_ends_in_order_is_a_problem_with_a_remedy() -> None:
    async with console_box(close_after=True) as box, following(box.url) as seen:
        await seen.until(lambda: seen.problems)
        assert seen.problems[0] == "link.ended"


async def test_silence_counts_as_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tui.link, "SILENCE_S", 0.05)
    async with console_box() as box, following(box.url) as seen:
        await seen.until(lambda: seen.problems)
        assert seen.problems[0] == "link.timeout"


REFUSALS = [
    (Reply.refusal(401, "invalid_api_key"), "link.key"),
    (Reply.refusal(403, "insufficient_scope", "This key may infer only."), "link.scope"),
    (Reply.refusal(421, "host_not_allowed"), "link.host"),
    (Reply.refusal(503, "too_many_connections", "16 consoles watch already."), "link.said"),
    (Reply.refusal(400, "tls_required"), "link.encrypted"),
    (Reply(404, b"<html>", "text/html"), "link.other"),
    (Reply(200, b"<html>hello", "text/html"), "link.other"),
    (Reply(302, b"", "text/html"), "link.other"),
    (Reply(500, b"", "text/plain"), "link.status"),
    (Reply(200, b'event: live\ndata: {"type":"live"}\n\n', "text/event-stream"), "link.schema"),
    (Reply(200, b"event: live\ndata: \xff\xfe\n\n", "text/event-stream"), "link.schema"),
    (Reply(200, event(make_live(schema=2)), "text/event-stream"), "link.schema"),
]


@pytest.mark.parametrize(("reply", "problem"), REFUSALS)
async def test_refusal_becomes_a_problem_with_a_remedy(reply: Reply, problem: str) -> None:
    async with console_box(events=reply) as box, following(box.url) as seen:
        await seen.until(lambda: seen.problems)
        assert seen.problems[0] == problem
        assert seen.link.live is None


async def test_what_is_no_http_is_told_apart() -> None:
    async def rude(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(rude, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with following(url) as seen:
            await seen.until(lambda: seen.problems)
            assert seen.problems[0] == "link.no_http"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://127.0.0.1:1", "link.refused"),
        ("http://no-such-name.invalid", "link.name"),
        ("ftp://127.0.0.1", "link.url"),
        ("http://[::1", "link.url"),
        ("http://127.0.0.1:99999", "link.url"),
    ],
)
async def test_wrong_address_becomes_a_problem_with_a_remedy(url: str, problem: str) -> None:
    async with following(url) as seen:
        await seen.until(lambda: seen.problems)
        assert seen.problems[0] == problem


async def test_key_that_no_header_can_carry_is_no_crash() -> None:
    async with console_box() as box, following(box.url, key="sk\nx") as seen:
        await seen.until(lambda: seen.problems)


# -- TLS -------------------------------------------------------------------------------------------


def _tls(folder: Path, name: str = "box") -> tuple[ssl.SSLContext, str]:
    """A box's side of TLS, and the CA's file."""
    cert, key, ca = issue(folder, name, ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, ca


async def test_box_whose_ca_is_given_is_believed(tmp_path: Path) -> None:
    context, ca = _tls(tmp_path)
    async with console_box(context) as box:
        box.send(make_live())
        async with following(box.url, ca=ca) as seen:
            await seen.until(lambda: seen.link.live)


async def test_unknown_certificate_is_shown_then_believed_and_remembered(tmp_path: Path) -> None:
    context, _ = _tls(tmp_path)
    known = tmp_path / "config" / "known_boxes.json"
    async with console_box(context) as box:
        box.send(make_live())
        async with following(box.url, known) as seen:
            await seen.until(lambda: seen.link.shown)
            shown = seen.link.shown
            assert shown is not None
            assert len(shown.fingerprint) == 95
            assert not shown.changed
            assert not box.asked  # neither key nor request went out before the word
            await seen.link.believe(shown)
            await seen.until(lambda: seen.link.live)
        async with following(box.url, known) as again:
            await again.until(lambda: again.link.live)


async def test_other_certificate_than_the_one_confirmed_is_not_believed(tmp_path: Path) -> None:
    context, _ = _tls(tmp_path / "one")
    other, _ = _tls(tmp_path / "two")
    known = tmp_path / "known_boxes.json"
    async with console_box(context) as box:
        shown = await Trust(box.url, file=known).look()
    async with console_box(other) as box:
        trust = Trust(box.url, file=known)
        trust.confirm(type(shown)(box_of(box.url), shown.fingerprint, shown.pem, False))
        async with following(box.url, known) as seen:
            await seen.until(lambda: seen.link.shown)
            assert seen.link.shown is not None
            assert seen.link.shown.changed
            assert not box.asked


@pytest.mark.parametrize(("tls", "problem"), [(True, "link.no_http"), (False, "link.clear")])
async def test_wrong_scheme_is_named(tls: bool, problem: str, tmp_path: Path) -> None:
    context, _ = _tls(tmp_path)
    async with console_box(context if tls else None) as box:
        scheme = "http" if tls else "https"
        async with following(f"{scheme}:{box.url.partition(':')[2]}") as seen:
            await seen.until(lambda: seen.problems)
            assert seen.problems[0] == problem


async def test_ca_file_that_holds_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    async with following("https://127.0.0.1:1", ca=str(tmp_path / "ca.pem")) as seen:
        await seen.until(lambda: seen.problems)
        assert seen.problems[0] == "link.ca"


def test_damaged_memory_of_boxes_confirms_nothing(tmp_path: Path) -> None:
    file = tmp_path / "known_boxes.json"
    for text in ("{", "[]", '{"127.0.0.1:8421": "no certificate"}'):
        file.write_text(text)
        context = Trust("https://127.0.0.1:8421", file=file).context()
        assert context.check_hostname


# -- actions ---------------------------------------------------------------------------------------


async def test_action_names_the_operator_and_carries_an_idempotency_key() -> None:
    async with console_box() as box:
        box.replies["POST", "/admin/drain"] = [Reply.json({"status": "draining"})]
        link = make_link(box, operator="爱丽丝")
        answer = await link.act("POST", "/admin/drain")
        await link.close()
        assert answer.done
        assert answer.data == {"status": "draining"}
        assert box.asked[0].headers["x-operator"] == "爱丽丝"
        assert len(box.asked[0].headers["idempotency-key"]) == 32


async def test_action_whose_answer_was_lost_is_asked_again_under_the_same_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tui.link, "AGAIN_S", (0.0, 0.0))
    async with console_box() as box:
        box.replies["POST", "/admin/keys"] = [Reply(cut=True), Reply.json({"key": "sk"})]
        link = make_link(box)
        answer = await link.act("POST", "/admin/keys", {"name": "a"}, idempotent=True)
        await link.close()
        assert answer.data == {"key": "sk"}
        assert len({one.headers["idempotency-key"] for one in box.asked}) == 1


async def test_action_that_cannot_be_asked_again_is_unknown() -> None:
    async with console_box() as box:
        box.replies["POST", "/admin/engine/restart"] = [Reply(cut=True)]
        link = make_link(box)
        answer = await link.act("POST", "/admin/engine/restart", {})
        await link.close()
        assert answer.done is None
        assert answer.problem is not None
        assert len(box.asked) == 1


async def test_action_that_never_reached_the_box_is_not_done() -> None:
    link = Link("http://127.0.0.1:1", "k", Trust("http://127.0.0.1:1"))
    answer = await link.act("POST", "/admin/drain", idempotent=True)
    await link.close()
    assert answer.done is False


async def test_refused_action_says_what_the_box_said() -> None:
    async with console_box() as box:
        refusal = Reply.refusal(409, "last_admin_key", "It is the last one.")
        box.replies["DELETE", "/admin/keys/a"] = [refusal]
        link = make_link(box)
        answer = await link.act("DELETE", "/admin/keys/a")
        await link.close()
        assert answer.done is False
        assert answer.problem is not None
        assert answer.problem.args == ("It is the last one.", "last_admin_key")


@pytest.mark.parametrize(("end", "whole"), [(b"data: [DONE]\n\n", True), (b"", False)])
async def test_stream_tells_a_whole_answer_from_one_that_was_cut(end: bytes, whole: bool) -> None:
    async with console_box() as box:
        body = b'data: {"a": 1}\n\n: ping\n\n' + end
        reply = Reply(200, body, "text/event-stream")
        box.replies["POST", "/v1/chat/completions"] = [reply]
        link = make_link(box)
        parts = [part async for part in link.stream("/v1/chat/completions", {})]
        await link.close()
        assert parts[0].data == {"a": 1}
        assert (parts[-1].problem is None) is whole


async def test_every_problem_has_words_in_both_languages() -> None:
    import re

    from tui.words import Words

    source = "".join(Path(f"tui/{name}.py").read_text() for name in ("problem", "link", "errands"))
    keys = set(re.findall(r'"(link\.[a-z_]+)"', source))
    assert len(keys) > 15
    assert all(Words("en").has(key) and Words("zh").has(key) for key in keys)
