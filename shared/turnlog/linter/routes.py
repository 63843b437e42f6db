"""The HTTP route of the linter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.linter.models import LintAnswer, LintMessages
from turnlog.routing import HttpRequest, Response, Route, read_body

if TYPE_CHECKING:
    from turnlog.app import Application


def _lint(app: Application, request: HttpRequest) -> Response:
    return Response(200, app.lint_messages(read_body(request, LintMessages)))


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/lint",
        "lint_messages",
        "lint",
        "Check a list of messages against a provider's rules; nothing is stored",
        _lint,
        LintMessages,
        {200: LintAnswer},
    ),
)
