"""The second forecast: learned where prompts came with first logits, kept where it is better."""

import math
import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from appliance.calibrate import material
from appliance.calibrate.cases import Case
from appliance.calibrate.fit import Made
from appliance.calibrate.sharper import FEWEST
from appliance.calibrate.table import text
from appliance.forecast.bundle import Bundle
from appliance.forecast.first import LOGITS, MOST_READ
from appliance.forecast.network import MOST_PARAMETERS
from tests.unit.calibrate_parts import cases, made_of


@pytest.fixture(autouse=True, scope="module")
def no_encoder() -> object:
    """Families by equal prompts alone: the sentence encoder takes seconds."""
    patch = pytest.MonkeyPatch()
    patch.setattr(material, "KIN", "none")
    yield
    patch.undo()


def knowing(of: list[Case], *, tells: bool) -> list[Case]:
    """The same with first logits; where they tell, some rise with the length of the answers."""
    return [_knowing(one, tells=tells) for one in of]


def _knowing(one: Case, *, tells: bool) -> Case:
    dice = random.Random(one.name)
    mean = sum(math.log(answer.completion_tokens) for answer in one.answers) / len(one.answers)
    logits = tuple(
        dice.gauss(-15, 1) + (2 * mean if tells and at < 30 else 0) for at in range(LOGITS)
    )
    answers = tuple(msgspec.structs.replace(answer, first=logits) for answer in one.answers)
    return replace(one, answers=answers)


@pytest.fixture(scope="module")
def sharp(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made_of(knowing(cases(400, signals=False), tells=True), tmp_path_factory.mktemp("sharp"))


def test_logits_that_tell_more_make_a_second_network(sharp: Made) -> None:
    told = sharp.findings.sharper
    assert told is not None
    assert told.wins
    assert told.after.mae < told.before.mae
    assert told.after.kendall > told.before.kendall
    assert told.parameters < MOST_PARAMETERS
    bundle = Bundle.parse(sharp.bundle.pack())
    assert bundle.first is not None
    assert bundle.first.reader.features <= MOST_READ
    assert bundle.manifest.first_conformal.groups
    assert "once the prompt is read: MAE" in text(sharp.findings)
    assert b"with the first logits" in sharp.bundle.report_html


def test_logits_that_tell_nothing_make_none(tmp_path: Path) -> None:
    found = made_of(knowing(cases(400, signals=False), tells=False), tmp_path)
    assert found.findings.sharper is not None
    assert not found.findings.sharper.wins
    assert found.bundle.first is None
    assert "not told" in text(found.findings)


def test_without_logits_it_says_how_many_are_needed(tmp_path: Path) -> None:
    found = made_of(cases(60, signals=False), tmp_path)
    assert found.findings.sharper is None
    assert found.bundle.first is None
    assert f"at least {FEWEST} are needed" in found.findings.sharper_problem
    assert "no second forecast" in text(found.findings)
