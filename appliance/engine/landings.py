"""Which kind of answer a request gets: with a budget or without, with a grammar or without."""

from collections.abc import Callable

from llguidance import LLTokenizer

from appliance.engine.answer import Answer
from appliance.engine.closing import orders_of
from appliance.engine.closing_answer import ClosingAnswer
from appliance.engine.landing_answer import LandingAnswer
from appliance.engine.landing_marks import marks_of
from appliance.engine.sequence import Sequence
from appliance.engine.vocab import Vocab


def answer_for(sequence: Sequence, vocab: Vocab, lltokenizer: Callable[[], LLTokenizer]) -> Answer:
    """Raises ConstraintError when the request's grammar does not compile."""
    request = sequence.request
    if request.budget is None or request.forced:
        answer = Answer(sequence, vocab, lltokenizer)
        if request.budget is not None:
            answer.bar(marks_of(vocab).ends)
        return answer
    if request.grammar is not None:
        return ClosingAnswer(sequence, vocab, lltokenizer, orders_of(vocab))
    return LandingAnswer(sequence, vocab, marks_of(vocab))


def make_ready(vocab: Vocab) -> None:
    """Builds now what answers with a budget need, not in the middle of others' answers."""
    marks_of(vocab)
    orders_of(vocab)
