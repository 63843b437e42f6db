"""moto with less work for the same answers: it serialises, compares and lists what a request is about, and nothing else."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import string
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PLAIN = frozenset({"S", "B"})
"""Types whose value is compared and measured as it is."""


@contextmanager
def quick_moto() -> Iterator[None]:
    """Patch moto within the block."""
    with pytest.MonkeyPatch.context() as patch:
        _serialise_the_type_that_is_there(patch)
        _compare_plain_values_at_once(patch)
        _list_the_partition_that_a_query_asks_for(patch)
        _look_names_up_once(patch)
        _read_replaced_items_from_memory(patch)
        _find_who_answers_an_address_once(patch)
        _find_members_of_a_dict_by_name(patch)
        _leave_signatures_out(patch)
        _start_at_once(patch)
        yield


def _serialise_the_type_that_is_there(patch: pytest.MonkeyPatch) -> None:
    """moto looks for each of the ten types of a DynamoDB attribute under four names: half of what a request to it takes.

    An attribute is a dict with its one type in it, so the other nine are not there under any name."""
    from moto.core.serialize import ResponseSerializer

    serialise = ResponseSerializer._serialize_type_structure

    def quickly(self: Any, serialized: Any, value: Any, shape: Any, key: str) -> None:
        if shape.name != "AttributeValue" or type(value) is not dict or not key:
            return serialise(self, serialized, value, shape, key)
        wrapper = self.MAP_TYPE()
        for name in value:
            self._serialize(wrapper, value[name], shape.members[name], name)
        return self._default_serialize(serialized, wrapper, shape, key)

    patch.setattr(ResponseSerializer, "_serialize_type_structure", quickly)


def _compare_plain_values_at_once(patch: pytest.MonkeyPatch) -> None:
    """moto asks a value for six types before it compares, measures or copies it."""
    kind: Any = importlib.import_module("moto.dynamodb.models.dynamo_type").DynamoType
    cast_value, size, copied = kind.cast_value.fget, kind.size, kind.__deepcopy__

    @functools.wraps(cast_value)
    def value_of(self: Any) -> Any:
        return self.value if self.type in PLAIN else cast_value(self)

    @functools.wraps(size)
    def size_of(self: Any) -> int:
        if self.type not in PLAIN:
            return int(size(self))
        return len(self.value if isinstance(self.value, bytes) else self.value.encode())

    @functools.wraps(kind.__eq__)
    def equal(self: Any, other: Any) -> bool:
        if other is None or self.type != other.type:
            return False
        return bool(self.value == other.value if self.type in PLAIN else self.cast_value == other.cast_value)

    def copy_of(self: Any, memo: dict[int, Any]) -> Any:
        if self.type not in PLAIN:
            return copied(self, memo)
        copy = kind.__new__(kind)
        copy.type, copy.value = self.type, self.value
        return copy

    patch.setattr(kind, "cast_value", property(value_of))
    patch.setattr(kind, "size", size_of)
    patch.setattr(kind, "__eq__", equal)
    patch.setattr(kind, "__deepcopy__", copy_of)


def _list_the_partition_that_a_query_asks_for(patch: pytest.MonkeyPatch) -> None:
    """moto sorts the whole table for each query, and then takes the items of one partition."""
    from moto.dynamodb.models.table import Table

    query, all_items, asked = Table.query, Table.all_items, threading.local()
    place = list(inspect.signature(query).parameters).index("index_name") - 2

    @functools.wraps(query)
    def query_of(self: Any, hash_key: Any, *args: Any, **options: Any) -> Any:
        if self.range_key_attr and args[place:] and args[place] is None:
            asked.items = list(self.items.get(hash_key, {}).values())
        elif self.range_key_attr and args[place:]:
            keys = options["hash_key_conditions"]
            items = [item for partition in list(self.items.values()) for item in list(partition.values())]
            asked.items = [item for item in items if all(item.attrs.get(name) == value for name, value in keys)]
        try:
            return query(self, hash_key, *args, **options)
        finally:
            asked.items = None

    def items_of(self: Any) -> Any:
        items = getattr(asked, "items", None)
        return all_items(self) if items is None else items

    patch.setattr(Table, "query", query_of)
    patch.setattr(Table, "all_items", items_of)


def _look_names_up_once(patch: pytest.MonkeyPatch) -> None:
    """botocore parses signatures of handlers and renames events for each client, and builds its name for each request; moto
    lists a class's methods."""
    from botocore import compat, hooks, useragent
    from botocore.hooks import EventAliaser
    from moto.core import responses

    takes_any_name: Any = compat.accepts_kwargs

    def accepts_kwargs(handler: Any) -> bool:
        code = getattr(handler, "__code__", None)
        return bool(takes_any_name(handler) if code is None else code.co_flags & inspect.CO_VARKEYWORDS)

    patch.setattr(hooks, "accepts_kwargs", accepts_kwargs)
    aliases: Any = EventAliaser(None)
    renamed = functools.cache(aliases._alias_event_name)

    def name_of(self: Any, event_name: str) -> str:
        return str(renamed(event_name))

    patch.setattr(EventAliaser, "_alias_event_name", name_of)
    for module, name in (
        (useragent, "sanitize_user_agent_string_component"),
        (responses, "method_names_from_class"),
        (responses, "camelcase_to_underscores"),
    ):
        patch.setattr(module, name, functools.cache(getattr(module, name)))


def _read_replaced_items_from_memory(patch: pytest.MonkeyPatch) -> None:
    """The guard asks for the items that a write replaces, since they decide its price: a request more for each write."""
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.dynamodb.models import dynamodb_backends

    from turnlog.testing import aws
    from turnlog.testing.dynamodb_rules import key_of, table_of, written_keys

    ask = aws.Guard._old_items

    def old_items(self: Any, client: Any, operation: str, params: Any) -> dict[tuple[str, str], Any]:
        if self._turn is not aws._ONE_AT_A_TIME:  # an emulator
            return ask(self, client, operation, params)
        table = dynamodb_backends[DEFAULT_ACCOUNT_ID][client.meta.region_name].tables.get(table_of(params))
        items = dict[tuple[str, str], Any]()
        for pk, sk in map(key_of, written_keys(operation, params)) if table is not None else ():
            item = table.get_item(*(_plain_type(text) for text in (pk, sk)))
            if item is not None:
                items[pk, sk] = {name: {value.type: value.value} for name, value in item.attrs.items()}
        return items

    patch.setattr(aws.Guard, "_old_items", old_items)


def _plain_type(text: str) -> Any:
    kind: Any = importlib.import_module("moto.dynamodb.models.dynamo_type").DynamoType
    return kind({"S": text})


def _find_who_answers_an_address_once(patch: pytest.MonkeyPatch) -> None:
    """moto compares the address of each request with those of 200 services, then makes a list of all addresses of the one."""
    from moto import backend_index, backends
    from moto.core import botocore_stubber
    from moto.core.base_backend import BaseBackend
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.core.request import normalize_request
    from moto.core.utils import get_equivalent_url_in_aws_domain
    from moto.moto_api._internal.moto_random import MotoRandom
    from werkzeug.exceptions import HTTPException

    stubber: Any = botocore_stubber.BotocoreStubber
    process, urls_of = stubber.process_request, BaseBackend.urls.fget  # type: ignore[attr-defined]
    urls = dict[tuple[type, tuple[str, ...]], Any]()

    def cached_urls(self: Any) -> Any:
        key = type(self), tuple(self.url_bases)
        if key not in urls:
            urls[key] = urls_of(self)
        return urls[key]

    @functools.lru_cache(4096)
    def answering(address: str) -> Callable[..., Any] | None:
        for service, pattern in backend_index.backend_url_patterns:
            if pattern.match(address) and service in ("dynamodb", "s3", "sqs", "sts"):
                regions: Any = backends.get_backend(service)[DEFAULT_ACCOUNT_ID]
                backend = regions["us-east-1" if "us-east-1" in regions else "aws"]
                for url, method in backend.urls.items():
                    if re.match(url, address):
                        return method  # type: ignore[no-any-return]
            elif pattern.match(address):
                break
        return None

    @functools.wraps(process)
    def process_request(self: Any, request: Any) -> Any:
        parsed, _ = get_equivalent_url_in_aws_domain(request.url)
        method = answering(f"{parsed.scheme}://{parsed.netloc}{parsed.path}")
        if method is None:
            return process(self, request)
        asked = normalize_request(request)
        try:
            return method(asked, asked.raw_url, asked.headers)
        except HTTPException as error:
            return error.code, error.get_headers(), error.get_body()

    def random_string(self: Any, length: int = 20, include_digits: bool = True, lower_case: bool = False) -> str:
        pool = string.ascii_letters + (string.digits if include_digits else "")
        text = "".join(self.choices(pool, k=length))
        return text.lower() if lower_case else text

    patch.setattr(BaseBackend, "urls", property(cached_urls))
    patch.setattr(stubber, "process_request", process_request)
    patch.setattr(MotoRandom, "get_random_string", random_string)


def _find_members_of_a_dict_by_name(patch: pytest.MonkeyPatch) -> None:
    """moto makes the list of names that a member of an answer may have, in four spellings, for each member of each answer."""
    from moto.core.serialize import AttributePickerContext, ResponseSerializer

    value_of = ResponseSerializer.get_value

    @functools.wraps(value_of)
    def quickly(self: Any, value: Any, key: str, shape: Any) -> Any:
        picker = self._value_picker
        if type(value) is not dict or getattr(picker, "response_transformers", True):
            return value_of(self, value, key, shape)
        names = vars(shape).setdefault("names_in_a_dict", {})
        if key not in names:
            models = self.operation_model, self.operation_model.service_model
            context = AttributePickerContext({}, key, shape, *models, key_path="")
            names[key] = tuple(dict.fromkeys(picker.get_possible_keys(context)))
        for name in names[key]:
            if "." in name:
                return value_of(self, value, key, shape)
            if name in value:
                return value[name]
        return None

    patch.setattr(ResponseSerializer, "get_value", quickly)


def _leave_signatures_out(patch: pytest.MonkeyPatch) -> None:
    """moto reads who has signed a request, and when, and never checks the signature. Addresses are signed as ever."""
    auth: Any = importlib.import_module("botocore.auth")
    sign = auth.SigV4Auth.add_auth

    def add_auth(self: Any, request: Any) -> None:
        if type(self) is not auth.SigV4Auth or self.credentials is None or ".amazonaws.com" not in request.url:
            return sign(self, request)
        request.context["timestamp"] = auth.get_current_datetime().strftime(auth.SIGV4_TIMESTAMP)
        self._modify_request_before_signing(request)
        scope = f"AWS4-HMAC-SHA256 Credential={self.scope(request)}"
        request.headers["Authorization"] = f"{scope}, SignedHeaders=host, Signature={0:064x}"
        return None

    patch.setattr(auth.SigV4Auth, "add_auth", add_auth)


def _start_at_once(patch: pytest.MonkeyPatch) -> None:
    """moto tells `requests`, which no SDK of AWS uses, of 1,600 addresses; botocore looks for proxies for each client."""
    from botocore.endpoint import EndpointCreator
    from moto.core import models

    def enable(self: Any, reset: bool = True) -> None:
        models.botocore_stubber.enabled = True
        if reset:
            self.reset()
        models.responses_mock.start()

    patch.setattr(models.MockAWS, "_enable_patching", enable)
    patch.setattr(EndpointCreator, "_get_proxies", lambda _creator, _url: {})
