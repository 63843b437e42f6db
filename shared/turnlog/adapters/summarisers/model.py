"""A summariser with a model, whichever it is: the prompt, a bounded number of tries, and the checks of what it answers."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from turnlog.adapters.summarisers.prompt import Prompt, prompt_for
from turnlog.domain.deadlines import seconds_left
from turnlog.domain.errors import SummaryRefusedError, UnavailableError
from turnlog.domain.summaries import Summarised, SummaryRequest
from turnlog.domain.summary_checks import Reason, refusal
from turnlog.domain.values import dataclass
from turnlog.ports import Clock, IdSource, TokenCounter

MAX_TRIES = 3
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 5.0
_RETRY_SHARE = 0.25
"""Of the time-out: a try that begins later could end after everyone has given up."""
_MOST_CHARS = 64
"""Of a token, in any text that somebody would read."""
_ROOM_TOKENS, _USUAL_LIMIT = 1_024, 4_096

Ending: TypeAlias = Literal["done", "cut_off", "filtered"]


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a model said and what it cost. None: the provider gave no count."""

    text: str
    ending: Ending = "done"
    input_tokens: int | None = None
    output_tokens: int | None = None


class ChatModel(Protocol):
    """One call of a model, without a second try.

    Raises `UnavailableError` (outage, time-out, no answer that can be read), `ThrottledError`, `SummariserConfigError`.
    """

    @property
    def name(self) -> str: ...

    def answer(self, prompt: Prompt, *, max_tokens: int) -> ModelAnswer:
        """The answer of at most ``max_tokens`` tokens, thinking included."""


class ModelSummariser:
    """Implements `Summariser`. Outages are tried again within the time-out; an answer that fails the checks is not.

    All tries end within 1.25 x ``timeout_seconds``, which is what one of them may take, and a pause.
    """

    def __init__(
        self, model: ChatModel, counter: TokenCounter, clock: Clock, ids: IdSource, *, timeout_seconds: float
    ) -> None:
        self._model = model
        self._counter = counter
        self._clock = clock
        self._ids = ids
        self._timeout_seconds = timeout_seconds

    @property
    def name(self) -> str:
        return self._model.name

    def summarise(self, request: SummaryRequest) -> Summarised:
        """As the port says; `SummaryRefusedError` has the tokens that the refused answer cost."""
        prompt = prompt_for(request, self._counter)
        if prompt is None:
            raise _refused("source_too_long", self.name, 0, 0)
        answer = self._tried(prompt, _limit(request.max_tokens))
        text = answer.text.strip()
        # Counting takes its time with megabytes that nobody asked for.
        is_short = len(text) <= request.max_tokens * _MOST_CHARS
        tokens = self._counter.count(text) if is_short else request.max_tokens + 1
        spent_in, spent_out = answer.input_tokens, answer.output_tokens
        if spent_in is None:
            spent_in = self._counter.count(prompt.system) + self._counter.count(prompt.record)
        if spent_out is None:
            spent_out = tokens
        reason: Reason | None = answer.ending if answer.ending != "done" else None
        reason = reason or refusal(
            text,
            tokens=tokens,
            max_tokens=request.max_tokens,
            source_tokens=prompt.record_tokens,
            said=request.said,
            instructions=prompt.system,
        )
        if reason is not None:
            raise _refused(reason, self.name, spent_in, spent_out)
        return Summarised(text, self.name, spent_in, spent_out)

    def _tried(self, prompt: Prompt, max_tokens: int) -> ModelAnswer:
        started, tries = self._clock.now_ms(), 0
        while True:
            try:
                return self._model.answer(prompt, max_tokens=max_tokens)
            except UnavailableError as error:
                tries += 1
                pause = self._pause_seconds(error, tries)
                late = (self._clock.now_ms() - started) / 1000 + pause > self._timeout_seconds * _RETRY_SHARE
                if tries >= MAX_TRIES or late or pause >= seconds_left():
                    raise
            self._clock.sleep(pause)

    def _pause_seconds(self, error: UnavailableError, tries: int) -> float:
        """Longer each time, with jitter, and never shorter than the provider asks for."""
        own: float = _FIRST_PAUSE_SECONDS * 2 ** (tries - 1) * (0.5 + self._ids.jitter())
        return max(min(own, _LONGEST_PAUSE_SECONDS), error.retry_after_seconds or 0)


def _limit(max_tokens: int) -> int:
    """What the provider is told: a model that thinks needs room for it, and many take no more than `_USUAL_LIMIT`."""
    return max(max_tokens, min(2 * max_tokens + _ROOM_TOKENS, _USUAL_LIMIT))


def _refused(reason: Reason, name: str, input_tokens: int, output_tokens: int) -> SummaryRefusedError:
    return SummaryRefusedError(
        f"the answer of {name} is no summary: {reason}",
        details={"reason": reason, "input_tokens": input_tokens, "output_tokens": output_tokens},
    )
