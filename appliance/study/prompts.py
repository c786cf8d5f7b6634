"""What a study asks: prompts of our own in English and Chinese, or the operator's."""

from collections.abc import Iterable
from pathlib import Path

from appliance.forecast.dataset import BadDataset, Message, Prompt, read
from appliance.study.errors import StudyError

MOST = 10_000
"""Prompts of one file."""

_ENGLISH = (
    ("fact", "Which planet in our solar system has the most visible rings? One word."),
    ("fact", "Does salt water freeze at a lower temperature than fresh water? Yes or no."),
    ("sum", "A crate holds 24 bottles. How many bottles are in 17 crates?"),
    ("sum", "A train leaves at 9:40 and arrives at 13:05. How long is the journey?"),
    ("define", "What is a counterweight?"),
    ("define", "In one sentence, what does a notary do?"),
    ("explain", "Explain how a fridge keeps food cold."),
    ("explain", "Why do bridges have gaps between their segments?"),
    ("explain", "Explain to a ten-year-old why the moon changes its shape."),
    ("list", "List five things to check before a long drive."),
    ("list", "Name three crops that grow in dry soil."),
    ("list", "Give me ten ideas for a school fair."),
    ("steps", "How do I repair a puncture in a bicycle tyre?"),
    ("steps", "Describe step by step how to brew tea for six people."),
    ("write", "Write a short story about a lighthouse keeper who finds a letter."),
    ("write", "Write a four-line poem about rust."),
    ("write", "Write an e-mail to a supplier whose delivery is two weeks late."),
    ("rewrite", "Make this more polite: Send me the figures today or we cancel."),
    ("shorten", "Sum up in one line: The pump failed on Tuesday. A spare arrived on Thursday and "
     "was fitted the same night, so the plant lost two and a half days."),
    ("extract", "Which city is named here? After the fair in Leipzig she took the night train."),
    ("code", "Write a Python function that returns the second largest number of a list."),
    ("code", "Write an SQL query that counts orders per customer."),
    ("compare", "Compare copper and aluminium as materials for cables."),
    ("advise", "Should a small shop accept returns without a receipt? Give reasons."),
)  # fmt: skip
_CHINESE = (
    ("fact", "一年中白天最长的节气叫什么？只答名称。"),
    ("fact", "蜘蛛是昆虫吗？请回答是或不是。"),
    ("sum", "一箱苹果重十二公斤，十五箱一共重多少公斤？"),
    ("define", "什么是杆秤？"),
    ("define", "请用一句话说明什么是保险。"),
    ("explain", "为什么高山上煮饭不容易熟？"),
    ("explain", "请解释电梯为什么需要配重。"),
    ("list", "列出五种适合夏天喝的饮料。"),
    ("list", "请给出三条节约用电的建议。"),
    ("steps", "怎样给自行车链条上油？请分步骤说明。"),
    ("write", "写一个关于老木匠和小学徒的短故事。"),
    ("write", "给客户写一封信，说明发货会晚三天。"),
    ("rewrite", "把这句话改得客气一些：你明天必须把报告交上来。"),
    ("shorten", "用一句话概括：周一仓库漏水，周二修好了屋顶，周三清点后发现只坏了两箱纸。"),
    ("code", "用Python写一个函数，判断一个字符串是否为回文。"),
    ("compare", "比较火车和长途汽车的优缺点。"),
)


def built_in() -> tuple[Prompt, ...]:
    """Forty prompts of many kinds, so that short and long answers are among them. The two
    languages alternate: the first few are a fair choice, too."""
    english = [_prompt("en", i, *told) for i, told in enumerate(_ENGLISH)]
    chinese = [_prompt("zh", i, *told) for i, told in enumerate(_CHINESE)]
    return tuple(_mixed(english, chinese))


def _prompt(language: str, number: int, kind: str, text: str) -> Prompt:
    name = f"{language}-{number:02}-{kind}"
    return Prompt(id=name, messages=(Message("user", text),), source=f"{kind}:{language}")


def _mixed(english: list[Prompt], chinese: list[Prompt]) -> Iterable[Prompt]:
    """3 English ones to 2 Chinese ones, kinds spread by a fixed stride."""
    left, right = _strided(english, 7), _strided(chinese, 5)
    while left or right:
        yield from left[:3] + right[:2]
        left, right = left[3:], right[2:]


def _strided(prompts: list[Prompt], stride: int) -> list[Prompt]:
    """A permutation, as stride and count have no common divisor."""
    return [prompts[i * stride % len(prompts)] for i in range(len(prompts))]


def load(file: Path | None, most: int | None = None) -> tuple[Prompt, ...]:
    """The file's prompts (JSONL, docs/forecast.md), or the built-in ones; the first `most`. Raises
    StudyError."""
    prompts = built_in() if file is None else _from(file)
    return prompts if most is None else prompts[:most]


def _from(file: Path) -> tuple[Prompt, ...]:
    try:
        prompts = tuple(read(file, Prompt))
    except BadDataset as error:
        raise StudyError(
            f'{error}. One line a prompt: {{"id": "a1", "messages": [{{"role": "user", '
            '"content": "..."}]}'
        ) from None
    _check(file, prompts)
    return prompts


def _check(file: Path, prompts: tuple[Prompt, ...]) -> None:
    if not prompts:
        raise StudyError(f"{file} holds no prompt")
    if len(prompts) > MOST:
        raise StudyError(f"{file} holds {len(prompts)} prompts; a study takes {MOST} at most")
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.id in seen:
            raise StudyError(f"{file} has two prompts with the id {prompt.id!r}: give each its own")
        if not any(message.role == "user" for message in prompt.messages):
            raise StudyError(f"{file}: prompt {prompt.id!r} has no message of a user")
        seen.add(prompt.id)


def language(text: str) -> str:
    """zh where at least a fifth of the letters are Chinese characters, else en."""
    letters = [letter for letter in text if letter.isalpha()]
    han = sum("\u4e00" <= letter <= "\u9fff" for letter in letters)
    return "zh" if letters and 5 * han >= len(letters) else "en"
