"""What we ask of a Containerfile, beyond that it builds."""

import re
from dataclasses import dataclass

_STAGE = re.compile(r"(?P<base>\S+)(?:\s+AS\s+(?P<name>\S+))?", re.IGNORECASE)
_PIP = re.compile(r"pip[\w.]* install\b|-m pip install\b")
_FETCHES = re.compile(r"\b(curl|wget|git clone|pip download)\b|https?://")
_SECRET = re.compile(r"(PASSWORD|SECRET|TOKEN|API_?KEY)\s*=", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction, its continued lines joined."""

    line: int
    word: str
    rest: str


def steps(text: str) -> list[Step]:
    """All instructions; comments are left out, also between continued lines."""
    found: list[Step] = []
    begun, at = "", 0
    for number, row in enumerate(text.splitlines(), start=1):
        if row.lstrip().startswith("#") or (not row.strip() and not begun):
            continue
        at = at if begun else number
        begun += row.rstrip().removesuffix("\\") + " "
        if not row.rstrip().endswith("\\"):
            word, _, rest = begun.strip().partition(" ")
            found.append(Step(at, word.upper(), " ".join(rest.split())))
            begun = ""
    return found


def faults(text: str) -> list[str]:
    """Everything that is wrong, with its line; empty when all is well."""
    found = steps(text)
    last = max((at for at, step in enumerate(found) if step.word == "FROM"), default=0)
    return [*_bases(found), *_single(found), *_final(found[last:])]


def _bases(found: list[Step]) -> list[str]:
    """Only what comes in as an argument with a digest, or a stage of the file."""
    wrong: list[str] = []
    stages: set[str] = set()
    for step in found:
        if step.word == "ARG" and step.rest.startswith("BASE="):
            wrong.append(f"{step.line}: BASE has a default: the caller must name a digest")
        if step.word != "FROM":
            continue
        stage = _STAGE.fullmatch(step.rest)
        if stage is None or stage["base"] not in {"${BASE}", "$BASE", *stages}:
            wrong.append(f"{step.line}: a base that is no argument: {step.rest}")
        if stage is not None and stage["name"]:
            stages.add(stage["name"])
    return wrong


def _single(found: list[Step]) -> list[str]:
    """Of each instruction by itself."""
    wrong = []
    for step in found:
        if step.word == "ADD":
            wrong.append(f"{step.line}: ADD fetches and unpacks by itself: use COPY")
        if step.word == "RUN" and _PIP.search(step.rest):
            missing = {"--no-index", "--no-deps"} - set(step.rest.split())
            wrong += [f"{step.line}: pip install without {one}" for one in sorted(missing)]
        if step.word in ("RUN", "COPY") and _FETCHES.search(step.rest):
            wrong.append(f"{step.line}: fetches something: {step.rest[:60]}")
        if step.word in ("ENV", "ARG") and _SECRET.search(step.rest):
            wrong.append(f"{step.line}: a secret would stay in the image")
        if step.word == "RUN" and "apt-get install" in step.rest:
            wanted = ("--no-install-recommends", "rm -rf /var/lib/apt/lists/*")
            wrong += [f"{step.line}: apt-get without {w}" for w in wanted if w not in step.rest]
    return wrong


def _final(stage: list[Step]) -> list[str]:
    """Of the stage that becomes the image."""
    by_word = {step.word: step for step in stage}
    wrong = []
    for word in ("USER", "HEALTHCHECK", "ENTRYPOINT", "VOLUME"):
        if word not in by_word:
            wrong.append(f"the image has no {word}")
    user = by_word.get("USER")
    if user is not None and not re.fullmatch(r"[1-9]\d*:[1-9]\d*", user.rest):
        wrong.append(f"{user.line}: USER is not a number of its own: {user.rest}")
    for word in ("ENTRYPOINT", "CMD"):
        step = by_word.get(word)
        if step is not None and not step.rest.startswith("["):
            wrong.append(f"{step.line}: {word} starts a shell, which keeps signals for itself")
    check = by_word.get("HEALTHCHECK")
    if check is not None and not re.search(r"CMD \[", check.rest):
        wrong.append(f"{check.line}: HEALTHCHECK starts a shell")
    return wrong
