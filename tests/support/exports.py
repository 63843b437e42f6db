"""Exports and the sessions that they are made of."""

from __future__ import annotations

import io
import json
import zipfile
from hashlib import sha256

from turnlog.client.model import Session, Turnlog


def exported(source: Session | Turnlog) -> bytes:
    into = io.BytesIO()
    source.export(into)
    return into.getvalue()


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(found: dict[str, bytes], *, retell: bool = True, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """The file of other members; with ``retell`` the manifest tells of them as they are."""
    if retell:
        manifest = json.loads(found["manifest.json"])
        for session in manifest["sessions"]:
            for name, member in session["members"].items():
                content = found.get(f"sessions/{session['session_id']}/{name}", b"")
                member.update(sha256=sha256(content).hexdigest(), size_bytes=len(content), lines=content.count(b"\n"))
        found = {**found, "manifest.json": json.dumps(manifest).encode()}
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w", compression) as archive:
        for name, content in found.items():
            archive.writestr(name, content)
    return into.getvalue()
