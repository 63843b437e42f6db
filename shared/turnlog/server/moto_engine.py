"""The moto engine: the service of template.yaml in this process, each route and queue handled by its Lambda function.

    with moto_service(clock) as service:
        server = HttpServer(service.answer, port=0).start()

moto emulates DynamoDB, S3 and SQS. The guard of `turnlog.testing.aws` refuses requests that the real DynamoDB refuses.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from turnlog.app import Application, make_application
from turnlog.core.errors import InvalidInputError
from turnlog.engines import aws_clients
from turnlog.engines.aws_clients import Clients
from turnlog.http.api import Admit, Api, ApiAnswer, ApiRequest
from turnlog.http.lambda_workers import make_worker
from turnlog.ports import QUEUES, Clock, JobQueue
from turnlog.routing import ROUTES, RouteTable, routes_of
from turnlog.server.lambda_calls import Poller
from turnlog.server.stack import REGION, Function, Stack, deploy, expand, need_extra, template_path, wiring_problems
from turnlog.settings import LOCAL_OPERATOR, Settings

_LOCAL = {
    "TURNLOG_IDENTITY": "jwt",
    "TURNLOG_TENANT_CLAIM": "tenant",
    "TURNLOG_USER_CLAIM": "sub",
    "TURNLOG_OPERATOR_SCOPE": LOCAL_OPERATOR,
}
"""The only difference from the template: headers tell the caller's identity, as in every `turnlog serve`."""


class MotoService:
    """The functions of a deployed stack. Functions with equal environments share an application in this process."""

    def __init__(self, stack: Stack, clients: Clients, clock: Clock) -> None:
        self.stack = stack
        self._clients = clients
        self._clock = clock
        self._apps: dict[tuple[tuple[str, str], ...], Application] = {}
        by_function = {name: self._api(stack.functions[name]) for name in set(stack.routes.values())}
        self._apis = {route: by_function[name] for route, name in stack.routes.items()}
        self._routes = RouteTable(ROUTES)
        self._pollers: list[Poller] = []

    def app_of(self, function: str) -> Application:
        """Return the application of a function, over the engine that its environment names."""
        environment = {**self.stack.functions[function].environment, **_LOCAL}
        key = tuple(sorted(environment.items()))
        if key not in self._apps:
            self._apps[key] = make_application(Settings.from_environment(environment), clock=self._clock)
        return self._apps[key]

    def answer(self, request: ApiRequest, admit: Admit, seconds_left: Callable[[], float] | None = None) -> ApiAnswer:
        """Return the answer of the function that serves the request's route."""
        match = self._routes.find(request.method, request.path)
        api = self._apis[match[0].key] if match is not None else next(iter(self._apis.values()))
        return api.answer(request, admit, seconds_left)

    def queue_of(self, worker: str) -> JobQueue:
        """Return the queue that invokes a function."""
        from turnlog.engines.sqs import SqsJobQueue

        return SqsJobQueue(self._clients.sqs, self.stack.queues[worker])

    def start_workers(self) -> None:
        """Poll the queue of each worker until `close`."""
        self._pollers = [self._poller(self.stack.functions[name]).start() for name in self.stack.queues]

    def close(self) -> None:
        for poller in self._pollers:
            poller.stop()
        for app in self._apps.values():
            app.close()

    def _api(self, function: Function) -> Api:
        app = self.app_of(function.name)
        return Api(routes_of(function.resource), lambda: app)

    def _poller(self, function: Function) -> Poller:
        worker = make_worker(QUEUES[function.resource], self.app_of(function.name))
        # Nothing is scheduled here: the eraser's poller makes the call that the template schedules.
        scheduled = next(name for name, other in self.stack.functions.items() if other.resource == "retention")
        chore = self.app_of(scheduled).retain_sessions if function.resource == "erase" else None
        return Poller(self.queue_of(function.name), worker, clock=self._clock, chore=chore)


@contextmanager
def moto_service(clock: Clock) -> Iterator[MotoService]:
    """Deploy the template's service with its workers within the block. All data is lost at its end; AWS is never called.

    Raises `InvalidInputError` when the extra is missing, or when the template's routes differ from the route table.
    """
    need_extra()
    from moto import mock_aws

    from turnlog.testing.aws import real_item_limit

    with ExitStack() as stack:
        stack.enter_context(no_real_credentials())
        expanded = expand(template_path())
        problems = wiring_problems(expanded)
        if problems:
            raise InvalidInputError(f"template.yaml: {'; '.join(problems)}", code="wiring")
        stack.enter_context(mock_aws())
        stack.enter_context(real_item_limit())
        stack.enter_context(quick_answers())
        stack.enter_context(no_addresses())
        clients = stack.enter_context(guarded_clients())(REGION)
        service = MotoService(deploy(expanded, clients), clients, clock)
        stack.callback(service.close)
        service.start_workers()
        yield service


@contextmanager
def no_real_credentials() -> Iterator[None]:
    """Hide AWS credentials, profiles, regions and endpoints of the environment within the block; made-up ones replace them."""
    made_up = {
        "AWS_ACCESS_KEY_ID": "made-up",
        "AWS_SECRET_ACCESS_KEY": "made-up",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    others = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with mock.patch.dict(os.environ, {**others, **made_up}, clear=True):
        yield


@contextmanager
def guarded_clients() -> Iterator[type[Clients]]:
    """Attach a `Guard` to every AWS client that is created within the block, also by an application itself.

    The guard refuses requests to moto that the real DynamoDB would refuse.
    """
    from turnlog.testing.aws import Guard

    class GuardedClients(Clients):
        def make(self, service: str, read_timeout_seconds: float) -> Any:
            client = super().make(service, read_timeout_seconds)
            Guard.attach(client)
            return client

    with mock.patch.object(aws_clients, "Clients", GuardedClients):
        yield GuardedClients


@contextmanager
def no_addresses() -> Iterator[None]:
    """Give blobs no addresses within the block: those of moto's buckets are of the real AWS, so the service sends blobs itself."""
    from turnlog.engines.s3 import S3BlobStore

    with mock.patch.multiple(S3BlobStore, url=lambda *_, **__: None, upload_url=lambda *_, **__: None):
        yield


@contextmanager
def quick_answers() -> Iterator[None]:
    """Speed up moto within the block: it serialises an attribute value by its type and not by trying all ten types.

    Half of moto's time went into that.
    """
    from moto.core.serialize import ResponseSerializer

    as_moto_does = ResponseSerializer._serialize_type_structure

    def serialize(self: Any, serialized: Any, value: Any, shape: Any, key: str) -> None:
        if not key or shape.name != "AttributeValue" or not isinstance(value, dict):
            as_moto_does(self, serialized, value, shape, key)
            return
        written = self.MAP_TYPE()
        for kind in value:
            self._serialize_structure_member(written, value, shape.members[kind], kind)
        self._default_serialize(serialized, written, shape, key)

    with mock.patch.object(ResponseSerializer, "_serialize_type_structure", serialize):
        yield
