"""What the HTTP server itself refuses, before the route table sees it, in the words of all other answers."""

from __future__ import annotations

from typing import Any

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.task import ErrorTask

from turnlog.domain.jsonvalue import encode_json

_CODES = {413: "too_large", 431: "too_large", 500: "internal"}
_DETAILS = {
    413: "the body is too large",
    431: "the headers are too large",
    500: "unexpected error",
    501: "a transfer encoding that this server does not know",
}


class _Refused(ErrorTask):
    """One request that is none, as a problem document. Nothing that was sent is in it."""

    def execute(self) -> None:
        request: Any = self.request
        error = request.error
        status = int(error.code)
        code, detail = _CODES.get(status, "malformed"), _DETAILS.get(status, "not a request of HTTP")
        document = {
            "type": f"https://turnlog.dev/problems/{code}",
            "title": code.replace("_", " "),
            "status": status,
            "code": code,
            "detail": detail,
            "request_id": "",
        }
        data = encode_json(document)
        self.status = f"{status} {error.reason}"
        self.response_headers = [("Content-Type", "application/problem+json")]
        self.set_close_on_finish()
        self.content_length = len(data)
        self.write(data)


class _Parser(HTTPRequestParser):
    """waitress's parser, which lets `ValueError` out for a target such as ``http://[``, and so closes without an answer."""

    def parse_header(self, header_plus: bytes) -> None:
        try:
            super().parse_header(header_plus)
        except ValueError as error:
            raise ParsingError("Bad URI") from error


class Channel(HTTPChannel):
    """A connection whose refusals are problem documents."""

    parser_class = _Parser
    error_task_class = _Refused
