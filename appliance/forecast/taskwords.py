"""What a prompt asks to be done, by its words, in English and Chinese. Pure."""

from collections import defaultdict
from collections.abc import Mapping

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
NAMES = tuple(_TASKS)


def _by_word() -> Mapping[str, tuple[int, ...]]:
    """The kinds that each English word is a sign of."""
    found: dict[str, tuple[int, ...]] = defaultdict(tuple)
    for at, (english, _) in enumerate(_TASKS.values()):
        for word in dict.fromkeys(english.split()):
            found[word] += (at,)
    return dict(found)


def _by_first() -> Mapping[str, tuple[tuple[str, int], ...]]:
    """Chinese signs and their kinds, by the signs' first characters."""
    found: dict[str, tuple[tuple[str, int], ...]] = defaultdict(tuple)
    for at, (_, chinese) in enumerate(_TASKS.values()):
        for mark in chinese.split():
            found[mark[0]] += ((mark, at),)
    return dict(found)


_WORDS = _by_word()
_MARKS = _by_first()


def tasks(words: frozenset[str], chinese: str) -> list[float]:
    """1 for each of NAMES that is asked for, else 0. `words`: in lower case; `chinese`: text that
    has Chinese in it."""
    found = [0.0] * len(NAMES)
    for word in words & _WORDS.keys():
        for at in _WORDS[word]:
            found[at] = 1.0
    for first in _MARKS.keys() & set(chinese):
        for mark, at in _MARKS[first]:
            if mark in chinese:
                found[at] = 1.0
    return found
