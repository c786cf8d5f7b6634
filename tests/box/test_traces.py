"""A real box tells a collector of each request, by the same ids as its client and its ledger."""

from pathlib import Path

from tests.box.asking import ask, check_complete
from tests.box.ledgered import Ledgered
from tests.box.running import RunningBox
from tests.unit.trace_collector import Collector


def test_a_collector_hears_of_a_request_as_the_ledger_has_it(tmp_path: Path) -> None:
    collector = Collector()
    traces = {"endpoint": collector.url, "names": False}
    with RunningBox.start(tmp_path, traces=traces) as box:
        asked = ask(box, max_tokens=5, headers={"X-Request-Id": "asked-1"})
        check_complete(box, asked)
        assert box.stop() == 0
    spans = []
    while not collector.exports.empty():
        spans += collector.spans()
    collector.close()
    (span,) = (one for one in spans if "completions" in one["name"])
    facts = {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}
    (row,) = Ledgered(tmp_path / "state").rows(request_id="asked-1")
    assert span["traceId"] == row["trace_id"]
    assert facts["steelyard.request_id"] == "asked-1"
    assert facts["gen_ai.usage.output_tokens"] == str(row["completion_tokens"])
    assert "steelyard.key" not in facts, "names are not told"
