"""Options that people know from elsewhere, as policies: of a window with a threshold, of run loops, of a plain buffer.

They come as data, by the names that they have there, in snake_case or camelCase. What Turnlog does not do is refused by
name, never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from turnlog.domain.errors import InvalidInputError, MalformedError, Problem
from turnlog.domain.jsonvalue import check_json, encode_json
from turnlog.windows.limits import Recent
from turnlog.windows.policy import Policy, classic, run_loops

_MAX = 100_000_000
_NO_SYSTEM = (
    "false can't be kept: system text and the system messages before the first loop are in every window; "
    "to send none, leave them out of the session"
)


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Classic(_Options):
    window_size: int = Field(default=20, ge=0, le=1_000_000)
    max_tokens: int = Field(default=4000, ge=0, le=_MAX)
    summarize: bool = True
    compress_threshold: int = Field(default=30, ge=0, le=1_000_000)
    token_threshold: int = Field(default=3000, ge=0, le=_MAX)
    preserve_system: bool = True

    @field_validator("preserve_system")
    @classmethod
    def _always(cls, preserve_system: bool) -> bool:
        if not preserve_system:
            raise PydanticCustomError("system_is_sent", _NO_SYSTEM)
        return preserve_system

    def policy(self) -> Policy:
        return classic(
            messages=self.window_size,
            tokens=self.max_tokens,
            messages_over=self.compress_threshold,
            tokens_over=self.token_threshold,
            summary=self.summarize,
        )


class _RunLoops(_Options):
    max_run_loops: int = Field(default=10, ge=1, le=1_000_000)
    max_message_length: int = Field(default=500, ge=1, le=1_000_000)
    max_time_range: int = Field(default=7 * 24 * 3600 * 1000, ge=1, le=10**15)

    def policy(self) -> Policy:
        return run_loops(
            max_loops=self.max_run_loops,
            max_message_chars=self.max_message_length,
            max_age_seconds=-(-self.max_time_range // 1000),
        )


class _BufferConfig(_Options):
    max_messages: int = Field(default=20, ge=0, le=1_000_000)
    max_tokens: int = Field(default=4000, ge=0, le=_MAX)


class _Buffer(_Options):
    buffer_config: _BufferConfig

    def policy(self) -> Policy:
        limits = self.buffer_config
        return Policy(steps=(Recent(messages=limits.max_messages, tokens=limits.max_tokens),))


FAMILIES: dict[str, type[_Classic | _RunLoops | _Buffer]] = {
    "classic": _Classic,
    "run_loops": _RunLoops,
    "buffer_config": _Buffer,
}
FAMILY_OF = {name: family for family, model in FAMILIES.items() for name in model.model_fields}


def policy_of_options(options: Mapping[str, Any]) -> Policy:
    """`Policy.from_options`."""
    if not isinstance(options, Mapping):
        _refuse("", f"options are a mapping of names to values, not a {type(options).__name__}")
    try:
        check_json(options)
    except MalformedError as error:
        raise InvalidInputError(f"the options are not JSON: {error.detail}", code="invalid_policy") from error
    given = _in_snake_case(options, "")
    unknown = [name for name in given.values() if name not in FAMILY_OF]
    if unknown:
        spelled = next(name for name, snake in given.items() if snake == unknown[0])
        _refuse(f"/{spelled}", f"option {spelled!r} is not known; known are {', '.join(FAMILY_OF)}")
    families = {FAMILY_OF[name]: spelled for spelled, name in reversed(given.items())}
    if not families:
        _refuse("", f"there is no option to choose a policy by; known are {', '.join(FAMILY_OF)}")
    if len(families) > 1:
        (one, first), (other, second) = list(families.items())[:2][::-1]
        _refuse(f"/{second}", f"options {first!r} and {second!r} don't mix: one is of {one}, the other of {other}")
    return _read(FAMILIES[next(iter(families))], options, given)


def _read(model: type[_Classic | _RunLoops | _Buffer], options: Mapping[str, Any], given: dict[str, str]) -> Policy:
    values = {name: options[spelled] for spelled, name in given.items()}
    config = values.get("buffer_config")
    inner = _in_snake_case(config, "/buffer_config") if isinstance(config, Mapping) else {}
    if isinstance(config, Mapping):
        values["buffer_config"] = {name: config[spelled] for spelled, name in inner.items()}
    try:
        return model.model_validate_json(encode_json(values)).policy()
    except ValidationError as error:
        spelled = {name: spelled for spelled, name in (given | inner).items()}
        found = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = [str(spelled.get(str(part), part)) for part in found["loc"]]
        if found["type"] == "extra_forbidden":
            known = ", ".join(_BufferConfig.model_fields)
            _refuse("/" + "/".join(place), f"option {place[-1]!r} of {place[0]!r} is not known; known are {known}")
        _refuse("/" + "/".join(place), f"option {place[-1]!r}: {found['msg']}")


def _in_snake_case(options: Mapping[str, Any], pointer: str) -> dict[str, str]:
    """The options' names as they are spelled, and in snake_case."""
    found = dict[str, str]()
    for spelled in options:
        name = re.sub(r"(?<=[a-z])[A-Z]", lambda letter: "_" + letter[0].lower(), spelled)
        if name in found.values():
            _refuse(f"{pointer}/{spelled}", f"option {name!r} is given twice, in two spellings")
        found[spelled] = name
    return found


def _refuse(pointer: str, message: str) -> NoReturn:
    raise InvalidInputError(message, code="invalid_policy", problems=[Problem("invalid_policy", pointer, message)])
