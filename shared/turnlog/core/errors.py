"""Every error that Turnlog raises, as one tree.

    TurnlogError
    ├── InvalidInputError          the caller must change the request (422)
    │   ├── MalformedError         not even JSON that we read (400)
    │   ├── TooLargeError          over a documented limit (413)
    │   ├── UnsupportedMediaTypeError  (415)
    │   ├── IdempotencyMismatchError   same key, other payload (422)
    │   ├── BudgetTooSmallError    the least window is larger than the budget (422)
    │   ├── PatchError             a patch that does not apply (422)
    │   ├── TooMuchWorkError       a request that would take more steps than its limit (422)
    │   ├── BuildMismatchError     a build that this log can't give again (422)
    │   └── OtherRendererError     a build of another version of the renderer (422)
    ├── UnauthorizedError (401), ForbiddenError (403)
    ├── NotFoundError (404)
    ├── ConflictError              the log has moved on, or forbids it (409)
    │   ├── HeadMismatchError, VersionMismatchError, SessionExistsError, SessionEndedError
    │   └── DocumentChangedError, LoopUnfinishedError, RunActiveError
    ├── UnavailableError           try again later (503)
    │   └── ThrottledError         (429)
    ├── SummaryRefusedError        a model's answer is no summary; the same request gets no better one (500)
    ├── SummariserConfigError      the summariser's settings are wrong: credentials, address or model (500)
    ├── MemoryConfigError          the same of the memory engine (500)
    ├── StepError                  a step of the deployment's own fails or breaks a law of windows (500)
    └── CorruptError               a stored item can't be trusted; names the item (500)
        └── NewerSchemaError       written by a newer Turnlog than this one

``code`` is the stable name that clients switch on; ``details`` are further fields of the problem document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from turnlog.core.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input: where (a JSON pointer), which rule, and in words."""

    code: str
    pointer: str
    message: str


class TurnlogError(Exception):
    """Base of all errors. ``str(error)`` is safe to show to the caller: it holds names and sizes, never contents."""

    code: ClassVar[str] = "error"

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        problems: Sequence[Problem] = (),
        details: Mapping[str, int | str] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.error_code = code or self.code
        self.problems = tuple(problems)
        self.details = dict(details or {})
        self.retry_after_seconds = retry_after_seconds


class InvalidInputError(TurnlogError):
    code = "invalid_input"


class MalformedError(InvalidInputError):
    code = "malformed"


class TooLargeError(InvalidInputError):
    code = "too_large"


class UnsupportedMediaTypeError(InvalidInputError):
    code = "unsupported_media_type"


class IdempotencyMismatchError(InvalidInputError):
    code = "idempotency_mismatch"


class BudgetTooSmallError(InvalidInputError):
    """No window fits. ``details["needed"]`` is the smallest budget that would."""

    code = "budget_too_small"


class PatchError(InvalidInputError):
    """A patch of the state that can't be applied. Its problem's pointer is into the patch."""

    code = "patch_failed"


class TooMuchWorkError(InvalidInputError):
    """A request that would take more steps of work than it may. ``details["limit"]`` is how many it may take."""

    code = "too_much_work"


class BuildMismatchError(InvalidInputError):
    """The build names a commit, a summary or tools that are not there."""

    code = "build_mismatch"


class OtherRendererError(InvalidInputError):
    """The build is of another version of the renderer. ``details["renderer"]`` is this one's."""

    code = "other_renderer"


class UnauthorizedError(TurnlogError):
    code = "unauthorized"


class ForbiddenError(TurnlogError):
    code = "forbidden"


class NotFoundError(TurnlogError):
    code = "not_found"


class ConflictError(TurnlogError):
    code = "conflict"


class HeadMismatchError(ConflictError):
    """``if_head`` is not the head. ``details["head"]`` is."""

    code = "head_mismatch"


class VersionMismatchError(ConflictError):
    """``if_version`` is not the version of the state. ``details["version"]`` is."""

    code = "version_mismatch"


class DocumentChangedError(ConflictError):
    """A document is not of the revision that a writing names, or is there already. ``details["key"]`` is its key."""

    code = "document_changed"


class SessionExistsError(ConflictError):
    code = "session_exists"


class SessionEndedError(ConflictError):
    code = "session_ended"


class LoopUnfinishedError(ConflictError):
    code = "loop_unfinished"


class RunActiveError(ConflictError):
    code = "run_active"


class UnavailableError(TurnlogError):
    code = "unavailable"


class ThrottledError(UnavailableError):
    code = "throttled"


class SummaryRefusedError(TurnlogError):
    """A model's answer that may not stand for a conversation. ``details["reason"]`` says why, never what it said.

    ``input_tokens`` and ``output_tokens`` in the details were spent all the same.
    """

    code = "summary_refused"

    @property
    def reason(self) -> str:
        return str(self.details.get("reason", ""))


class SummariserConfigError(TurnlogError):
    """The model refuses us, is not there, or takes no such request: nothing to be tried again before the settings change."""

    code = "summariser_misconfigured"


class EmbedderConfigError(TurnlogError):
    """An embedder can't be used as the settings say: a model that is not there, or a right that is missing."""

    code = "embedder_misconfigured"


class MemoryConfigError(TurnlogError):
    """The memory engine refuses us, or is not there: nothing to be tried again before the settings change."""

    code = "memory_misconfigured"


class StepError(TurnlogError):
    """A registered step has failed, or returned a view that a step may not. ``details["step"]`` names it."""

    code = "step_failed"


class CorruptError(TurnlogError):
    """A stored item is missing, damaged or inconsistent. ``item`` names it."""

    code = "corrupt"

    def __init__(self, detail: str, *, item: str) -> None:
        super().__init__(f"{detail} (item {item!r})", details={"item": item})
        self.item = item


class NewerSchemaError(CorruptError):
    code = "newer_schema"
