"""From cases to a forecaster: what is learned, compared, told, and when it is installed."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pytest

from appliance.calibrate import material
from appliance.calibrate.answers import Sampling, missing
from appliance.calibrate.cases import Case, TooFew, enough, worth_generating
from appliance.calibrate.catalogue import catalogue, install
from appliance.calibrate.fit import Made, make
from appliance.calibrate.incumbent import InUse, fingerprint, in_use
from appliance.calibrate.report import page
from appliance.calibrate.status import Status
from appliance.forecast.bundle import Bundle
from appliance.forecast.dataset import Answered, Prompt
from appliance.forecast.hazard import Lengths, hazards_of
from appliance.forecast.versions import Versions
from tests.unit.calibrate_parts import MODEL, ORDER, case, cases, made_of, shuffled, teller


@pytest.fixture(autouse=True, scope="module")
def no_encoder() -> object:
    """Families by equal prompts alone: the sentence encoder takes seconds."""
    patch = pytest.MonkeyPatch()
    patch.setattr(material, "KIN", "none")
    yield
    patch.undo()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made_of(cases(), tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def useless(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made_of(shuffled(cases()), tmp_path_factory.mktemp("useless"))


def test_what_the_prompts_tell_is_learned_and_wins(good: Made) -> None:
    found = good.findings
    assert found.wins, found.why
    assert found.comparison.ours.mae < 0.5 * found.comparison.methods["global median"].mae
    assert found.duel is None


def test_where_there_is_nothing_to_learn_nothing_wins(useless: Made) -> None:
    assert not useless.findings.wins
    assert "no better" in useless.findings.why or "is better" in useless.findings.why


def test_the_bundle_is_read_back_whole(good: Made) -> None:
    bundle = Bundle.parse(good.bundle.pack())
    bundle.require_model(MODEL.sha256)
    assert bundle.manifest.scores["skill"] == good.bundle.manifest.scores["skill"]
    assert bundle.manifest.training["prompts"] == 160
    assert bundle.report_html
    assert bundle.refine is not None
    assert bundle.int8 is not None


def test_the_same_cases_and_seed_give_the_same_forecaster(good: Made, tmp_path: Path) -> None:
    again = made_of(cases(), tmp_path)
    assert again.bundle.fp32 == good.bundle.fp32
    assert again.bundle.int8 == good.bundle.int8


def test_a_longer_wish_is_forecast_longer(good: Made) -> None:
    bundle = good.bundle
    questions = [case(1, words).question for words in (10, 40, 160)]
    x = bundle.pipeline.matrix(questions, np.zeros((3, 0), np.float32), bundle.neighbours)
    medians = [Lengths(row).quantile(0.5) for row in hazards_of(bundle.network.forward(x)[:, :24])]
    assert medians == sorted(medians)
    assert medians[2] > 4 * medians[0]


def test_prompts_for_evaluation_are_tested_on_and_never_learned_from(tmp_path: Path) -> None:
    kept_out = [replace(one, use="evaluation") for one in cases(60)[:20]]
    of = material.material(
        [*kept_out, *cases(60)[20:]], MODEL.path, "none", seed=0, progress=lambda share: None
    )
    assert set(of.parts[:20]) == {"test"}
    assert {fingerprint(of.cases[row]) for row in of.of("train")}.isdisjoint(
        fingerprint(one) for one in kept_out
    )


def test_answers_without_signals_teach_no_refinement_and_it_is_said(tmp_path: Path) -> None:
    found = made_of(cases(80, signals=False), tmp_path)
    assert found.bundle.refine is None
    assert "have signals" in found.findings.refinement_problem
    assert "in flight: 0 of" in found.table


def test_progress_goes_through_the_phases(tmp_path: Path) -> None:
    told: list[Status] = []
    make(cases(80, signals=False), MODEL, None, None, ORDER, teller(tmp_path, told))
    phases = list(dict.fromkeys(status.phase for status in told))
    assert phases == ["prepare", "train", "compare"]


def test_ten_samples_are_refused_with_a_number_and_a_remedy() -> None:
    with pytest.raises(TooFew, match=r"20 answers to 10 prompts are too few: at least 30 .* Wait"):
        enough(cases(10), "Wait.")
    of: list[Case] = [replace(one, use="evaluation") for one in cases(60)]
    with pytest.raises(TooFew, match="0 answers to 0 prompts"):
        enough(of, "Wait.")


def prompts_of(count: int, use: Literal["train", "evaluation"] = "train") -> list[Prompt]:
    return [Prompt(id=f"{use}-{at}", messages=(), use=use) for at in range(count)]


def answer_of(prompt: Prompt, sample: int, temperature: float = 0.7) -> Answered:
    return Answered(
        id=prompt.id, sample=sample, temperature=temperature, top_p=0.95, max_tokens=8, seed=0,
        finish_reason="stop", prompt_tokens=1, completion_tokens=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("prompts", "samples", "told"),
    [
        (29, 64, "1856 answers to 29 prompts"),
        (57, 1, "57 answers to 57 prompts"),
        (58, 1, ""),
        (30, 2, ""),
    ],
)
def test_too_little_is_said_before_any_of_it_is_generated(
    prompts: int, samples: int, told: str
) -> None:
    drawn = Sampling(samples=samples, temperature=0.7, top_p=0.95, max_tokens=8)
    given = [*prompts_of(prompts), *prompts_of(90, "evaluation")]
    for known in ([], [answer_of(given[0], 0), answer_of(given[-1], 0)]):
        wanted = missing(given, known, drawn)
        if not told:
            worth_generating(given, known, wanted, drawn)
            continue
        with pytest.raises(TooFew, match=rf"{told}, too few.*Nothing was generated"):
            worth_generating(given, known, wanted, drawn)


def test_answers_drawn_otherwise_are_cases_of_their_own() -> None:
    given = prompts_of(20)
    drawn = Sampling(samples=2, temperature=0.7, top_p=0.95, max_tokens=8)
    known = [answer_of(prompt, 0, temperature=0.0) for prompt in given]
    worth_generating(given, known, missing(given, known, drawn), drawn)


# -- against the version in use ------------------------------------------------------------------


def test_a_new_one_must_beat_the_one_in_use(good: Made, useless: Made, tmp_path: Path) -> None:
    worse = made_of(cases(), tmp_path, InUse("v0001", useless.bundle))
    assert worse.findings.duel is not None
    assert worse.findings.duel.won
    assert worse.findings.wins
    same = made_of(cases(), tmp_path, InUse("v0002", good.bundle))
    assert not same.findings.wins
    assert "the version in use is as good" in same.findings.why


def test_prompts_that_the_one_in_use_has_learned_from_do_not_count(
    good: Made, tmp_path: Path
) -> None:
    seen = set(good.bundle.manifest.training["seen"])
    test = [one for one in cases() if fingerprint(one) not in seen]
    assert 10 < len(test) < 40
    fresh = [case(1000 + number, words) for number, words in enumerate([20, 80, 160] * 80)]
    found = made_of([*cases(), *fresh], tmp_path, InUse("v0001", good.bundle)).findings.duel
    assert found is not None
    assert not found.seen
    assert found.prompts < 60


def test_one_that_cannot_be_read_is_as_good_as_none(tmp_path: Path) -> None:
    home = tmp_path / "forecasters" / MODEL.sha256[:12]
    home.mkdir(parents=True)
    (home / "v0001.forecaster").write_bytes(b"no zip")
    versions = Versions(tmp_path, MODEL.sha256)
    assert in_use(versions) is None
    (listed,) = catalogue(versions)
    assert listed.problem


def test_installed_versions_are_listed_newest_first_with_their_scores(
    good: Made, tmp_path: Path
) -> None:
    versions = Versions(tmp_path, MODEL.sha256)
    install(versions, good.bundle)
    install(versions, good.bundle)
    loaded = versions.load()
    assert loaded is not None
    assert loaded[1].manifest.name == "v0002"
    first, second = catalogue(versions)
    assert (first.version, first.in_use) == ("v0002", True)
    assert (second.version, second.in_use) == ("v0001", False)
    assert first.skill == good.bundle.manifest.scores["skill"]
    assert first.has_report
    versions.use("v0001")
    assert [one.in_use for one in catalogue(versions)] == [False, True]


# -- the report ----------------------------------------------------------------------------------


class Page(HTMLParser):
    """Which tags there are, and that each is closed where it should be."""

    VOID = frozenset({"meta", "br", "path", "use", "rect", "circle", "line", "image", "!doctype"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [
            value or "" for name, value in attrs if name in ("src", "href", "xlink:href")
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_report_is_one_page_that_fetches_and_runs_nothing(good: Made) -> None:
    found = Page()
    text = good.bundle.report_html.decode()
    found.feed(text)
    assert found.open == []
    assert not found.tags & {"script", "iframe", "img", "object", "embed", "link"}
    assert all(link.startswith("#") for link in found.links)
    assert "url(http" not in text
    assert text.count("<svg") == 5
    assert "prefers-color-scheme: dark" in text


def test_report_says_what_the_table_says(good: Made) -> None:
    text = good.bundle.report_html.decode()
    mae = f"{good.findings.comparison.ours.mae:.1f}"
    assert mae in good.table
    assert re.search(rf'<tr class="ours"><td>forecaster</td><td>{mae}</td>', text)
    told = json.loads(good.bundle.report_json)
    assert round(told["comparison"]["methods"]["forecaster"]["mae"], 1) == float(mae)
    assert set(told) == set(good.findings.__struct_fields__)


def test_report_claims_of_its_bounds_what_calibration_gives_and_no_more(good: Made) -> None:
    text = good.bundle.report_html.decode()
    answers = good.findings.answers["calibration"]
    assert "As calibrated: P(L &lt;= bound) &gt;= 90 % for an answer of this kind" in text
    assert f"exchangeable with the {answers} that it was calibrated with" in text
    assert "not for any one prompt" in text


def test_names_from_outside_stay_text_in_the_report(good: Made) -> None:
    odd = msgspec.structs.replace(good.findings, model="<b>x</b>", embedder="<script>")
    html, _ = page(odd)
    assert b"<b>" not in html
    assert b"<script>" not in html


def test_table_fits_a_terminal_and_names_every_baseline(good: Made) -> None:
    lines = good.table.splitlines()
    assert max(map(len, lines)) < 80
    for name in good.findings.comparison.methods:
        assert any(line.startswith(name[:25]) for line in lines)
