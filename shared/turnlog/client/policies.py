"""Policies as callers give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel

if TYPE_CHECKING:
    from turnlog.windows.policy import Policy

GivenPolicy: TypeAlias = "str | Mapping[str, Any] | Policy"
"""A preset's name, ``turns(n)`` and such, a policy's body, or a `Policy`."""


def policy_field(policy: GivenPolicy | None) -> str | Mapping[str, Any] | None:
    """The policy as a request has it: a name or a body."""
    return policy.model_dump(mode="json") if isinstance(policy, BaseModel) else policy
