"""Addresses outside of the service: signed ones of the storage, which take no credentials of ours."""

from __future__ import annotations

import http.client
import shutil
from typing import BinaryIO
from urllib.parse import urlsplit

from turnlog.domain.errors import NotFoundError, UnavailableError


def fetch(url: str, into: BinaryIO, *, timeout_seconds: float = 30.0) -> None:
    """Writes what is behind an address, a piece at a time. `NotFoundError` when it is not there, or not any more."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_seconds)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}" if parts.query else parts.path)
        answer = connection.getresponse()
        if answer.status in (403, 404, 410):
            raise NotFoundError("the address is not good any more: ask for another one", code="link_expired")
        if answer.status != 200:
            raise UnavailableError(f"the storage answered {answer.status}", code="download_failed")
        shutil.copyfileobj(answer, into)
    except (OSError, http.client.HTTPException) as error:
        raise UnavailableError(f"the download broke off: {type(error).__name__}", code="download_failed") from error
    finally:
        connection.close()
