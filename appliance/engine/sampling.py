"""From one row of logits to one token, per choice.

Two ways: greedy without penalties is an argmax in NumPy; everything else goes through a sampler
chain of llama.cpp's own, in llama-server's order: penalties, top-k, typical, top-p, min-p,
temperature, distribution.
"""

import ctypes
import math
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
from llguidance import LLTokenizer
from msgspec.structs import replace
from numpy.typing import NDArray

from appliance.engine.commands import Sampling, Submit
from appliance.engine.constrain import Constraint, ConstraintError
from appliance.engine.llama import llama_cpp
from appliance.engine.reports import TokenLogprob

Logits = NDArray[np.float32]
_MAX_SEED = 2**32 - 1
"""llama.cpp reads this seed as "pick one", so it is not used as a value."""
RETRY_HEAT, RETRY_STEP = 0.7, 0.1
"""The end of an answer is tried again at 0.8 at least, the next time at 0.9, and so on."""
RETRY_SEEDS = 1_000_003
"""From one try's seed to the next: choices of one request are 1 apart."""
_COLD = 1e-5
"""Below this temperature the likeliest token is taken: dividing by less overflows float32."""


class SamplingError(ValueError):
    """No token can be chosen; the request ends with this message."""


class Sampler:
    """The state of one choice: random numbers, penalties, grammar."""

    __slots__ = (
        "_barred", "_barred_ids", "_bias", "_bias_ids", "_biased", "_candidates", "_chain",
        "_choice", "_constraint", "_likeliest", "_logprobs", "_n_vocab", "_request", "constrained",
    )  # fmt: skip

    def __init__(
        self,
        request: Submit,
        choice: int,
        n_vocab: int,
        eogs: frozenset[int],
        constraint: Constraint | None = None,
    ) -> None:
        sampling = request.sampling
        self._request, self._choice, self._n_vocab = request, choice, n_vocab
        self._logprobs = sampling.logprobs
        self._constraint = constraint
        self._barred = frozenset[int]()
        self._barred_ids = np.empty(0, dtype=np.int64)
        self.constrained = constraint is not None
        """A grammar came with the request."""
        self._bias_ids, self._bias = _biases(sampling, eogs)
        self._biased = frozenset(self._bias_ids.tolist())
        window = _penalty_window(request)
        self._chain: Any = None
        self._candidates: _Candidates | None = None
        if sampling.temperature >= _COLD or window:
            self._chain = _chain(sampling, choice, n_vocab, window)
        self._likeliest = (
            self._chain is None
            and constraint is None
            and self._logprobs < 0
            and not (self._bias > 0).any()
        )
        """The likeliest token of a row is the pick, unless a bias lowers it."""
        if window:
            for token in request.prompt[-window:]:
                llama_cpp.llama_sampler_accept(self._chain, token)

    def pick(self, logits: Logits, best: int = -1) -> tuple[int, TokenLogprob | None]:
        """The next token of this row, and its log-probability where asked for. `best`: the first
        place of the row's highest logit, where that is known to be a usable number. Raises
        SamplingError when the model or the grammar leaves no token."""
        if best >= 0 and self._likeliest and best not in self._biased and best not in self._barred:
            return best, None
        token = self._choose(logits, best)
        return token, self.accept(logits, token)

    def choose(self, logits: Logits) -> int:
        """The first half of `pick`: what would come next."""
        return self._choose(logits)

    def accept(self, logits: Logits, token: int) -> TokenLogprob | None:
        """The second half: the answer goes on with this token."""
        if not self._accept(token):
            raise SamplingError("the grammar refused a token it had allowed")
        return self.told(logits, token)

    def told(self, logits: Logits, token: int) -> TokenLogprob | None:
        """The token's log-probability in this row, where asked for."""
        if self._logprobs < 0:
            return None
        return log_probabilities(logits, token, self._logprobs)

    def bar(self, tokens: frozenset[int]) -> None:
        """From now on these cannot be picked, and only these, the request's own biases aside."""
        self._barred = tokens
        self._barred_ids = np.fromiter(tokens, dtype=np.int64, count=len(tokens))

    def again(self, tokens: Sequence[int], turn: int) -> None:
        """Goes on after `tokens`, prompt included, with other random numbers than before; the same
        `turn` gives the same ones. Draws at `RETRY_HEAT` at least, or it would say the same, and
        more widely turn by turn."""
        self.close()
        sampling = self._request.sampling
        window = _penalty_window(self._request)
        seed = (sampling.seed or 0) + RETRY_SEEDS * turn
        heat = max(sampling.temperature, RETRY_HEAT + RETRY_STEP * turn)
        drawn = replace(sampling, temperature=heat, seed=seed)
        self._chain = _chain(drawn, self._choice, self._n_vocab, window)
        self._likeliest = False
        for token in tokens[-window:] if window else ():
            llama_cpp.llama_sampler_accept(self._chain, token)

    def follow(self, logits: Logits, forced: int) -> tuple[TokenLogprob | None, bool]:
        """Picks as `pick` would, but goes on with `forced`. Tells what was picked, and whether the
        grammar refused the forced token: from there on it constrains no more. Raises
        SamplingError when the model's own logits are unusable."""
        _check_usable(logits[logits.argmax()])
        picked = self._try_to_choose(logits)
        followed = self._try_to_accept(forced)
        if not followed:
            self._constraint = None
        if self._logprobs < 0:
            return None, not followed
        found = log_probabilities(logits, forced, self._logprobs)
        return _with_pick(found, logits, picked), not followed

    def _try_to_choose(self, logits: Logits) -> int:
        try:
            return self._choose(logits)
        except (SamplingError, ConstraintError):
            return -1

    def _try_to_accept(self, token: int) -> bool:
        try:
            return self._accept(token)
        except ConstraintError:
            return False

    def _choose(self, logits: Logits, best: int = -1) -> int:
        """Changes the random numbers' state, and nothing else of the sampler's; the row is the
        model's own, and stays so."""
        if self._biased or self._barred or self._constraint is not None:
            logits, best = self._shaped(logits), -1
        if best < 0:
            best = int(logits.argmax())  # NaN counts as the highest
            _check_usable(logits[best])
        return best if self._chain is None else self._draw(logits)

    def _shaped(self, logits: Logits) -> Logits:
        """A copy as the request's biases and its grammar make it."""
        shaped = logits.copy()
        shaped[self._bias_ids] += self._bias
        shaped[self._barred_ids] = -np.inf
        if self._constraint is not None:
            self._constraint.mask(shaped)
        return shaped

    def _accept(self, token: int) -> bool:
        """The answer goes on with this token; false when the grammar forbids it."""
        if self._chain is not None:
            llama_cpp.llama_sampler_accept(self._chain, token)
        return self._constraint is None or self._constraint.accept(token)

    @property
    def constraint(self) -> Constraint | None:
        """The grammar's state; only `accept` and `pick` change it."""
        return self._constraint

    @property
    def complete(self) -> bool:
        """The grammar is satisfied and admits nothing more."""
        return self._constraint is not None and self._constraint.is_done

    def _draw(self, logits: Logits) -> int:
        if self._candidates is None:
            self._candidates = _Candidates(logits.shape[0])
        return self._candidates.draw(self._chain, logits)

    def close(self) -> None:
        """Frees llama.cpp's chain."""
        if self._chain is not None:
            llama_cpp.llama_sampler_free(self._chain)
            self._chain = None


class _Candidates:
    """llama.cpp's array of (id, logit, p), filled from a row by NumPy."""

    _DTYPE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])

    def __init__(self, n_vocab: int) -> None:
        self._ids = np.arange(n_vocab, dtype=np.int32)
        self._data = np.zeros(n_vocab, dtype=self._DTYPE)
        pointer = ctypes.POINTER(llama_cpp.llama_token_data)
        self._raw = llama_cpp.llama_token_data_array(
            data=ctypes.cast(self._data.ctypes.data, pointer),
            size=n_vocab,
            selected=-1,
            sorted=False,
        )
        self._reference = ctypes.byref(self._raw)

    def draw(self, chain: Any, logits: Logits) -> int:
        self._data["id"] = self._ids
        self._data["logit"] = logits
        self._raw.size = logits.shape[0]
        self._raw.selected = -1
        self._raw.sorted = False
        llama_cpp.llama_sampler_apply(chain, self._reference)
        if self._raw.selected < 0:
            raise SamplingError("the sampler chose no token")
        return int(self._data["id"][self._raw.selected])


def make_constraint(tokenizer: LLTokenizer, grammar: str | None) -> Constraint | None:
    """Raises ConstraintError when the grammar does not compile within its limits."""
    return None if grammar is None else Constraint(tokenizer, grammar)


def log_probabilities(logits: Logits, token: int, top: int) -> TokenLogprob:
    """Natural-log probabilities of `token` and of the `top` likeliest under softmax(logits)."""
    highest = float(logits.max())
    total = highest + float(np.log(np.exp(logits - highest, dtype=np.float64).sum()))
    best: tuple[tuple[int, float], ...] = ()
    if top > 0:
        ids = np.argpartition(logits, -top)[-top:]
        ids = ids[np.argsort(-logits[ids], kind="stable")]
        best = tuple((int(i), float(logits[i]) - total) for i in ids)
    return TokenLogprob(token, float(logits[token]) - total, best)


def _check_usable(best: np.float32) -> None:
    """The highest logit must be a number. Raises SamplingError."""
    if not math.isfinite(best):
        raise SamplingError(
            "the model gave no usable probability for any allowed token (NaN or all "
            "forbidden): check logit_bias and grammar, and the model file with "
            "`steelyard selftest`"
        )


def _with_pick(found: TokenLogprob, logits: Logits, picked: int) -> TokenLogprob:
    """`found` with the pick, which is then among the alternatives."""
    top = found.top
    if picked >= 0 and picked not in dict(top):
        top = (*top, (picked, log_probabilities(logits, picked, 0).logprob))
    return replace(found, top=top, picked=picked)


def _biases(sampling: Sampling, eogs: frozenset[int]) -> tuple[NDArray[np.int64], Logits]:
    biases = dict(sampling.logit_bias)
    if sampling.ignore_eos:
        biases.update(dict.fromkeys(eogs, -np.inf))
    ids = np.fromiter(biases.keys(), dtype=np.int64, count=len(biases))
    return ids, np.fromiter(biases.values(), dtype=np.float32, count=len(biases))


def _penalty_window(request: Submit) -> int:
    """How many of the latest tokens the penalties look at; 0 when nothing is penalised."""
    sampling = request.sampling
    neutral = (
        sampling.repeat_penalty == 1.0
        and sampling.presence_penalty == 0.0
        and sampling.frequency_penalty == 0.0
    )
    if neutral:
        return 0
    # llama.cpp allocates the whole window at once and knows no "all".
    longest = len(request.prompt) + request.max_tokens
    last = sampling.repeat_last_n
    return longest if last < 0 else min(last, longest)


def _chain(sampling: Sampling, choice: int, n_vocab: int, window: int) -> Any:
    params = llama_cpp.llama_sampler_chain_default_params()
    params.no_perf = True
    chain = llama_cpp.llama_sampler_chain_init(params)
    for part in [*_penalties(sampling, n_vocab, window), *_choosing(sampling, choice)]:
        llama_cpp.llama_sampler_chain_add(chain, part)
    return chain


def _penalties(sampling: Sampling, n_vocab: int, window: int) -> list[Any]:
    if not window:
        return []
    return [
        llama_cpp.llama_sampler_init_penalties(
            n_vocab,
            window,
            sampling.repeat_penalty,
            sampling.frequency_penalty,
            sampling.presence_penalty,
        )
    ]


def _choosing(sampling: Sampling, choice: int) -> list[Any]:
    if sampling.temperature < _COLD:
        return [llama_cpp.llama_sampler_init_greedy()]
    return [
        llama_cpp.llama_sampler_init_top_k(sampling.top_k),
        llama_cpp.llama_sampler_init_typical(sampling.typical_p, 1),
        llama_cpp.llama_sampler_init_top_p(sampling.top_p, 1),
        llama_cpp.llama_sampler_init_min_p(sampling.min_p, 1),
        llama_cpp.llama_sampler_init_temp(sampling.temperature),
        llama_cpp.llama_sampler_init_dist(_seed(sampling.seed, choice)),
    ]


def _seed(seed: int | None, choice: int) -> int:
    if seed is None:
        return secrets.randbelow(_MAX_SEED)
    return (seed + choice) % _MAX_SEED
