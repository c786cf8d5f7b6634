"""Keys, limits and usage as apps meet them, through OpenAI's own client, on one running box."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from appliance.accounts.keys import BOX, FILE_NAME, KeyStore
from appliance.accounts.limits import Limits
from tests.box.running import RunningBox
from tests.box.wire import HELLO

LONG = 1500
"""Tokens of an answer that still runs while a test looks at something else."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("limited")


@pytest.fixture(scope="module")
def keys(home: Path) -> KeyStore:
    return KeyStore(home / "state" / FILE_NAME)


@pytest.fixture(scope="module")
def limited(home: Path, keys: KeyStore) -> Iterator[RunningBox]:
    keys.create("first", ["infer"])
    with RunningBox.start(home) as running:
        yield running


class App:
    """An app with a key of its own."""

    def __init__(
        self, box: RunningBox, keys: KeyStore, name: str, limits: Limits, tenant: str = "default"
    ) -> None:
        self.box, self.keys, self.name = box, keys, name
        self.use(keys.create(name, ["infer"], limits=limits, tenant=tenant))

    def use(self, secret: str, **options: Any) -> None:
        self.secret = secret
        self.client = self.box.client(api_key=secret, **options)

    def ask(self, tokens: int = 4, **more: Any) -> Any:
        return self.client.chat.completions.create(
            model="default", messages=HELLO, max_tokens=tokens, **more
        )

    def refused(self, kind: type[openai.APIStatusError] = openai.RateLimitError) -> Any:
        with pytest.raises(kind) as caught:
            self.ask()
        return caught.value

    def own(self) -> Any:
        headers = {"Authorization": f"Bearer {self.secret}"}
        return self.box.http.get("/v1/usage?days=2", headers=headers).json()


def test_too_many_requests_are_429_and_say_when_to_come_again(
    limited: RunningBox, keys: KeyStore
) -> None:
    app = App(limited, keys, "hasty", Limits(requests_per_min=2))
    raw = app.client.chat.completions.with_raw_response.create(
        model="default", messages=HELLO, max_tokens=1
    )
    assert raw.headers["x-ratelimit-limit-requests"] == "2"
    assert raw.headers["x-ratelimit-remaining-requests"] == "1"
    assert raw.headers["x-ratelimit-reset-requests"].endswith("s")
    app.ask()
    error = app.refused()
    assert (error.code, error.type) == ("rate_limit_exceeded", "rate_limit_error")
    assert 1 <= int(error.response.headers["retry-after"]) <= 60
    assert error.response.headers["x-ratelimit-remaining-requests"] == "0"
    assert "hasty" in error.message


def test_used_up_day_is_told_as_openai_tells_it_and_the_sdk_does_not_try_again(
    limited: RunningBox, keys: KeyStore
) -> None:
    app = App(limited, keys, "spent", Limits(tokens_per_day=5))
    app.use(app.secret, max_retries=3)
    error = app.refused()
    assert (error.code, error.type) == ("insufficient_quota", "insufficient_quota")
    assert error.response.headers["x-should-retry"] == "false"
    limited.wait_until(lambda: app.own()["today"]["refused"] == 1, what="the refusal is counted")
    assert app.own()["today"]["total_tokens"] == 0

    def logged(what: str) -> int:
        return len([row for row in limited.log.splitlines() if "key=spent" in row and what in row])

    app.refused()
    limited.wait_until(lambda: logged("status=429") >= 2, what="the log is written")
    assert logged("status=429") == 2, "each call was sent once"


def test_what_is_counted_is_what_usage_says(limited: RunningBox, keys: KeyStore) -> None:
    app = App(limited, keys, "counted", Limits(tokens_per_day=10_000, tokens_per_min=10_000))
    answers = [app.ask(6), app.ask(9, n=2)]
    chunks = list(app.ask(12, stream=True, stream_options={"include_usage": True}))
    sent = sum(answer.usage.total_tokens for answer in (*answers, chunks[-1]))

    def left() -> set[int]:
        remaining = app.own()["remaining"]["key"]
        return {remaining["tokens_per_day"], remaining["tokens_per_min"]}

    limited.wait_until(lambda: left() == {10_000 - sent}, what="all three are counted")
    limited.wait_until(lambda: app.own()["today"]["requests"] == 3, what="the ledger has all three")
    own = app.own()
    assert own["today"]["total_tokens"] == own["month"]["total_tokens"] == sent
    assert own["days"][1] == own["today"]


def test_rotated_and_revoked_keys_count_at_once(limited: RunningBox, keys: KeyStore) -> None:
    app = App(limited, keys, "turning", Limits())
    old = app.secret
    _, new = keys.rotate("turning", 600, by=BOX)
    app.ask(1)
    app.use(new)
    app.ask(1)
    _, newest = keys.rotate("turning", by=BOX)
    app.refused(openai.AuthenticationError)
    app.use(old)
    app.refused(openai.AuthenticationError)
    app.use(newest)
    app.ask(1)
    keys.revoke("turning", by=BOX)
    app.refused(openai.AuthenticationError)


def test_keys_of_a_tenant_share_what_it_may_use(limited: RunningBox, keys: KeyStore) -> None:
    keys.tenants.set("sales", Limits(requests_per_min=2), BOX)
    apps = [App(limited, keys, f"sales{number}", Limits(), "sales") for number in range(3)]
    apps[0].ask(1)
    apps[1].ask(1)
    assert "the tenant 'sales'" in apps[2].refused().message
    keys.tenants.set("sales", Limits(), BOX)
    apps[2].ask(1)


def test_limit_that_changes_while_a_request_runs_leaves_it_alone(
    limited: RunningBox, keys: KeyStore
) -> None:
    app = App(limited, keys, "running", Limits())
    stream = app.ask(LONG, stream=True, extra_body={"ignore_eos": True})
    chunks = iter(stream)
    next(chunks)
    keys.set_limits("running", Limits(tokens_per_day=10, concurrent=1), by=BOX)
    assert app.refused().code == "insufficient_quota"
    keys.set_limits("running", Limits(concurrent=1), by=BOX)
    error = app.refused()
    assert (error.code, error.response.headers["retry-after"]) == ("rate_limit_exceeded", "1")
    keys.set_limits("running", Limits(concurrent=2), by=BOX)
    ends = list(app.ask(30, stream=True, extra_body={"ignore_eos": True}))
    assert ends[-1].choices[0].finish_reason == "length"
    for _ in range(20):
        assert next(chunks).choices[0].finish_reason is None, "it goes on"
    keys.set_limits("running", Limits(concurrent=1), by=BOX)
    stream.close()
    limited.wait_until(
        lambda: app.own()["remaining"]["key"]["concurrent"] == 1, what="the place is free"
    )
    app.ask(1)


def test_client_that_leaves_gives_its_place_back(limited: RunningBox, keys: KeyStore) -> None:
    app = App(limited, keys, "leaving", Limits(concurrent=1))
    stream = app.ask(LONG, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    app.refused()
    stream.close()
    limited.wait_until(
        lambda: app.own()["remaining"]["key"]["concurrent"] == 1, what="the place is free"
    )
    app.ask(1)


def test_tier_above_its_limit_is_forbidden(limited: RunningBox, keys: KeyStore) -> None:
    app = App(limited, keys, "flexible", Limits(priority="flex"))
    app.ask(1)
    with pytest.raises(openai.PermissionDeniedError) as caught:
        app.ask(1, service_tier="priority")
    assert caught.value.code == "tier_not_allowed"


def test_many_at_once_are_let_in_up_to_the_limit_and_no_further(
    limited: RunningBox, keys: KeyStore
) -> None:
    app = App(limited, keys, "many", Limits(requests_per_min=5))
    outcomes: list[str] = []

    def ask() -> None:
        try:
            app.ask(2)
            outcomes.append("answered")
        except openai.RateLimitError:
            outcomes.append("refused")

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["answered"] * 5 + ["refused"] * 7


def test_day_goes_on_after_a_restart(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "state" / FILE_NAME)
    with RunningBox.start(tmp_path) as box:
        app = App(box, keys, "patient", Limits(tokens_per_day=10_000))
        used = app.ask(8).usage.total_tokens
        assert box.stop() == 0
    with RunningBox.start(tmp_path) as again:
        app.box = again
        app.use(app.secret)
        assert app.own()["remaining"]["key"]["tokens_per_day"] == 10_000 - used
        keys.set_limits("patient", Limits(tokens_per_day=used + 1), by=BOX)
        assert app.refused().code == "insufficient_quota"
