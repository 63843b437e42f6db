"""Every error that Turnlog raises, as one tree.

    TurnlogError
    ├── InvalidInputError          the caller must change the request (422)
    │   ├── MalformedError         not JSON within the limits (400)
    │   ├── TooLargeError          over a documented limit (413)
    │   ├── UnsupportedMediaTypeError  (415)
    │   ├── IdempotencyMismatchError   same key, other payload (422)
    │   ├── BudgetTooSmallError    the smallest possible window is larger than the budget (422)
    │   ├── PatchError             a patch that does not apply (422)
    │   ├── TooMuchWorkError       a request that would take more steps than its limit (422)
    │   ├── BuildMismatchError     a build that this log can't reproduce (422)
    │   └── OtherRendererError     a build made by another version of the renderer (422)
    ├── UnauthorizedError (401), ForbiddenError (403)
    ├── NotFoundError (404)
    ├── ConflictError              the session has changed meanwhile, or its state forbids the request (409)
    │   ├── HeadMismatchError, VersionMismatchError, SessionExistsError, SessionEndedError
    │   └── DocumentChangedError, LoopUnfinishedError, RunActiveError, RunLostError
    ├── UnavailableError           try again later (503)
    │   └── ThrottledError         (429)
    ├── SummaryRefusedError        a model's answer can't be used as a summary; a retry would not help (500)
    ├── SummariserConfigError      the summariser's settings are wrong: credentials, address or model (500)
    ├── MemoryConfigError          the memory engine's settings are wrong (500)
    ├── StepError                  a custom step failed, or returned a window that breaks a rule (500)
    └── CorruptError               a stored item is missing, damaged or inconsistent; names the item (500)
        └── NewerSchemaError       written by a newer Turnlog than this one

``code`` is a stable name for clients to test. ``details`` are further fields of the problem document (RFC 9457).
"""

from __future__ import annotations

import copyreg
import traceback
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from turnlog.core.lazy_dataclass import lazy_dataclass

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


@lazy_dataclass(frozen=True, slots=True)
class Problem:
    """A fault of an input: the rule it breaks (``code``), its place (a JSON pointer) and a message."""

    code: str
    pointer: str
    message: str


class TurnlogError(Exception):
    """Base of all errors. ``str(error)`` is safe to show to the caller: it has names and sizes, never contents."""

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

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickle and copy. Some subclasses can't be made from ``args``."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed later, although nobody changes what it asks for."""
        return self.retry_after_seconds is not None

    @classmethod
    def at(cls, pointer: str, message: str, code: str = "invalid_parameter") -> Self:
        """Return the error of an input with one fault: its place (a JSON pointer), a message, and the rule that it breaks."""
        return cls(message, problems=[Problem(code, pointer, message)])


class InvalidInputError(TurnlogError):
    code = "invalid_input"


class MalformedError(InvalidInputError):
    code = "malformed"


class MethodNotAllowedError(InvalidInputError):
    code = "method_not_allowed"


class TooLargeError(InvalidInputError):
    code = "too_large"


class UnsupportedMediaTypeError(InvalidInputError):
    code = "unsupported_media_type"


class IdempotencyMismatchError(InvalidInputError):
    code = "idempotency_mismatch"


class BudgetTooSmallError(InvalidInputError):
    """No window fits into the budget. ``details["needed"]`` is the smallest budget that would do."""

    code = "budget_too_small"


class PatchError(InvalidInputError):
    """A patch of the state that can't be applied. The problem's pointer points into the patch."""

    code = "patch_failed"


class TooMuchWorkError(InvalidInputError):
    """A request that would take more steps of work than allowed. ``details["limit"]`` is the allowed number."""

    code = "too_much_work"


class BuildMismatchError(InvalidInputError):
    """The build names a commit, a summary or tools that are not there."""

    code = "build_mismatch"


class OtherRendererError(InvalidInputError):
    """A build made by another version of the renderer. ``details["renderer"]`` is the version of this one."""

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
    """``if_head`` is not the session's head. ``details["head"]`` is the actual head."""

    code = "head_mismatch"


class VersionMismatchError(ConflictError):
    """``if_version`` is not the version of the state. ``details["version"]`` is the actual version."""

    code = "version_mismatch"


class DocumentChangedError(ConflictError):
    """A document has another revision than a write names, or exists already. ``details["key"]`` is its key."""

    code = "document_changed"


class SessionExistsError(ConflictError):
    code = "session_exists"


class SessionEndedError(ConflictError):
    code = "session_ended"


class LoopUnfinishedError(ConflictError):
    code = "loop_unfinished"


class RunActiveError(ConflictError):
    """Another run has the session, or is active in the open loop of a strict one. ``details["token"]`` is that of its lease."""

    code = "run_active"


class RunLostError(ConflictError):
    """The run no longer has the session: its lease was released, or another run took it over. Nothing was appended."""

    code = "run_lost"


class UnavailableError(TurnlogError):
    code = "unavailable"
    is_transient = True


class ThrottledError(UnavailableError):
    code = "throttled"


class SummaryRefusedError(TurnlogError):
    """A model's answer that can't be used as a summary.

    ``details`` have the reason, without the answer's text, and the tokens that were spent nevertheless.
    """

    code = "summary_refused"

    @property
    def reason(self) -> str:
        """Why the answer was refused; empty when the details don't say."""
        return str(self.details.get("reason", ""))

    @property
    def input_tokens(self) -> int:
        """The tokens of the request, which were spent nevertheless."""
        return int(self.details.get("input_tokens", 0))

    @property
    def output_tokens(self) -> int:
        """The tokens of the answer, which were spent nevertheless."""
        return int(self.details.get("output_tokens", 0))


class SummariserConfigError(TurnlogError):
    """A summariser whose model refuses access, does not exist or rejects the request. Retry only after the settings change."""

    code = "summariser_misconfigured"


class EmbedderConfigError(TurnlogError):
    """An embedder that can't be used as configured: its model does not exist, or a permission is missing."""

    code = "embedder_misconfigured"


class MemoryConfigError(TurnlogError):
    """A memory engine that refuses access or does not exist. Retry only after the settings change."""

    code = "memory_misconfigured"


class StepError(TurnlogError):
    """A registered step failed, or returned a view that breaks a rule of windows. ``details["step"]`` names the step."""

    code = "step_failed"


class CorruptError(TurnlogError):
    """A stored item is missing, damaged or inconsistent. ``item`` names it."""

    code = "corrupt"

    def __init__(self, detail: str, *, item: str) -> None:
        super().__init__(f"{detail} (item {item!r})", details={"item": item})
        self.item = item


class NewerSchemaError(CorruptError):
    code = "newer_schema"


_PROBLEMS = {
    "missing": "{field} is missing",
    "extra_forbidden": "unknown field {field!r}",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "{field} is not an object"),
    **dict.fromkeys(("list_type", "tuple_type"), "{field} is not a list"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "{field} is not an integer"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "{field} is not a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "{field} is neither true nor false"),
    "string_type": "{field} is not a string",
    "string_too_short": "{field} has fewer characters than {min_length}",
    "string_too_long": "{field} has more characters than {max_length}",
    "string_pattern_mismatch": "{field} is not {shape}",
    "too_short": "{field} has {actual_length} items; at least {min_length} is needed",
    "too_long": "{field} has {actual_length} items; at most {max_length} are allowed",
    "greater_than": "{field} is not more than {gt}",
    "greater_than_equal": "{field} is less than {ge}",
    "less_than": "{field} is not less than {lt}",
    "less_than_equal": "{field} is more than {le}",
    "literal_error": "{field} is not {expected}",
}

SHAPES = {
    r"^[0-9]{13}-[A-Za-z0-9_-]{1,50}$": "the id of a snapshot",
    r"^[1-9][0-9]{0,11}\.(0|[1-9][0-9]{0,5})$": "the ref of a call, like 12.0",
    r"^[A-Za-z][A-Za-z0-9_.:-]{0,63}$": "a letter and up to 63 letters, digits and _ . : -",
    r"^[!-~]{1,64}$": "1 to 64 printable ASCII characters without spaces",
    r"^[^/\x00-\x1f]+$": "a text without slashes and control characters",
    **{f"^[0-9a-f]{{{length}}}$": f"{length} hexadecimal digits in lower case" for length in (16, 32, 64)},
}
"""What a text must be to match a pattern of a request, in words."""


def problem_text(error: ErrorDetails, pointer: str) -> str:
    """Return an error of pydantic as a plain sentence about the value at a JSON pointer, or the model's own words."""
    sentence = _PROBLEMS.get(error["type"])
    if sentence is None:
        return error["msg"].removeprefix("Value error, ")
    *parents, name = (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/"))
    field = f"item {name} of {parents[-1]}" if name.isdigit() else name or "the body"
    facts = error.get("ctx", {})
    shape = SHAPES.get(facts.get("pattern", ""), f"a text that matches {facts.get('pattern')}")
    return sentence.format(field=field, shape=shape, **facts)


STATUSES: Mapping[int, type[TurnlogError]] = {
    400: MalformedError,
    413: TooLargeError,
    415: UnsupportedMediaTypeError,
    405: MethodNotAllowedError,
    422: InvalidInputError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    429: ThrottledError,
    503: UnavailableError,
}
"""HTTP statuses: an error has that of the first of these classes that it belongs to, else 500."""

_FRAMES = 12
_CAUSES = 5


def describe_error(error: BaseException) -> str:
    """Describe an error and its causes, newest first: each type with the frames that it passed, innermost last."""
    descriptions = list[str]()
    current: BaseException | None = error
    while current is not None and len(descriptions) < _CAUSES:
        descriptions.append(f"{type(current).__name__} at {_frames(current.__traceback__)}")
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "; caused by ".join(descriptions)


def _frames(trace: TracebackType | None) -> str:
    stack = traceback.StackSummary.extract(traceback.walk_tb(trace), lookup_lines=False)[-_FRAMES:]
    names = [frame.filename.replace("\\", "/").rpartition("/")[2] for frame in stack]
    places = zip(stack, names, strict=True)
    return " > ".join(f"{frame.name} {name}:{frame.lineno}" for frame, name in places) or "nowhere"
