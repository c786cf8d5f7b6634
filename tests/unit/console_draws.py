"""Random data for consoles: whatever a box might send, and any terminal."""

from typing import Any

from hypothesis import strategies as st

from appliance.frames import Alarm, KeyRow, Live, Pool, Rows
from tests.unit.console_views import STATE, past
from tui.view import View
from tui.words import LANGS, Words

anything = st.text(st.characters(blacklist_categories=()), max_size=30)
some = st.none() | st.integers(0, 10**12) | st.floats(0, 1e12)
count = st.integers(0, 10**7)
maybe_count = st.none() | st.integers(0, 10**9)

pools = st.builds(
    Pool,
    cap_tok=maybe_count,
    used_tok=maybe_count,
    reserved_tok=maybe_count,
    borrowed_tok=maybe_count,
    peak_tok=maybe_count,
)
alarms = st.builds(
    Alarm,
    id=anything | st.just("overload:many"),
    code=st.sampled_from(["overload", "engine_down", "gpu_lost", "export_overdue", "new_one"]),
    screen=st.integers(1, 9),
    prio=st.integers(1, 3),
    text=anything,
    args=st.lists(anything, max_size=5).map(tuple),
    since_ms=count,
    seen=st.booleans(),
)
_NUMBERS = {
    name: some
    for name, kind in Live.__annotations__.items()
    if "float | None" in str(kind) or str(kind) == "int | None"
}
lives = st.builds(
    Live,
    seq=count,
    boot_id=anything,
    host=anything,
    version=anything,
    state=anything | st.sampled_from(["SERVING", "DEGRADED", "OVERLOAD", "DOWN"]),
    degraded=anything | st.just("gpu,board"),
    ready=st.booleans(),
    at_ms=count,
    running=count,
    waiting=count,
    engine_state=anything | st.just("ready"),
    board_state=anything | st.just("none"),
    ledger_state=anything,
    currency=anything,
    alarms_1=st.integers(0, 300),
    pool_a=pools,
    pool_b=pools,
    worst=st.none() | alarms,
    **_NUMBERS,
)
key_rows = st.builds(
    KeyRow,
    key=anything,
    tenant=anything,
    run=count,
    wait=count,
    tok_min=count,
    limit_min=maybe_count,
    share_pct=st.floats(0, 100),
)
rows = st.builds(
    Rows,
    total=count,
    keys=st.lists(key_rows, max_size=20, unique_by=lambda row: row.key).map(tuple),
)


@st.composite
def views(draw: Any, least: int = 40, most: int = 200, heights: tuple[int, int] = (10, 60)) -> View:
    """Any view on a terminal of `least` to `most` cells."""
    return View(
        width=draw(st.integers(least, most)),
        height=draw(st.integers(*heights)),
        live=draw(st.none() | lives),
        rows=draw(st.none() | rows),
        state=draw(st.sampled_from([None, STATE])),
        age_s=draw(st.none() | st.floats(0, 1e6)),
        link=draw(st.sampled_from(["connecting", "ok", "late", "lost", "frozen"])),
        lost_s=draw(st.none() | st.floats(0, 1e6)),
        retry_s=draw(st.none() | st.floats(0, 10)),
        problem=draw(st.just("") | anything.map(lambda text: "It is so: " + ascii(text))),
        note=draw(st.just("") | st.just("Done.")),
        words=Words(draw(st.sampled_from(LANGS))),
        ascii=draw(st.booleans()),
        operator=draw(anything),
        read_only=draw(st.booleans()),
        past=draw(st.sampled_from([{}, past(60)])),
        history=draw(st.sampled_from([{}, past(900)])),
        url=draw(anything),
    )
