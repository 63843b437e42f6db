"""The rules of the providers."""

from __future__ import annotations

from turnlog.bootstrap import Application
from turnlog.contracts.lint import LintAnswer, LintMessages
from turnlog.entrypoints.routing import Request, Response, Route, read_body


def _lint(app: Application, request: Request) -> Response:
    return Response(200, app.lint_messages(read_body(request, LintMessages)))


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/lint",
        "lint_messages",
        "lint",
        "Which rules of a provider a list of messages breaks; nothing is stored",
        _lint,
        LintMessages,
        {200: LintAnswer},
    ),
)
