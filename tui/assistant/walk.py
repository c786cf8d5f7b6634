"""The full-screen face without a terminal: keys go in, lines of cells come out. Pure but for what
its host does with the effects."""

from dataclasses import dataclass
from typing import Literal

from tui.assistant import pages
from tui.assistant.checks import Wrong
from tui.assistant.machine import Facts
from tui.assistant.plan import Outcome, Plan, Told, planned
from tui.assistant.steps import STEPS, Answers, Field, Step, first_answers, first_wrong
from tui.field import Field as Typed
from tui.lines import Line
from tui.words import LANGS, Lang, Words

Effect = Literal["apply", "finish", "leave"]
"""What the host is to do; `apply` with `Walk.plan`."""
Page = Literal["steps", "quit", "busy", "secrets", "done"]
SUMMARY = len(STEPS) - 1


@dataclass(frozen=True, slots=True)
class Place:
    """What the cursor can be on: an option of a field, a field to type in, or a button."""

    field: Field | None = None
    value: str = ""
    button: str = ""

    @property
    def types(self) -> bool:
        return self.field is not None and not self.field.options


class Walk:
    """Where a person is, what was answered, and what a key does."""

    def __init__(self, facts: Facts, lang: Lang = "en") -> None:
        self.facts = facts
        self.answers: Answers = first_answers(facts, lang)
        self.page: Page = "steps"
        self.at = 0
        self.cursor = 0
        self.top = 0
        """Rows that are scrolled away."""
        self.visited = {0}
        self.wrong: Wrong | None = None
        self.plan = Plan()
        self.outcome = Outcome()
        self.doing: list[Told] = []
        """What `apply` has begun so far."""
        self.size = (80, 24)
        self._typed: dict[str, Typed] = {}
        self._before: Page = "steps"

    @property
    def words(self) -> Words:
        lang = self.answers["lang"]
        return Words(next((one for one in LANGS if one == lang), "en"))

    @property
    def step(self) -> Step:
        return STEPS[self.at]

    def lines(self) -> list[Line]:
        """Exactly as many and as wide as the terminal."""
        return pages.draw(self)

    # -- what the cursor can be on -----------------------------------------------------------------

    def fields(self) -> list[Field]:
        return list(self.step.fields(self.answers, self.facts)) if self.page == "steps" else []

    def places(self) -> list[Place]:
        """From the top to the bottom, the buttons last."""
        found: list[Place] = []
        for field in self.fields():
            found += [Place(field, one.value) for one in field.options] or [Place(field)]
        return found + [Place(button=name) for name in self.buttons()]

    def buttons(self) -> tuple[str, ...]:
        if self.page == "quit":
            return ("stay", "leave", "finish")
        if self.page == "done":
            return ("steps",) if self.outcome.failed else ("finish", "steps")
        if self.page != "steps":
            return ()
        if self.at == SUMMARY:
            return ("apply", "back", "quit") if self.plan.changes else ("finish", "back", "quit")
        return ("next", "back", "quit") if self.at else ("next", "quit")

    @property
    def place(self) -> Place:
        found = self.places()
        return found[min(self.cursor, len(found) - 1)] if found else Place()

    def typed(self, field: Field) -> Typed:
        """The text of a field while it is typed."""
        if field.name not in self._typed:
            self._typed[field.name] = Typed(self.answers[field.name], most=field.most)
        return self._typed[field.name]

    # -- keys --------------------------------------------------------------------------------------

    def press(self, key: str) -> Effect | None:
        """A sign as itself, else Textual's name of a key."""
        if self.page == "busy":
            return None
        if self.page == "secrets":
            if key == "y":
                self._to("done")
            return None
        place = self.place
        if key in ("ctrl+c", "ctrl+q") or (key == "q" and not place.types):
            self._ask_to_leave()
        elif key in ("tab", "shift+tab", "up", "down"):
            self._move(key)
        elif key in ("left", "right") and place.button:
            self._move("down" if key == "right" else "up")
        elif key == "pagedown":
            return self._button("next") if self.page == "steps" and self.at < SUMMARY else None
        elif key in ("pageup", "escape"):
            return self._button("back" if self.page == "steps" else "stay")
        elif key == "enter":
            return self._enter(place)
        elif key == "space" and place.field is not None and place.field.options:
            self._choose(place.field, place.value)
        elif place.types and place.field is not None:
            self._type(place.field, key)
        return None

    def paste(self, text: str) -> None:
        place = self.place
        if self.page == "steps" and place.types and place.field is not None:
            field = self.typed(place.field)
            field.insert(text.strip())
            self.answers[place.field.name] = field.text

    def _move(self, key: str) -> None:
        by = 1 if key in ("tab", "down") else -1
        scrolls = key in ("up", "down") and not self.fields() and self.page in ("steps", "done")
        if scrolls and pages.scrolls(self, by):
            self.top += by
            return
        self.cursor = max(0, min(len(self.places()) - 1, self.cursor + by))

    def _enter(self, place: Place) -> Effect | None:
        """Takes what the cursor is on, and goes on to the next."""
        if place.button:
            return self._button(place.button)
        if place.field is not None and place.field.options:
            self._choose(place.field, place.value)
            self.cursor = next(
                at for at, one in enumerate(self.places()) if self._behind(one, place.field)
            )
        else:
            self.cursor += 1
        return None

    def _behind(self, place: Place, field: Field) -> bool:
        """Whether the place comes after the field."""
        names = [one.name for one in self.fields()]
        return place.field is None or names.index(place.field.name) > names.index(field.name)

    def _choose(self, field: Field, value: str) -> None:
        self.answers[field.name] = value
        self.wrong = None

    def _type(self, field: Field, key: str) -> None:
        if self.typed(field).press(key):
            self.answers[field.name] = self.typed(field).text
            self.wrong = None

    # -- from page to page -------------------------------------------------------------------------

    def _button(self, name: str) -> Effect | None:
        if name == "next":
            self._next()
        elif name == "back":
            self._go(max(0, self.at - 1))
        elif name == "quit":
            self._ask_to_leave()
        elif name == "stay":
            self._to(self._before)
        elif name == "steps":
            self._to("steps")
            self._go(0)
        elif name == "apply":
            self.doing = []
            self._to("busy")
            return "apply"
        elif name in ("finish", "leave"):
            return "finish" if name == "finish" else "leave"
        return None

    def _next(self) -> None:
        try:
            self.step.check(self.answers, self.facts)
        except Wrong as wrong:
            self._blame(wrong)
            return
        self._go(self.at + 1)
        if self.at == SUMMARY:
            self._sum_up()

    def _sum_up(self) -> None:
        """A step that was left out may be wrong: then it comes first."""
        found = first_wrong(self.answers, self.facts)
        if found is not None:
            self._go(found[0])
            self._blame(found[1])
            return
        try:
            self.plan = planned(self.answers, self.facts)
        except Wrong as wrong:
            self.plan, self.wrong = Plan(), wrong

    def _go(self, at: int) -> None:
        self.at, self.cursor, self.top, self.wrong = at, 0, 0, None
        self.visited.add(at)
        if at == SUMMARY:
            return
        for index, place in enumerate(self.places()):
            if place.field is not None and self.answers[place.field.name] == place.value:
                self.cursor = index
                break

    def _blame(self, wrong: Wrong) -> None:
        self.wrong = wrong
        names = [place.field.name if place.field else "" for place in self.places()]
        if wrong.field in names:
            self.cursor = names.index(wrong.field)

    def _to(self, page: Page) -> None:
        self.page, self.cursor, self.top, self.wrong = page, 0, 0, None

    def _ask_to_leave(self) -> None:
        if self.page != "quit":
            self._before = self.page
            self._to("quit")

    # -- what came of it ---------------------------------------------------------------------------

    def began(self, told: Told) -> None:
        """`apply` has come to this act."""
        self.doing.append(told)

    def ended(self, outcome: Outcome, facts: Facts) -> None:
        """`apply` has come to its end, and this is the machine now."""
        self.outcome, self.facts, self.plan = outcome, facts, Plan()
        self.answers = first_answers(facts, self.words.lang) | {"lang": self.answers["lang"]}
        self._typed.clear()
        self._to("secrets" if outcome.secrets else "done")

    def failed(self, wrong: Wrong) -> None:
        """The effect could not be had."""
        self.wrong = wrong
