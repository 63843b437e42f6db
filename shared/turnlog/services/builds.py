"""From a request to what a window is made of, and back: builds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NoReturn, cast

from turnlog.codecs.registry import codec_of
from turnlog.contracts.builds import BudgetAnswer, Build, GivenBuild
from turnlog.contracts.context import BuildContext
from turnlog.domain.errors import BuildMismatchError, InvalidInputError, OtherRendererError, Problem
from turnlog.domain.jsonvalue import JsonObject, encode_json
from turnlog.domain.times import rfc3339
from turnlog.log.headers import Header
from turnlog.log.keys import SessionKeys
from turnlog.log.sessions import SessionLog
from turnlog.services.moments import above_head, resolved
from turnlog.windows.build import Request
from turnlog.windows.version import RENDERER_VERSION

_BESIDE_A_BUILD = frozenset({"build", "tools"})


def position_of_call(log: SessionLog, keys: SessionKeys, body: BuildContext) -> int | None:
    """The position that a call asks for, by ``at`` or by ``build``; None: the head."""
    if body.build is None:
        return resolved(log, keys, body.at) if body.at is not None else None
    beside = sorted(body.model_fields_set - _BESIDE_A_BUILD)
    if beside:
        raise _invalid(f"/{beside[0]}", f"{beside[0]} can't stand beside build, which says it all")
    if body.build.renderer != RENDERER_VERSION:
        message = f"the build is of renderer version {body.build.renderer}; this is version {RENDERER_VERSION}"
        raise OtherRendererError(message, details={"renderer": RENDERER_VERSION})
    return resolved(log, keys, body.build.position)


def check_head(header: Header, position: int, *, build: GivenBuild | None) -> None:
    """Refuses a position that the log has not reached. ``header`` is of the newest commit up to it."""
    if position <= header.last:
        return
    error = above_head(header, position)
    if build is not None:
        raise BuildMismatchError(error.detail, details=error.details)
    raise error


def check_build(build: GivenBuild, header: Header, tools: Sequence[JsonObject] | None) -> None:
    """Refuses a build that names what is not there. ``header`` is of its position."""
    if build.commit != header.hash.hex() or build.clock != rfc3339(header.time_ms):
        _mismatch("commit", f"the commit of position {build.position} is not the one that the build names")
    if build.summary != (header.summary.position if header.summary is not None else None):
        _mismatch("summary", f"another summary was in force at position {build.position}")
    if build.tools != hash_of(tools):
        _mismatch("tools", "the build has tools of its own call; send the same tools with it")


def asked_by(build: GivenBuild, body: BuildContext) -> BuildContext:
    """The call that made the build."""
    codec_of(build.format, pointer="/build/format")
    return BuildContext(
        policy=build.policy,
        format=cast("Any", build.format),
        budget=build.budget.tokens,
        model=build.model,
        tools=body.tools,
        include_current_loop=build.include_current_loop,
        settle=build.settle,
        breakpoints=build.breakpoints,
    )


def build_of(
    request: Request,
    header: Header,
    budget: BudgetAnswer,
    *,
    model: str | None,
    tools: Sequence[JsonObject] | None,
) -> Build:
    """What the window of a request at a header is made of. ``tools`` are the call's own, as given."""
    return Build(
        renderer=RENDERER_VERSION,
        position=header.last,
        commit=header.hash.hex(),
        clock=rfc3339(header.time_ms),
        policy=request.policy.model_dump(mode="json"),
        format=request.format,
        budget=budget,
        model=model,
        summary=header.summary.position if header.summary is not None else None,
        tools=hash_of(tools),
        include_current_loop=request.include_current_loop,
        settle=request.settle,
        breakpoints="apply" if request.apply_breakpoints else "suggest",
    )


def hash_of(tools: Sequence[JsonObject] | None) -> str | None:
    """Names a call's own tools."""
    return hashlib.sha256(encode_json(list(tools))).hexdigest() if tools is not None else None


def _mismatch(field: str, message: str) -> NoReturn:
    raise BuildMismatchError(message, problems=[Problem("build_mismatch", f"/build/{field}", message)])


def _invalid(pointer: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, problems=[Problem("invalid_parameter", pointer, message)])
