"""Log-probabilities with the text that shows their tokens, so that the tokens joined are the text.

The engine sends tokens as they are sampled, but text only once it is settled: half a character or
the beginning of a stop string waits. What never shows (EOS, the tokens of a stop string) has no
log-probability in the answer either; usage counts it as hidden.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from appliance.api.answers import LegacyLogprobs, Logprob, TopLogprob, bounded
from appliance.engine.reports import TokenLogprob
from appliance.prepare.client import Preparer

_REPLACEMENT = "\ufffd".encode()


class Pieces:
    """The bytes of every token, asked of the prepare process when they are first needed."""

    def __init__(self, preparer: Preparer) -> None:
        self._preparer = preparer
        self._known: tuple[bytes, ...] = ()

    async def load(self) -> None:
        """From here on `logprob` may be called. Raises Unavailable."""
        if not self._known:
            self._known = await self._preparer.vocabulary()

    def text(self, token_id: int) -> str:
        """One token as text; the same condition. Of a model that is not served now: empty."""
        return _text(self._known[token_id]) if 0 <= token_id < len(self._known) else ""

    def logprob(self, entry: TokenLogprob) -> Logprob:
        """The entry with its tokens' texts."""
        piece = self._known[entry.token_id]
        top = [self._top(token, logprob) for token, logprob in entry.top]
        return Logprob(entry.token_id, _text(piece), bounded(entry.logprob), list(piece), top)

    def _top(self, token: int, logprob: float) -> TopLogprob:
        piece = self._known[token]
        return TopLogprob(token, _text(piece), bounded(logprob), list(piece))


def _text(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")


class Aligner:
    """One choice's log-probabilities, each held until the text shows its token."""

    def __init__(self) -> None:
        self._rest = b""
        self._pending: deque[Logprob] = deque()

    def feed(self, text: str, entries: Iterable[Logprob]) -> list[Logprob]:
        """Those that the text shows by now."""
        self._rest += text.encode()
        self._pending.extend(entries)
        shown: list[Logprob] = []
        while self._pending and self._rest:
            piece = bytes(self._pending[0].bytes)
            used = self._matched(piece)
            if used < 0:
                break
            entry = self._pending.popleft()
            if used:
                self._rest = self._rest[used:]
                shown.append(entry)
        return shown

    def _matched(self, piece: bytes) -> int:
        """Bytes of the text that are this token: 0 when it is hidden, -1 when it is too early to
        tell."""
        if self._rest.startswith(piece):
            return len(piece)
        if piece.startswith(self._rest):
            return -1
        return len(_REPLACEMENT) if self._rest.startswith(_REPLACEMENT) else 0

    def finish(self) -> list[Logprob]:
        """A token that the text's end shows in part."""
        return [self._pending.popleft()] if self._pending and self._rest else []


def legacy(entries: Sequence[Logprob], offset: int) -> LegacyLogprobs:
    """In the shape of /v1/completions. `offset`: characters before the first entry."""
    offsets = []
    for entry in entries:
        offsets.append(offset)
        offset += len(entry.token)
    return LegacyLogprobs(
        tokens=[entry.token for entry in entries],
        token_logprobs=[entry.logprob for entry in entries],
        top_logprobs=[{top.token: top.logprob for top in entry.top_logprobs} for entry in entries],
        text_offset=offsets,
    )
