"""What comes back to the chat screen: answers, refusals, streams that break."""

import pytest

from tests.unit.chat_screen_parts import answered, come, delta, seen, sent, typed
from tests.unit.console_box import Reply, console_box
from tests.unit.screen_checks import exact, printed
from tui.link import Link
from tui.screen import Copy, Query, Save, Stop, Stream, Tell
from tui.screens.chat import WHOAMI, Chat
from tui.trust import Trust


def test_an_answer_tells_tokens_times_and_a_digest_that_was_checked() -> None:
    screen = Chat()
    sent(screen, "x")
    answered(screen)
    text = printed(screen, seen())
    assert "prompt 3 tok (1 cached)  output 2 tok  stop  TTFT 180 ms  230 ms  20 t/s" in text
    assert " matches" in text


def test_tokens_that_were_changed_on_the_way_are_told() -> None:
    screen = Chat()
    sent(screen, "x")
    answered(screen)
    screen.exchanges[-1].answer_ids[0] = 99
    screen._talk = type(screen._talk)()
    assert "DIFFERS" in printed(screen, seen())


def test_the_ledger_row_is_asked_for_until_it_is_known() -> None:
    screen = Chat()
    assert screen.wants(seen()) == (WHOAMI,)
    sent(screen, "x")
    answered(screen)
    row = Query("/admin/requests/chatcmpl-1", 1.0)
    assert screen.wants(seen()) == (WHOAMI, row)
    screen.receive(row, {"live": {}, "entries": []}, None)
    assert row in screen.wants(seen())
    screen.receive(row, {"live": None, "entries": [{"seq": 7}, {"seq": 48214}]}, None)
    assert "row 48214" in printed(screen, seen())
    assert screen.wants(seen()) == (WHOAMI,)


def test_reading_and_writing_tell_how_far_they_are() -> None:
    screen = Chat()
    sent(screen, "x")
    come(screen, id="c", prompt_progress={"total": 512, "cache": 0, "processed": 128, "time_ms": 1})
    assert "128 of 512 tok" in printed(screen, seen())
    delta(screen, "a", 1, 2, 3)
    assert "writing, 3 tok so far" in printed(screen, seen())


def test_a_refusal_tells_code_and_time_and_gives_the_prompt_back() -> None:
    screen = Chat()
    sent(screen, "my question")
    screen.streamed(None, "the queue is full: Retry-After 3 s [queue_full]")
    assert "REFUSED: the queue is full: Retry-After 3 s [queue_full]" in printed(screen, seen())
    assert screen.field.text == "my question"
    again = sent(screen, "")
    assert [said["content"] for said in again.body["messages"]] == ["my question"]


async def test_a_refusal_comes_over_the_wire_with_code_and_time() -> None:
    async with console_box() as box:
        refusal = Reply.refusal(503, "draining", "The box is draining.")
        refusal.type += "\r\nRetry-After: 10"
        box.replies["POST", "/v1/chat/completions"] = [refusal]
        link = Link(box.url, "sk-x", Trust(box.url))
        (part,) = [part async for part in link.stream("/v1/chat/completions", {})]
        await link.close()
        assert part.problem is not None
        assert seen().words(part.problem.key, *part.problem.args) == (
            "The box is draining. [draining, Retry-After 10 s]"
        )


def test_a_link_that_breaks_marks_the_answer_as_cut() -> None:
    screen = Chat()
    sent(screen, "x")
    delta(screen, "half of", 1)
    assert "CUT here: the link is lost" in printed(screen, seen("lost"))
    screen.streamed(None, "the connection broke")
    text = printed(screen, seen())
    assert "half of" in text
    assert "CUT here, the answer is not whole. the connection broke" in text


def test_a_stream_without_its_end_is_cut() -> None:
    screen = Chat()
    sent(screen, "x")
    delta(screen, "half", 1)
    screen.streamed(None, None)
    assert screen.exchanges[-1].phase == "cut"


@pytest.mark.parametrize(
    "data", ["", "{", "[]", '{"choices": 3}', '{"choices": [{"delta": {"content": 1}}]}', "\ud800"]
)
def test_an_event_of_another_shape_ends_the_answer(data: str) -> None:
    screen = Chat()
    sent(screen, "x")
    screen.streamed(data, None)
    assert screen.exchanges[-1].phase == "cut"
    exact(screen, seen())


def test_stopping_keeps_what_came_and_waits_for_the_stream_to_close() -> None:
    screen = Chat()
    sent(screen, "x")
    delta(screen, "half", 1)
    assert screen.press("X", seen()) == Stop()
    delta(screen, " more", 2)
    text = printed(screen, seen())
    assert "STOPPED here by you" in text
    assert "more" not in text
    screen.press("enter", seen())
    typed(screen, "y")
    assert isinstance(screen.press("enter", seen()), Tell)
    screen.streamed(None, None)
    assert isinstance(screen.press("enter", seen()), Stream)


def test_there_is_nothing_to_stop_copy_or_write_at_first() -> None:
    for key in "Xcw":
        assert isinstance(Chat().press(key, seen()), Tell)


def test_copies_and_files_hold_no_control_characters() -> None:
    screen = Chat()
    sent(screen, "x")
    answered(screen, "a\x1b[2J\x9b \u202eKäse\n\tb")
    assert screen.press("c", seen()) == Copy("a\\x1b[2J\\x9b \\u202eKäse\n\tb")
    saved = screen.press("w", seen())
    assert isinstance(saved, Save)
    assert "\x1b" not in saved.text
    assert "you: x" in saved.text


def test_a_new_conversation_forgets_the_old_one() -> None:
    screen = Chat()
    sent(screen, "x")
    assert isinstance(screen.press("N", seen()), Tell)
    answered(screen)
    screen.press("N", seen())
    assert len(sent(screen, "y").body["messages"]) == 1
