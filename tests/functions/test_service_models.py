"""Our way of reading botocore's descriptions of services gives what botocore's own gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from botocore.exceptions import DataNotFoundError, UnknownServiceError
from botocore.loaders import Loader, create_loader
from botocore.session import get_session

from turnlog.engines.aws_clients import Clients
from turnlog.engines.aws_service_models import ServiceModels, use_service_models

SERVICES = ("dynamodb", "s3", "sqs", "bedrock-runtime", "bedrock-agentcore")
TYPES = ("service-2", "paginators-1", "waiters-2", "endpoint-rule-set-1")


@pytest.fixture(scope="module")
def usual() -> Loader:
    return create_loader()


def _ours(usual: Loader) -> ServiceModels:
    return ServiceModels(list(usual.search_paths))


def _read(loader: Loader, service: str, kind: str) -> str:
    try:
        return json.dumps(loader.load_service_model(service, kind))
    except DataNotFoundError as error:
        return type(error).__name__


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_described_alike(usual: Loader, service: str) -> None:
    ours = _ours(usual)
    for kind in TYPES:
        assert _read(ours, service, kind) == _read(usual, service, kind)
    assert ours.determine_latest_version(service, TYPES[0]) == usual.determine_latest_version(service, TYPES[0])


def test_what_belongs_to_no_service_is_read_alike(usual: Loader) -> None:
    ours = _ours(usual)
    for name in ("endpoints", "partitions", "_retry", "sdk-default-configuration"):
        (data, path), (usual_data, usual_path) = ours.load_data_with_path(name), usual.load_data_with_path(name)
        assert (json.dumps(data), path) == (json.dumps(usual_data), usual_path)
        assert ours.is_builtin_path(path)


def test_what_is_not_there_is_the_same_error(usual: Loader) -> None:
    for loader in (_ours(usual), usual):
        with pytest.raises(UnknownServiceError, match="dynamodbx"):
            loader.load_service_model("dynamodbx", "service-2")
        with pytest.raises(DataNotFoundError):
            loader.load_data("endpointsx")
        with pytest.raises(DataNotFoundError):
            loader.load_service_model("dynamodb", "service-2", "2000-01-01")


def test_the_folders_of_aws_data_path_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    folder = tmp_path / "of-mine" / "2020-01-01"
    folder.mkdir(parents=True)
    (folder / "service-2.json").write_text('{"metadata": {}}', encoding="utf-8")
    session = get_session()
    use_service_models(session)
    loader = session.get_component("data_loader")
    assert loader.load_service_model("of-mine", "service-2") == {"metadata": {}}
    assert loader.determine_latest_version("dynamodb", "service-2") == "2012-08-10"


def test_clients_of_a_region_read_that_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    client = Clients("eu-central-1").open("dynamodb", read_timeout_seconds=5)
    assert type(client.meta.service_model.metadata) is dict, "botocore's own loader makes an OrderedDict"
