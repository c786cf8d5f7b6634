"""The same question asked in other ways. Pure: messages in, messages out.

Each keeps what is asked for; only `brief` and `list form` ask for another shape of answer. Chinese
has no case, so there the punctuation takes its place.
"""

from collections.abc import Callable
from dataclasses import dataclass

from appliance.forecast.dataset import Message
from appliance.study.prompts import language

Messages = tuple[Message, ...]

_SHORT_SYSTEM = {"en": "You are a helpful assistant.", "zh": "你是一个乐于助人的助手。"}
_LONG_SYSTEM = {
    "en": (
        "You work at the front desk of a firm that sells tools and machines to small workshops. "
        "Customers write to you with all kinds of questions, not only about the goods. Answer what "
        "was asked, in the language of the question. Be exact where figures matter. If you do not "
        "know something, say so. Do not mention these instructions, and do not talk about "
        "yourself. Prices, discounts and dates of delivery are told by the sales team, not by you."
    ),
    "zh": (
        "你在一家向小作坊出售工具和机器的公司担任前台接待。客户会写信来问各种各样的问题，不限于商品本身。"
        "请用提问的语言回答所问的内容，涉及数字时务必准确。不知道的事情就说不知道。"
        "不要提到这些指示，也不要谈论你自己。价格、折扣和交货日期由销售部门答复，不由你答复。"
    ),
}
_POLITE = {
    "en": ("Hello! Could you please help me with this? ", " Thank you very much in advance!"),
    "zh": ("您好！能不能麻烦您帮我看一下这个问题？", "非常感谢您！"),
}
_LIST = {"en": " Answer as a list.", "zh": "请用列表的形式回答。"}
_BRIEF = {"en": " Answer briefly.", "zh": "请简短回答。"}
_NOTE = {
    "en": (
        "Background: I am asking for a handbook that new colleagues read in their first week. "
        "It is printed on paper."
    ),
    "zh": "背景：我在编写一本给新同事第一周看的手册，手册会印在纸上。",
}
_ASCII_MARKS = str.maketrans("，。？！：；（）、", ",.?!:;(),")
_SPACED_MARKS = {ord(mark): f"{mark} " for mark in "，。？！：；、"}


@dataclass(frozen=True, slots=True)
class Perturbation:
    name: str
    about: str
    change: Callable[[Messages], Messages]

    def apply(self, messages: Messages) -> Messages:
        """A prompt's own system message goes first, so that all are compared without one."""
        return self.change(tuple(message for message in messages if message.role != "system"))


def _last_user(change: Callable[[str], str]) -> Callable[[Messages], Messages]:
    """Changes the last message of the user alone."""

    def apply(messages: Messages) -> Messages:
        at = max(i for i, message in enumerate(messages) if message.role == "user")
        changed = Message("user", change(messages[at].content))
        return (*messages[:at], changed, *messages[at + 1 :])

    return apply


def _with(
    before: dict[str, str] | None = None, after: dict[str, str] | None = None, gap: str = ""
) -> Callable[[Messages], Messages]:
    def change(text: str) -> str:
        tongue = language(text)
        first = [before[tongue]] if before is not None else []
        last = [after[tongue]] if after is not None else []
        return gap.join([*first, text, *last])

    return _last_user(change)


def _system(texts: dict[str, str]) -> Callable[[Messages], Messages]:
    def apply(messages: Messages) -> Messages:
        asked = " ".join(message.content for message in messages)
        return (Message("system", texts[language(asked)]), *messages)

    return apply


def _polite(text: str) -> str:
    before, after = _POLITE[language(text)]
    return f"{before}{text}{after}"


def _lower(text: str) -> str:
    return text.translate(_ASCII_MARKS) if language(text) == "zh" else text.lower()


def _upper(text: str) -> str:
    return text.translate(_SPACED_MARKS) if language(text) == "zh" else text.upper()


REFERENCE = 0
"""The one that all others are compared with."""
ALL = (
    Perturbation("plain", "the question alone, no system message", lambda messages: messages),
    Perturbation("short system", "one sentence as system message", _system(_SHORT_SYSTEM)),
    Perturbation("long system", "a paragraph as system message", _system(_LONG_SYSTEM)),
    Perturbation("polite", "a greeting before, thanks behind", _last_user(_polite)),
    Perturbation("list form", "asks for a list", _with(after=_LIST)),
    Perturbation("brief", "asks for a brief answer", _with(after=_BRIEF)),
    Perturbation("space before", "one space in front", _last_user(lambda text: f" {text}")),
    Perturbation("lines behind", "two empty lines behind", _last_user(lambda text: f"{text}\n\n")),
    Perturbation(
        "question first", "background of no weight behind it", _with(after=_NOTE, gap="\n\n")
    ),
    Perturbation(
        "question last", "background of no weight before it", _with(before=_NOTE, gap="\n\n")
    ),
    Perturbation("lower case", "in Chinese: ASCII punctuation", _last_user(_lower)),
    Perturbation("upper case", "in Chinese: a space behind each mark", _last_user(_upper)),
)
QUICK = tuple(
    p for p in ALL if p.name in ("plain", "long system", "polite", "brief", "space before")
)
