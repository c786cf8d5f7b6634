"""The assistant line by line: for serial lines, screen readers, small terminals, and where the
screen cannot be drawn. The same steps, checks and writes."""

import getpass
from collections.abc import Callable
from dataclasses import dataclass, field

from tui.assistant import plan
from tui.assistant.checks import Wrong
from tui.assistant.machine import Facts, Machine
from tui.assistant.missing import Row, checklist, todo
from tui.assistant.pages import clean, wrong_text
from tui.assistant.plan import Outcome, Told
from tui.assistant.steps import STEPS, Answers, Field, Step, first_answers, foreseen
from tui.words import Lang, Words

FINISHED, LEFT = 0, 1
BACK = "<"


class Back(Exception):
    """A step back is wanted."""


@dataclass
class Lines:
    """The conversation. `ask` and `secret` get a question and give what was typed; EOFError and
    KeyboardInterrupt leave."""

    machine: Machine
    facts: Facts
    lang: Lang = "en"
    ask: Callable[[str], str] = input
    secret: Callable[[str], str] = getpass.getpass
    tell: Callable[[str], None] = print
    answers: Answers = field(init=False)

    def __post_init__(self) -> None:
        self.answers = first_answers(self.facts, self.lang)

    @property
    def words(self) -> Words:
        return Words("zh" if self.answers["lang"] == "zh" else "en")

    def talk(self) -> int:
        """Until it was finished or left; the exit status."""
        try:
            return self._talk()
        except (EOFError, KeyboardInterrupt):
            self.tell("")
            self.tell(self.words("assist.lines.left"))
            return FINISHED if self.facts.finished else LEFT

    def _talk(self) -> int:
        while True:
            self.tell("")
            self.tell(self.words("assist.title", clean(self.facts.host, self.words)))
            self.tell(self.words("assist.lines.keys"))
            self._walk()
            if self._summed_up():
                break
        plan.finish(self.machine.root)
        self.tell(self.words("assist.lines.bye"))
        return FINISHED

    # -- the steps ---------------------------------------------------------------------------------

    def _walk(self) -> None:
        at = 0
        while at < len(STEPS) - 1:
            try:
                self._step(at, STEPS[at])
                at += 1
            except Back:
                at = max(0, at - 1)

    def _step(self, at: int, step: Step) -> None:
        """Asked again until it can be taken."""
        while True:
            words = self.words
            self.tell("")
            place = words("assist.place", at + 1, len(STEPS))
            self.tell(f"{words(f'assist.step.{step.name}')} ({place})")
            asked = self._fields(step)
            why = f"assist.why.{step.name}" if asked else f"assist.why.no_{step.name}"
            self.tell(words(why))
            if step.name == "language" and not self.facts.chinese:
                self.tell(words("assist.no_chinese"))
            self._questions(step)
            try:
                step.check(self.answers, self.facts)
            except Wrong as wrong:
                self.tell(f"! {wrong_text(wrong, self.words)}")
            else:
                return

    def _fields(self, step: Step) -> list[Field]:
        return list(step.fields(self.answers, self.facts))

    def _questions(self, step: Step) -> None:
        """An answer may bring further questions, or take some away."""
        asked: set[str] = set()
        while True:
            left = [one for one in self._fields(step) if one.name not in asked]
            if not left:
                return
            asked.add(left[0].name)
            self._question(left[0])

    def _question(self, one: Field) -> None:
        label = self.words(f"assist.field.{one.name}")
        if one.options:
            self._choice(one, label)
            return
        note = self.words.or_else(f"assist.takes.{one.name}", "")
        self.tell(f"  {note}")
        if one.secret:
            typed = self.secret(f"  {label}: ")
        else:
            now = clean(self.answers[one.name], self.words)
            typed = self.ask(f"  {label} [{now}]: ").strip()
        if typed == BACK:
            raise Back
        if one.secret or typed:
            # Enter keeps what is there, so emptying it needs a sign.
            self.answers[one.name] = "" if typed == "-" and not one.secret else typed[: one.most]

    def _choice(self, one: Field, label: str) -> None:
        values = [option.value for option in one.options]
        for number, option in enumerate(one.options, start=1):
            told = (clean(text, self.words) for text in option.told)
            self.tell(f"  {number}  {self.words(option.word, *told)}")
        now = values.index(self.answers[one.name]) + 1 if self.answers[one.name] in values else 1
        while True:
            typed = self.ask(f"  {label} [{now}]: ").strip() or str(now)
            if typed == BACK:
                raise Back
            if typed.isdecimal() and 1 <= int(typed) <= len(values):
                self.answers[one.name] = values[int(typed) - 1]
                return
            self.tell(f"! {self.words('assist.lines.number')}")

    # -- the end -----------------------------------------------------------------------------------

    def _summed_up(self) -> bool:
        """Whether it is finished; else the steps are gone through again."""
        words = self.words
        try:
            made = plan.planned(self.answers, self.facts)
        except Wrong as wrong:
            self.tell(f"! {wrong_text(wrong, words)}")
            return False
        self.tell("")
        self.tell(words("assist.changes" if made.changes else "assist.no_change"))
        self._told(made.changes)
        lacks = [
            row for row in checklist(foreseen(self.answers, self.facts)) if row.state == "todo"
        ]
        self.tell(words("assist.missing" if lacks else "assist.complete"))
        for row in lacks:
            self.tell(f"  {self._row(row)}")
        if made.changes:
            if not self._yes("assist.lines.apply"):
                return False
            self._apply(made)
        if not self.facts.password:
            self.tell(f"! {self.words('assist.locked')}")
        return self._yes("assist.lines.finish")

    def _apply(self, made: plan.Plan) -> None:
        self.tell(self.words("assist.applying"))
        outcome = plan.apply(made, self.machine, lambda told: self._told((told,)))
        self._secrets(outcome)
        if outcome.failed is not None:
            why = wrong_text(outcome.failed, self.words)
            self.tell(f"! {self.words('assist.stopped', why)}")
        self.facts = self.machine.look(chinese=self.facts.chinese)
        self.answers = first_answers(self.facts) | {"lang": self.answers["lang"]}
        rows = checklist(self.facts)
        self.tell("")
        self.tell(self.words("assist.list", todo(rows)))
        for row in rows:
            self.tell(f"  {self._row(row)}")

    def _secrets(self, outcome: Outcome) -> None:
        if not outcome.secrets:
            return
        self.tell("")
        self.tell(self.words("assist.secrets"))
        for name, scope, secret in outcome.secrets:
            self.tell(f"\n  {self.words('assist.secret', clean(name, self.words), scope)}")
            self.tell(f"\n    {clean(secret, self.words)}\n")
        while self.ask(f"{self.words('assist.lines.noted')}: ").strip() != "y":
            pass

    def _yes(self, question: str) -> bool:
        while True:
            typed = self.ask(f"{self.words(question)} ").strip().lower()
            if typed in ("y", "n", BACK):
                return typed == "y"
            self.tell(f"! {self.words('assist.lines.yes')}")

    def _told(self, all_of: tuple[Told, ...]) -> None:
        for key, args in all_of:
            self.tell(f"  {self.words(key, *(clean(one, self.words) for one in args))}")

    def _row(self, row: Row) -> str:
        words = self.words
        detail = words(row.detail[0], *(clean(one, words) for one in row.detail[1]))
        helps = row.how if row.state != "ok" or row.step == "tls" else None
        how = words(helps[0], *helps[1]) if helps else ""
        text = f"{words(f'setup.state_{row.state}')}  {words(f'assist.step.{row.step}')}: {detail}"
        return f"{text}. {how}" if how else text
