"""Rows of the served model's tokens, weighed and kept where one call can add them up."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.commontokens import CommonTokens
from appliance.forecast.tokentable import TokenTable

KEPT_BYTES = 8 * 1024 * 1024
"""Of rows kept: common tokens come again and again."""

Vector = NDArray[np.float32]


class TokenRows:
    """Rows by token id, each less the centre and times its weight. One thread at a time."""

    def __init__(
        self,
        table: TokenTable,
        centre: Vector,
        common: CommonTokens,
        most: int,
        kept_bytes: int | None = None,
    ) -> None:
        """`most`: ids that are added up at a time, at most. `kept_bytes`: else KEPT_BYTES."""
        self._table, self._centre, self._common = table, centre, common
        room = max(most, (kept_bytes or KEPT_BYTES) // (4 * table.width))
        self._rows = np.empty((min(room, max(table.count, 1)), table.width), dtype=np.float32)
        self._place: dict[int, int] = {}
        """Where the row of a token is; the oldest first."""
        self._load(common.most(len(self._rows) // 2))

    def sum(self, ids: Sequence[int]) -> Vector:
        """float32 [width]; ids that the table does not know count nothing. Raises EncoderError
        when the model's file shrank.
        """
        try:
            places = list(map(self._place.__getitem__, ids))
        except KeyError:
            ids = self._table.known(ids)
            self._load(ids)
            places = [self._place[token] for token in ids]
        if not places:
            return np.zeros(self._table.width, dtype=np.float32)
        found: Vector = np.add.reduce(self._rows.take(places, axis=0), axis=0)
        return found

    def __len__(self) -> int:
        return len(self._place)

    def _load(self, ids: Sequence[int]) -> None:
        """What is not there takes the places of the oldest that are not wanted."""
        wanted = dict.fromkeys(ids)
        missing = [token for token in wanted if token not in self._place]
        if not missing:
            return
        rows = self._table.rows(missing)
        rows -= self._centre
        rows *= self._common.weights(missing)[:, None]
        places = self._room(wanted, len(missing))
        self._rows[places] = rows
        self._place.update(zip(missing, places, strict=True))

    def _room(self, wanted: Collection[int], count: int) -> list[int]:
        free = list(range(len(self._place), min(len(self._place) + count, len(self._rows))))
        oldest = [token for token in self._place if token not in wanted][: count - len(free)]
        return free + [self._place.pop(token) for token in oldest]
