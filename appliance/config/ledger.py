"""The settings of the ledger (docs/ledger.md)."""

from dataclasses import dataclass

from appliance.config.setting import setting


@dataclass(frozen=True, slots=True)
class LedgerConfig:
    """What the box keeps of each request, and for how long (docs/ledger.md)."""

    segment_rows: int = setting(
        10_000,
        "Rows after which a segment of the ledger is sealed.",
        low=10,
        high=1_000_000,
    )
    segment_hours: float = setting(
        24.0,
        "Hours after which a segment is sealed, however few rows it has.",
        low=0.01,
        high=8760,
    )
    keep_days: int = setting(
        0,
        "Days that rows are kept. Older ones are dropped by whole segments; their seals stay. "
        "0: for ever.",
        low=0,
        high=36_500,
    )
    token_days: int = setting(
        0,
        "Days that token ids are kept; their digests stay in the rows. 0: as long as the rows.",
        low=0,
        high=36_500,
    )
    text_days: int = setting(
        30,
        "Days that stored texts are kept; their hashes stay in the rows. 0: as long as the rows.",
        low=0,
        high=36_500,
    )
    store_prompts: bool = setting(
        False,
        "Store the text of prompts. Token ids are kept in any case, and the model's vocabulary "
        "turns them into the text again: shorten `token_days` where that must not be.",
    )
    store_answers: bool = setting(False, "Store the text of answers.")
    redact: tuple[str, ...] = setting(
        (),
        "What is struck out of texts before they are stored: every match of one of these regular "
        "expressions. A text in which looking for them takes longer than 2 s is not stored at all.",
        high=64,
        form="regular expressions",
    )
    sign: bool = setting(
        True,
        "Sign the seals with the box's own key, `ledger-key.pem` in `server.state_dir`, made when "
        "it is missing.",
    )
