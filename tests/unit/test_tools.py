"""The parser of tool calls: what it finds, and that no split or garbage matters."""

import itertools
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.prepare.messages import ToolsFormat
from appliance.prepare.tools import (
    ContentDelta,
    ToolCallArguments,
    ToolCallStart,
    ToolEvent,
    ToolParser,
)

CALL = (
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln", "days": [1, 2]}}\n</tool_call>'
)
ARGUMENTS = '{"city": "Köln", "days": [1, 2]}'


def make_parser(format: ToolsFormat = "hermes") -> ToolParser:
    counter = itertools.count()
    return ToolParser(format, new_id=lambda: f"call_{next(counter)}")


def parse(pieces: list[str], format: ToolsFormat = "hermes") -> list[ToolEvent]:
    parser = make_parser(format)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return joined(events + parser.finish())


def joined(events: list[ToolEvent]) -> list[ToolEvent]:
    """Neighbouring events of one kind made one."""
    result: list[ToolEvent] = []
    for event in events:
        match (result[-1] if result else None), event:
            case ContentDelta(before), ContentDelta(text):
                result[-1] = ContentDelta(before + text)
            case ToolCallArguments(index, before), ToolCallArguments(same, text) if index == same:
                result[-1] = ToolCallArguments(index, before + text)
            case _:
                result.append(event)
    return result


def call(index: int, name: str, arguments: str) -> list[ToolEvent]:
    return [ToolCallStart(index, f"call_{index}", name), ToolCallArguments(index, arguments)]


def test_call_is_found_and_its_tags_vanish() -> None:
    assert parse([CALL]) == call(0, "weather", ARGUMENTS)


def test_text_before_a_call_is_content_without_the_space_between() -> None:
    assert parse([f"Let me look.\n\n{CALL}"]) == [
        ContentDelta("Let me look."),
        *call(0, "weather", ARGUMENTS),
    ]


def test_two_calls_have_two_indices() -> None:
    assert parse([f"{CALL}\n{CALL}\n"]) == [
        *call(0, "weather", ARGUMENTS),
        *call(1, "weather", ARGUMENTS),
    ]


def test_arguments_are_forwarded_while_they_are_written() -> None:
    parser = make_parser()
    assert parser.feed('<tool_call>\n{"name": "f", "arguments": {"a": "x') == [
        ToolCallStart(0, "call_0", "f"),
        ToolCallArguments(0, '{"a": "x'),
    ]
    assert parser.feed("y") == [ToolCallArguments(0, "y")]
    assert parser.feed('"}}\n</tool_call>') == [ToolCallArguments(0, '"}')]


def test_plain_text_is_forwarded_at_once() -> None:
    parser = make_parser()
    assert parser.feed("Hello") == [ContentDelta("Hello")]
    assert parser.feed(" wor") == [ContentDelta(" wor")]


def test_space_at_the_end_of_plain_text_survives() -> None:
    assert parse(["Hello \n"]) == [ContentDelta("Hello \n")]


def test_start_of_a_tag_at_the_end_is_content() -> None:
    assert parse(["a <tool_c"]) == [ContentDelta("a <tool_c")]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call>\n",
        "<tool_call>hello</tool_call>",
        "<tool_call>[]</tool_call>",
        "<tool_call>{}</tool_call>",
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": 3}</tool_call>',
        '<tool_call>{"name": "f", "arguments": ',
        '<tool_call>{"name": oops, ]',
        "<tool_call>{<tool_call>{",
    ],
)
def test_broken_call_comes_out_as_content(text: str) -> None:
    assert parse([text]) == [ContentDelta(text)]


def test_broken_call_does_not_hide_the_next() -> None:
    broken = '<tool_call>{"name": <x></tool_call>'
    assert parse([broken + CALL]) == [ContentDelta(broken), *call(0, "weather", ARGUMENTS)]


def test_arguments_cut_short_stay_as_sent() -> None:
    text = '<tool_call>\n{"name": "f", "arguments": {"a": [1, '
    assert parse([text]) == call(0, "f", '{"a": [1, ')


def test_call_cut_within_its_closing_tag_is_whole() -> None:
    assert parse([CALL.removesuffix("_call>")]) == call(0, "weather", ARGUMENTS)


def test_call_with_keys_in_another_order_is_found_when_complete() -> None:
    text = '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>'
    assert parse([text]) == call(0, "f", '{"a": 1}')


def test_arguments_given_as_json_text_are_unpacked() -> None:
    text = '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>'
    assert parse([text]) == call(0, "f", '{"a": 1}')


def test_braces_and_tags_inside_strings_do_not_end_anything() -> None:
    arguments = json.dumps({"a": '}]</tool_call>\\"', "b": "{["})
    text = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'
    assert parse([text]) == call(0, "f", arguments)


def test_forced_answer_is_one_object() -> None:
    assert parse(['{"name": "f", "arguments": {"a": 1}}'], "json") == call(0, "f", '{"a": 1}')


def test_forced_answer_may_be_a_list() -> None:
    text = '[{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"a": []}}]'
    assert parse([text], "json") == [*call(0, "f", "{}"), *call(1, "g", '{"a": []}')]


@pytest.mark.parametrize("text", ["hello", "[1, 2]", '{"a": 1}', "[", "[[]]", '  {"name"'])
def test_forced_answer_that_is_no_call_is_content(text: str) -> None:
    assert parse([text], "json") == [ContentDelta(text)]


def test_list_cut_short_keeps_its_first_call() -> None:
    assert parse(['[{"name": "f", "arguments": {}}, '], "json") == call(0, "f", "{}")


def test_text_behind_a_forced_call_is_content() -> None:
    text = '{"name": "f", "arguments": {}} bye'
    assert parse([text], "json") == [*call(0, "f", "{}"), ContentDelta("bye")]


fragments = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        "<tool",
        "\n",
        " ",
        "{",
        "}",
        "[",
        "]",
        ",",
        '"',
        "\\",
        '{"name": "f", "arguments": ',
        '{"name": "f\\u00e9", "arguments": {',
        '"name": "g"',
        '{"arguments": {}, "name": "h"}',
        "}}\n</tool_call>",
        "hello",
        CALL,
    ]
)
texts = st.lists(fragments | st.text(max_size=4), max_size=12).map("".join)


@given(text=texts, data=st.data(), format=st.sampled_from(["hermes", "json"]))
def test_any_split_gives_the_same_events(text: str, data: st.DataObject, format: str) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
    assert parse(pieces, format) == parse([text], format) == parse(list(text), format)  # type: ignore[arg-type]


@given(text=texts, format=st.sampled_from(["hermes", "json"]))
@example(text="<tool_call>" * 500, format="hermes")
@example(text='{"a":' * 2000, format="json")
def test_garbage_never_raises_and_loses_no_word(text: str, format: str) -> None:
    events = parse([text], format)  # type: ignore[arg-type]
    if not any(isinstance(event, ToolCallStart) for event in events):
        content = "".join(event.text for event in events if isinstance(event, ContentDelta))
        assert content == text


arguments = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=6,
    ),
    max_size=4,
)


@given(value=arguments, ascii=st.booleans())
def test_every_valid_call_comes_back_with_its_arguments(
    value: dict[str, object], ascii: bool
) -> None:
    text = json.dumps(value, ensure_ascii=ascii)
    forced = f'{{"name": "f", "arguments": {text}}}'
    assert parse(list(forced), "json") == call(0, "f", text)
    assert parse(list(f"<tool_call>\n{forced}\n</tool_call>")) == call(0, "f", text)
