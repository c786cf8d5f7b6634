"""The documentation works with the network unplugged, and tells the truth."""

import json
import re

from tests.box.running import RunningBox

ADDRESS = re.compile(r"""(?:https?:)?//[a-z0-9]""", re.IGNORECASE)
FETCHES = re.compile(r"<(?:link|img|iframe|object|embed|base)\b|\bsrc=|@import|url\(|import\(")


def test_the_page_names_no_other_host_and_loads_nothing_else(box: RunningBox) -> None:
    answer = box.http.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert not ADDRESS.findall(answer.text)
    assert not FETCHES.findall(answer.text)
    fetched = set(re.findall(r"fetch\('([^']*)'", answer.text))
    assert fetched == {"/openapi.json"}
    assert box.http.get("/openapi.json").status_code == 200


def test_the_browser_is_told_to_fetch_from_this_box_alone(box: RunningBox) -> None:
    policy = box.http.get("/docs").headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    for name in ("script-src", "style-src"):
        assert re.fullmatch(r"'sha256-[A-Za-z0-9+/=]{44}'", rules[name])


def test_the_document_describes_every_route_and_names_no_host(box: RunningBox) -> None:
    text = box.http.get("/openapi.json").text
    assert not ADDRESS.findall(text)
    document = json.loads(text)
    assert document["info"]["title"] == "Steelyard"
    assert set(document["paths"]) >= {
        "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/rerank",
        "/v1/models", "/v1/models/{id}", "/completion", "/tokenize", "/detokenize",
        "/apply-template", "/props", "/slots",
        "/metrics", "/health", "/readyz", "/admin/status", "/admin/requests",
    }  # fmt: skip
    for path, verbs in document["paths"].items():
        for verb, about in verbs.items():
            assert about["summary"], (path, verb)
            assert about["responses"], (path, verb)


def test_what_the_document_refers_to_is_in_it(box: RunningBox) -> None:
    text = box.http.get("/openapi.json").text
    known = set(json.loads(text)["components"]["schemas"])
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', text)) <= known


def test_the_documentation_is_one_page_and_read_only(box: RunningBox) -> None:
    assert box.http.post("/docs").status_code == 405
    assert box.http.get("/redoc").status_code == 404
