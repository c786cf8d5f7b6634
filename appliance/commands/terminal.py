"""What others wrote, made fit for a terminal: their names and texts must not steer it."""


def plain(text: str) -> str:
    """The text as lines, with a question mark for each sign that is not printed."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)


def one_line(text: str, instead: str = "?") -> str:
    """The text as one line; `instead` stands for each sign that is not printed."""
    return "".join(sign if sign.isprintable() else instead for sign in text)


def spelt(text: object) -> str:
    r"""The text as lines, with each sign that is not printed spelt out, as in `\x1b`."""
    return "".join(
        sign if sign.isprintable() or sign == "\n" else sign.encode("unicode_escape").decode()
        for sign in str(text)
    )
