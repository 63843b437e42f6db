"""Images and documents of Bedrock Converse.

Sources: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ImageBlock.html and
API_runtime_DocumentBlock.html: few formats, bytes or an S3 address, a document's name of few characters; a message with a
document has text too, and no two documents of a request have one name (https://github.com/maximhq/bifrost/issues/7003).
"""

from __future__ import annotations

import re

from turnlog.codecs.blocks import placeholder_text, string
from turnlog.domain.jsonvalue import JsonObject, JsonValue
from turnlog.domain.messages import Media

DOCUMENT_TEXT = "[document]"
_IMAGE_TYPES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_FILE_TYPES = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
_OF_FORMAT = {name: media_type for media_type, name in (_IMAGE_TYPES | _FILE_TYPES).items()}
_LEGAL_NAME = re.compile(r"[A-Za-z0-9()\[\]\-]+(?: [A-Za-z0-9()\[\]\-]+)*")
_MAX_NAME = 200


def media_of(block: JsonObject) -> Media | None:
    """An image or a document; None where the block is neither, or says not where it is."""
    image, document = block.get("image"), block.get("document")
    inner = image if isinstance(image, dict) else document
    source = inner.get("source") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(source, dict):
        return None
    place = source.get("s3Location")
    data = string(source.get("bytes")) or None
    url = (string(place.get("uri")) if isinstance(place, dict) else "") or None
    if not data and not url:
        return None
    media_type = _OF_FORMAT.get(string(inner.get("format")))
    name = string(inner.get("name")) or None
    return Media("image" if inner is image else "file", media_type, data=data, url=url, name=name)


def is_document(block: JsonValue) -> bool:
    return isinstance(block, dict) and "document" in block


def media_block(media: Media) -> JsonObject:
    """The block; the name as text where the provider takes no such media."""
    is_image = media.kind == "image"
    default = "png" if is_image else "pdf"
    known = _IMAGE_TYPES if is_image else _FILE_TYPES
    kind = known.get(media.media_type) if media.media_type else default
    source: JsonObject | None = {"bytes": media.data} if media.data else None
    if source is None and media.url and media.url.startswith("s3://"):
        source = {"s3Location": {"uri": media.url}}
    if source is None or kind is None or media.kind == "audio":
        return {"text": placeholder_text(media)}
    if is_image:
        return {"image": {"format": kind, "source": source}}
    return {"document": {"format": kind, "name": document_name(media.name or ""), "source": source}}


def document_name(name: str) -> str:
    """A name that the provider takes: letters, digits, single spaces, hyphens, parentheses and brackets."""
    if len(name) <= _MAX_NAME and _LEGAL_NAME.fullmatch(name):
        return name
    legal = re.sub(r"[^A-Za-z0-9()\[\]\-]+", " ", name).strip()
    return legal[:_MAX_NAME].strip() or "document"


def with_documents(messages: list[JsonObject]) -> list[JsonObject]:
    """The messages, every document's name legal and its own, with text beside documents."""
    names = set[str]()
    return [_with_named(message, names) for message in messages]


def _with_named(message: JsonObject, names: set[str]) -> JsonObject:
    content = message["content"]
    assert isinstance(content, list)  # noqa: S101 - every body that is rendered has a list
    named = [_named(block, names) for block in content]
    if any(map(is_document, named)) and not any(isinstance(block, dict) and "text" in block for block in named):
        named.append({"text": DOCUMENT_TEXT})
    return message if named == content else {**message, "content": named}


def _named(block: JsonValue, names: set[str]) -> JsonValue:
    if not isinstance(block, dict):
        return block
    result, document = block.get("toolResult"), block.get("document")
    if isinstance(result, dict) and isinstance(result.get("content"), list):
        inner = result["content"]
        assert isinstance(inner, list)  # noqa: S101 - looked at just now
        named = [_named(one, names) for one in inner]
        return block if named == inner else {**block, "toolResult": {**result, "content": named}}
    if not isinstance(document, dict):
        return block
    legal = document_name(string(document.get("name")))
    name, again = legal, 1
    while name.lower() in names:
        again += 1
        name = f"{legal[: _MAX_NAME - 8]} ({again})"
    names.add(name.lower())
    return block if name == document.get("name") else {**block, "document": {**document, "name": name}}
