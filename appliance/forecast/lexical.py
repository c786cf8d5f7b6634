"""What the words of a prompt tell of the length of its answer. Pure; English and Chinese.

Only the head and the tail of what the user said last are read, so that any prompt costs the same.
"""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.askedlength import Asked, asked
from appliance.forecast.question import Question, Turn

HEAD, TAIL = 900, 500
"""Characters of the last user turn that are read."""
TURNS = 64
"""Turns looked at, the last ones."""
CAP = 1e7
"""No size counts as more."""

_WORDS = re.compile(r"[a-z]+|[0-9][0-9,.]*")
_CJK = re.compile(r"[\u3400-\u9fff]")
_KANA_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]")
_OTHER = re.compile(r"[\u00c0-\u2fff\uf900-\ufdff]")
_SYMBOLS = re.compile(r"[\u200b-\u200f\u2190-\u2bff\ufe00-\ufe0f\U0001f000-\U0001faff]")
_CODE = re.compile(r"```|\bdef |\bclass \w|\breturn\b|#include|\bimport \w|[;{}]\s*\n|</\w|=>|\(\)")
_CHOICES = tuple(re.compile(rf"(?:^|[\s(（])[{one}][).、．:：]") for one in ("Aa", "Bb"))


_TASKS: Mapping[str, tuple[str, str]] = {
    "why": ("why reason reasons cause", "为什么 为何 原因"),
    "what": ("what whats", "什么 啥"),
    "fact": ("who where when which whose whom", "谁 哪 何时 几点 多久"),
    "how": ("how", "如何 怎么 怎样 怎 咋"),
    "count": ("many much calculate compute solve sum total percent equation", "多少 几 计算 求 解"),
    "write": ("write compose draft create craft generate produce", "写 撰 创作 生成 编"),
    "long_form": ("essay story article blog letter speech song lyrics rap script proposal report "
                  "novel paper resume itinerary chapter guide review recipe",
                  "作文 论文 文章 故事 小说 报告 文案 方案 攻略 剧本"),
    "short_form": ("poem haiku limerick joke riddle tagline slogan name names title tweet caption "
                   "email quote pun question", "诗 笑话 标语 名字 标题 谜语 邮件"),
    "explain": ("explain describe discuss analyze analyse elaborate compare evaluate define",
                "解释 描述 讨论 分析 介绍 比较 阐述 说明"),
    "list": ("list suggest recommend ideas tips steps examples bullet bullets outline plan",
             "列出 列举 推荐 建议 步骤 计划 清单"),
    "shorten": ("summarize summarise summary tldr headline title tagline shorten",
                "总结 概括 摘要 标题"),
    "translate": ("translate translation", "翻译 译成"),
    "classify": ("classify sentiment category label categorize true false correct identify detect",
                 "判断 分类 是否 情感 正确"),
    "rewrite": ("rewrite paraphrase edit rephrase improve correct fix grammar convert",
                "改写 修改 润色 改成 转换 重写"),
    "extract": ("extract find select pick choose", "提取 抽取 找出 选"),
    "code": ("code function program python java javascript sql html regex algorithm api class bug "
             "script implement", "代码 函数 程序 编程 算法"),
    "repeat": ("repeat again same verbatim copy", "重复 原文 同样"),
    "you": ("you your yourself", "你"),
    "me": ("i my me we our us", "我"),
    "act": ("act pretend imagine roleplay role", "扮演 假设 角色 假如"),
    "brief": ("brief briefly short concise concisely only just simply one quick",
              "简短 简要 简单 简洁 一句话 直接 只 仅"),
    "long": ("detailed detail comprehensive thorough depth extensive long full complete essay",
             "详细 全面 深入 完整 长"),
    "exact": ("yes no word option answer", "是或否 选项 答案"),
    "table": ("json table csv xml markdown yaml format", "表格 格式 列表"),
    "wish": ("need want looking book reserve card account please help my",
             "我想 我要 我需要 帮我 请问 您好 麻烦"),
    "chat": ("hi hello hey thanks thank bye ok okay sure great good", "你好 谢谢 再见 好的 哈哈"),
}  # fmt: skip
_ENGLISH = {name: frozenset(english.split()) for name, (english, _) in _TASKS.items()}
_CHINESE = {name: tuple(chinese.split()) for name, (_, chinese) in _TASKS.items()}
_OPENERS = "is are am was were do does did can could will would should has have had may might"
_YES_NO = frozenset(_OPENERS.split())

NAMES: tuple[str, ...] = (
    "log_prompt", "log_max_tokens", "temperature", "top_p", "greedy", "ignore_eos", "chat_route",
    "format_text", "format_tools", "log_turns", "log_answers", "log_system", "log_last",
    "log_others", "log_mean_answer", "log_last_answer",
    "chinese", "kana_hangul", "other_letters", "symbols", "digits", "capitals", "log_lines",
    "log_words", "ends_question", "ends_colon", "ends_stop", "log_questions", "yes_no", "code",
    "choice", "asked_words", "asked_sentences", "asked_paragraphs", "asked_items", "asked_upper",
    "asked_lower",
    *(f"task_{name}" for name in _TASKS),
)  # fmt: skip
"""Of the features, in order. Sizes are log(1 + n), texts' in characters; shares are 0..1."""


def lexical(question: Question) -> NDArray[np.float32]:
    """float32 [len(NAMES)]: finite, mostly within 0..10. Cost is bounded for any prompt."""
    turns = question.turns[-TURNS:]
    last = next((turn.text for turn in reversed(turns) if turn.role == "user"), "")
    text = last if len(last) <= HEAD + TAIL else f"{last[:HEAD]}\n{last[-TAIL:]}"
    values = (*_request(question), *_sizes(turns, last), *_shape(text), *_content(text))
    return np.nan_to_num(np.array(values, dtype=np.float32), nan=0.0, posinf=0.0, neginf=0.0)


def _log(size: float) -> float:
    return math.log1p(min(max(size, 0.0), CAP))


def _request(question: Question) -> tuple[float, ...]:
    return (
        _log(len(question.prompt)),
        _log(question.max_tokens),
        min(max(question.temperature, 0.0), 2.0),
        min(max(question.top_p, 0.0), 1.0),
        question.temperature <= 0,
        question.ignore_eos,
        question.route == "chat",
        question.format == "text",
        question.format == "tools",
    )


def _sizes(turns: Sequence[Turn], last: str) -> tuple[float, ...]:
    answers = [len(turn.text) for turn in turns if turn.role == "assistant"]
    system = sum(len(turn.text) for turn in turns if turn.role == "system")
    everything = sum(len(turn.text) for turn in turns)
    return (
        _log(len(turns)),
        _log(len(answers)),
        _log(system),
        _log(len(last)),
        _log(everything - system - len(last)),
        _log(sum(answers) / len(answers)) if answers else 0.0,
        _log(answers[-1]) if answers else 0.0,
    )


def _shape(text: str) -> tuple[float, ...]:
    size = max(len(text), 1)
    end = text.rstrip()[-1:]
    foreign = not text.isascii()
    return (
        len(_CJK.findall(text)) / size if foreign else 0.0,
        len(_KANA_HANGUL.findall(text)) / size if foreign else 0.0,
        len(_OTHER.findall(text)) / size if foreign else 0.0,
        len(_SYMBOLS.findall(text)) / size if foreign else 0.0,
        sum(map(str.isdigit, text)) / size,
        sum(map(str.isupper, text)) / size,
        _log(text.count("\n")),
        _log(text.count(" ")),
        end in "?？" if end else 0.0,
        end in ":：" if end else 0.0,
        end in ".。!！" if end else 0.0,
        _log(text.count("?") + text.count("？")),
    )


def _content(text: str) -> tuple[float, ...]:
    words = _WORDS.findall(text.lower())
    has_chinese = not text.isascii() and _CJK.search(text) is not None
    wanted = asked(words, text, has_chinese=has_chinese)
    return (
        (words[:1] != [] and words[0] in _YES_NO) or (has_chinese and "吗" in text),
        _CODE.search(text) is not None,
        all(mark.search(text) for mark in _CHOICES),
        *_wanted(wanted),
        *_tasks(frozenset(words), text if has_chinese else ""),
    )


def _wanted(found: Asked) -> tuple[float, ...]:
    return (*map(_log, found.amounts), found.upper, found.lower)


def _tasks(words: frozenset[str], chinese: str) -> list[float]:
    found = [float(not words.isdisjoint(_ENGLISH[name])) for name in _TASKS]
    if chinese:
        for at, name in enumerate(_TASKS):
            if any(mark in chinese for mark in _CHINESE[name]):
                found[at] = 1.0
    return found
