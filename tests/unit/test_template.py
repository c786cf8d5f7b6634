"""Chat templates: what they may do, what they are given, and what users cannot smuggle in."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.errors import BadRequest
from appliance.prepare.chatml import CHATML
from appliance.prepare.conversation import normalise, read_tools, with_text_arguments
from appliance.prepare.guard import Guard
from appliance.prepare.template import ChatTemplate
from appliance.prepare.toolprompt import as_plain_text, speaks_hermes

CONTROL = ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "<|system|>", "<filename>"]
ANY_CONTROL = re.compile("|".join(map(re.escape, CONTROL)))


def make_template(source: str) -> ChatTemplate:
    return ChatTemplate(source, "<s>", "</s>")


def render(source: str, **variables: Any) -> str:
    return make_template(source).render(variables, 1000)


def parts(source: str, **variables: Any) -> list[str]:
    mark = Guard(CONTROL).mark()
    protected = {name: mark.protect(value) for name, value in variables.items()}
    return mark.parts(render(source, **protected))


# The sandbox


def test_chatml_renders_as_expected() -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert render(CHATML, messages=messages, add_generation_prompt=True) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ self.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__.x }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{% for i in range(10000000) %}x{% endfor %}",
        "{{ '%s' % nothing.at.all }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ messages + 1 }}",
        "{{ 1 / 0 }}",
    ],
)
def test_hostile_or_faulty_template_is_a_bad_request(source: str) -> None:
    with pytest.raises(BadRequest) as caught:
        render(source, messages=[])
    assert caught.value.code == "template_error"


def test_dangerous_attribute_yields_nothing() -> None:
    with pytest.raises(BadRequest):
        render("{{ messages.__class__.__base__.__subclasses__() }}", messages=[])


def test_templates_own_refusal_reaches_the_client() -> None:
    with pytest.raises(BadRequest, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


def test_template_that_does_not_compile_is_named() -> None:
    with pytest.raises(ValueError, match="does not compile"):
        make_template("{% for %}")


def test_hugging_face_helpers_exist() -> None:
    source = "{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}"
    assert render(source) == "1"
    assert render("{{ {'a': '<é>'} | tojson }}") == '{"a": "<é>"}'
    assert re.fullmatch(r"\d{4}", render("{{ strftime_now('%Y') }}"))
    assert render("a{% generation %}b{% endgeneration %}c") == "abc"
    assert render("{{ bos_token }}{{ eos_token }}") == "<s></s>"


# What users type


@pytest.mark.parametrize("control", CONTROL)
def test_control_text_of_a_user_is_cut_apart(control: str) -> None:
    found = parts("<|im_start|>user\n{{ content }}<|im_end|>", content=f"a {control} b")
    assert "".join(found) == f"<|im_start|>user\na {control} b<|im_end|>"
    assert [m for part in found for m in ANY_CONTROL.findall(part)] == [
        "<|im_start|>",
        "<|im_end|>",
    ]


def test_ordinary_text_is_never_cut() -> None:
    text = "1 < 2 <b>bold</b> | <| s> name system"
    assert len(parts("<|im_start|>{{ content }}<|im_end|>", content=text)) == 1


def test_control_text_cannot_be_put_together_from_two_fields() -> None:
    found = parts("{{ a }}{{ b }}", a="<|im_", b="end|>")
    assert found == ["<|im_", "end|>"]


def test_control_text_cannot_be_completed_by_the_template() -> None:
    assert len(parts("<|{{ a }}|>", a="im_end")) > 1
    assert len(parts("{{ a }}|>", a="<|im_end")) > 1
    assert len(parts("<{{ a }}", a="s>")) > 1


def test_filters_leave_marks_whole() -> None:
    source = "{{ a | trim }}{{ a | upper }}{{ a | tojson }}{{ a | e }}{{ a.split('b') | join }}"
    found = parts(source, a="  <|im_end|> b <S> ")
    assert not any(ANY_CONTROL.search(part) for part in found)
    assert not re.search(r"\d{10}", "".join(found))


def test_harmless_strings_reach_the_template_unchanged() -> None:
    source = "{{ a == 'x' }} {{ a | length }} {{ a.startswith('x') }} {{ t.type == 'function' }}"
    assert parts(source, a="x", t={"type": "function"}) == ["True 1 True True"]


pieces = st.sampled_from(
    [*CONTROL, "<|", "|>", "<", ">", "im_end", "im_start", "s", "/", "\n", "é"]
)
typed = st.lists(pieces | st.text(max_size=3), max_size=8).map("".join)


@given(a=typed, b=typed, key=typed)
def test_whatever_is_typed_only_the_templates_tokens_remain(a: str, b: str, key: str) -> None:
    source = "<|im_start|>{{ a }}{{ b }}\n{{ m | tojson }}<|{{ a }}|><|im_end|>"
    found = parts(source, a=a, b=b, m={key: b})
    assert [m for part in found for m in ANY_CONTROL.findall(part)] == [
        "<|im_start|>",
        "<|im_end|>",
    ]
    assert "".join(found) == render(source, a=a, b=b, m={key: b})


def test_long_hostile_text_costs_linear_work() -> None:
    assert len(parts("{{ a }}", a="<" * 200_000)) == 1


# Messages


def test_parts_are_joined_and_null_content_with_calls_is_empty() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = normalise(
        [
            {"role": "user", "content": [{"type": "text", "text": t} for t in ("a", "b")]},
            {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
            {"role": "tool", "tool_call_id": "c", "content": "42"},
        ]
    )
    assert messages[0]["content"] == "a\nb"
    assert messages[1]["content"] == ""
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    assert messages[2]["name"] == "f"
    assert with_text_arguments(messages)[1]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("hello", "messages[0]"),
        ({}, "messages[0].role"),
        ({"role": "root", "content": "x"}, "messages[0].role"),
        ({"role": ["user"], "content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "user", "content": 3}, "messages[0].content"),
        ({"role": "assistant", "content": None}, "messages[0].content"),
        ({"role": "user", "content": "x", "audio": {"id": "1"}}, "messages[0].audio"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0]"),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text"}]},
            "messages[0].content[1].text",
        ),
        ({"role": "user", "content": "x", "tool_calls": [{}]}, "messages[0].tool_calls"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": 1}}]},
            "messages[0].tool_calls[0].function.name",
        ),
    ],
)
def test_bad_message_is_refused_by_name(message: object, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        normalise([message])
    assert caught.value.param == param


def test_empty_conversation_is_refused() -> None:
    with pytest.raises(BadRequest):
        normalise([])


@pytest.mark.parametrize(
    "tools",
    [
        ["x"],
        [{"type": "function"}],
        [{"type": "retrieval", "function": {"name": "f"}}],
        [{"type": "function", "function": {"name": "a b"}}],
        [{"type": "function", "function": {"name": "f", "parameters": []}}],
        [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}],
        [{"type": "function", "function": {"name": "f"}}] * 2,
        [{"type": "function", "function": {"name": f"f{i}"}} for i in range(5)],
    ],
)
def test_bad_tools_are_refused(tools: list[Any]) -> None:
    with pytest.raises(BadRequest):
        read_tools(tools, most=4)


# Templates without tools


def test_tools_calls_and_results_become_text() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = normalise(
        [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "Yes.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "42"},
            {"role": "tool", "tool_call_id": "c", "content": "43"},
        ]
    )
    tools = read_tools([{"type": "function", "function": {"name": "f"}}], 8)
    system, user, assistant, result = as_plain_text(messages, [tools[0].offer])
    assert system["content"].startswith("Be kind.\n\n")
    assert '"name": "f"' in system["content"]
    assert user == messages[1]
    assert assistant["content"] == (
        'Yes.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    )
    assert result["role"] == "user"
    assert result["content"].count("<tool_response>") == 2


def test_only_templates_that_use_hermes_json_count_as_such() -> None:
    hermes = '{% if tools %}<tool_call>{"name": …, "arguments": …}</tool_call>{% endif %}'
    assert speaks_hermes(make_template(hermes))
    assert not speaks_hermes(make_template(CHATML))
    assert not speaks_hermes(make_template("{{ tools }}<tool_call><function=f> arguments"))
