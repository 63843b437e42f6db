"""How documents are made smaller: zlib, which begins with the words that most of them have.

A document of a checkpoint is a few hundred bytes, of which most are names of fields: the dictionary halves it.
"""

from __future__ import annotations

import zlib
from typing import Any

import ormsgpack

from turnlog.domain.errors import CorruptError, NewerSchemaError

PART_BYTES = 200 * 1024
"""Of a large value, as it is stored: documents of this size are read together by one request."""
_RAW, _ZLIB_1 = 0, 1
_WINDOW = -15
_WORDS_1 = (
    b"__pregel_tasks __interrupt__ __error__ __resume__ __scheduled__ __no_writes__ __root__ json null bytes "
    b"langgraph.types\xa9Interrupt\xa5value interrupts remaining_steps structured_response jump_to run_id fork update "
    b"lc_source \xa4text\xa4type\xa4text \xadserver_side tool_use input stop_reason end_turn stop_sequence "
    b"finish_reason\xaatool_calls finish_reason\xa4stop prompt_tokens completion_tokens total_tokens system_fingerprint "
    b"\xbflangchain_core.messages.system\xadSystemMessage\x86\xa7content\xda "
    b"\xd9 langchain_core.messages.human\xacHumanMessage\x86\xa7content\xda \xb1additional_kwargs\x80"
    b"\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0\xa2id\xd9$\xb3model_validate_json "
    b"\xbclangchain_core.messages.tool\xabToolMessage\x89\xa7content\xda \xb1additional_kwargs\x80"
    b"\xb1response_metadata\x80\xa4type\xa4tool\xa4name\xa7 \xa2id\xd9$ \xactool_call_id\xb5call_ "
    b"\xa8artifact\xc0\xa6status\xa7success\xb3model_validate_json "
    b"\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xda \xb1additional_kwargs\x80\xb1response_metadata\x81"
    b"\xaamodel_name\xae \xa4type\xa2ai\xa4name\xc0\xa2id\xd9.lc_run--01 -0\xaatool_calls\x91\x84\xa4name\xa7 \xa4args\x81"
    b"\xa2id\xb5call_ \xa4type\xa9tool_call\xb2invalid_tool_calls\x90\xaeusage_metadata\x83\xacinput_tokens\xcd"
    b"\xadoutput_tokens\xcc\xactotal_tokens\xcd\xb3model_validate_json\xc8\x02\x05\x94\xa7msgpack\xc5\x03 "
    b"\xc0\x93\xa1t\xa4null\xc4\x00 \x91\xa1e \x93\xa1l~__pregel_pull, __start__ ~__pregel_pull, model "
    b"~__pregel_pull, tools ~__pregel_pull, agent \xa7msgpack\xc4\x01\x87\xa1v\x04\xa2ts\xd9 2026-01-01T00:00:00.000000+00:00"
    b"\xa2id\xd9$1f \xb0channel_versions\x84\xa9__start__\xd920000000000000000000000000000000.0.0"
    b"\xa8messages\xd930000000000000000000000000000000.0.0\xafbranch:to:agent\xd93\xafbranch:to:tools\xd93\xafbranch:to:model"
    b"\xadversions_seen\x84\xa9__input__\x80\xa9__start__\x81\xa9__start__\xd93\xa5agent\x81\xafbranch:to:agent\xd93"
    b"\xa5model\x81\xafbranch:to:model\xd93\xa5tools\x81\xafbranch:to:tools\xd93\xb0updated_channels\x92"
    b"\xafbranch:to:agent\xafbranch:to:tools\xa8messages\x91\xa9__start__\xadpending_sends\x90\xa7msgpack\xc4\x24\x83"
    b"\xa6source\xa5input\xa4step\xa7parents\x80\xa7msgpack\xc4\x23\x83\xa6source\xa4loop\xa4step\xcd\xa7parents\x80"
)


def packed(content: Any) -> bytes:
    """What msgpack can say, behind a byte for the codec."""
    raw = ormsgpack.packb(content)
    small = _deflated(raw, _WORDS_1)
    return bytes([_ZLIB_1]) + small if len(small) < len(raw) else bytes([_RAW]) + raw


def patch_of(data: bytes, alike: bytes) -> bytes:
    """Of which `patched` makes the data again. It is short where they have much in common."""
    return _deflated(data, _WORDS_1 + alike)


def patched(alike: bytes, patch: bytes, *, item: str) -> bytes:
    """What the patch was made of, or `CorruptError` naming ``item``."""
    try:
        return _inflated(patch, _WORDS_1 + alike, item)
    except zlib.error as error:
        raise CorruptError("an element is damaged", item=item) from error


def unpacked(data: bytes, *, item: str) -> Any:
    """What was packed, or `CorruptError` naming ``item``."""
    if not data:
        raise CorruptError("a document is empty", item=item)
    codec, content = data[0], data[1:]
    if codec > _ZLIB_1:
        raise NewerSchemaError(f"codec {codec} is newer than {_ZLIB_1}", item=item)
    try:
        if codec == _ZLIB_1:
            content = _inflated(content, _WORDS_1, item)
        return ormsgpack.unpackb(content, option=ormsgpack.OPT_NON_STR_KEYS)
    except (zlib.error, ormsgpack.MsgpackDecodeError) as error:
        raise CorruptError("a document is damaged", item=item) from error


def _deflated(raw: bytes, words: bytes) -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, _WINDOW, 9, zlib.Z_DEFAULT_STRATEGY, words)
    return deflate.compress(raw) + deflate.flush()


def _inflated(small: bytes, words: bytes, item: str) -> bytes:
    inflate = zlib.decompressobj(_WINDOW, zdict=words)
    raw = inflate.decompress(small)
    if not inflate.eof:
        raise CorruptError("a document is cut short", item=item)
    return raw
