"""Prompts as a forecast sees them, and back: with the vocabulary of the model file, in this
process, so that no daemon is needed for it."""

from collections.abc import Sequence
from pathlib import Path

from appliance.engine.vocab import Vocab, VocabError
from appliance.errors import BadRequest
from appliance.forecast.dataset import Prompt
from appliance.forecast.question import Question, Turn
from appliance.forecast.spelling import turns_of
from appliance.prepare.messages import ChatJob
from appliance.prepare.prompt import Prompter


class NoModel(Exception):
    """The model's file cannot be used. Says why and what to do."""


class Reader:
    """One model's vocabulary and chat template."""

    def __init__(self, model: Path, template: str | None = None) -> None:
        """Raises NoModel."""
        try:
            self._vocab = Vocab.open(model)
            self._prompter = Prompter(self._vocab, template)
        except (VocabError, ValueError) as error:
            raise NoModel(f"the model's vocabulary or chat template cannot be used: {error}") from (
                error
            )

    def close(self) -> None:
        self._vocab.close()

    def question(self, prompt: Prompt) -> Question:
        """The prompt as a chat request. Raises BadRequest where the template refuses it."""
        messages = [{"role": one.role, "content": one.content} for one in prompt.messages]
        rendered = self._prompter.render(ChatJob(messages=messages), ())
        return Question(
            turns=tuple(Turn(one.role, one.content) for one in prompt.messages),
            prompt=tuple(self._prompter.tokenize(rendered)),
        )

    def asked(self, prompts: Sequence[Prompt]) -> tuple[dict[str, Question], dict[str, str]]:
        """The questions by their prompts' names, and those that make none, with the reason."""
        found: dict[str, Question] = {}
        refused: dict[str, str] = {}
        for prompt in prompts:
            try:
                found[prompt.id] = self.question(prompt)
            except BadRequest as error:
                refused[prompt.id] = str(error)
        return found, refused

    def turns(self, ids: Sequence[int]) -> tuple[Turn, ...]:
        """What was said, from a prompt's token ids, which control tokens part."""
        return turns_of(self._parts(ids))

    def _parts(self, ids: Sequence[int]) -> list[str]:
        parts: list[list[int]] = [[]]
        for token in ids:
            if token in self._vocab.hidden or token in self._vocab.eogs:
                parts.append([])
            elif 0 <= token < self._vocab.n_tokens:
                parts[-1].append(token)
        return [self._vocab.detokenize(part).decode("utf-8", "replace") for part in parts]
