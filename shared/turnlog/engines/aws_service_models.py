"""Descriptions of AWS services from botocore, read the short way: making the first client takes half the time."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from botocore.exceptions import DataNotFoundError, UnknownServiceError
from botocore.loaders import JSONFileLoader, Loader, create_loader
from botocore.session import Session


class ServiceModels(Loader):
    """A loader of botocore's data that reads only the requested service.

    botocore's own loader lists the folders of all its 400 services before it reads one, and parses each JSON object into an
    ``OrderedDict``.
    """

    def __init__(self, search_paths: list[str]) -> None:
        super().__init__(search_paths, _Files(), include_default_search_paths=False)

    def list_available_services(self, type_name: str) -> list[str]:
        """List the services that have a folder, whichever types of files it holds."""
        paths = (Path(path) for path in self.search_paths)
        return sorted({folder.name for path in paths if path.is_dir() for folder in path.iterdir()})

    def load_service_model(self, service_name: str, type_name: str, api_version: str | None = None) -> Any:
        """Load a service's model; raise ``UnknownServiceError`` for a service without a file of this type, as botocore does."""
        if api_version is None:
            try:
                api_version = self.determine_latest_version(service_name, type_name)
            except DataNotFoundError as error:
                raise UnknownServiceError(service_name=service_name, known_service_names="those with it") from error
        return super().load_service_model(service_name, type_name, api_version)


class _Files(JSONFileLoader):
    def load_file(self, file_path: str) -> Any:
        for path, is_packed in ((f"{file_path}.json", False), (f"{file_path}.json.gz", True)):
            try:
                data = Path(path).read_bytes()
            except FileNotFoundError:
                continue
            return json.loads(gzip.decompress(data) if is_packed else data)
        return None


def use_service_models(session: Session) -> None:
    """Make the session load its data by `ServiceModels`, from ``AWS_DATA_PATH`` and then botocore's own folder."""
    usual = create_loader(session.get_config_variable("data_path"))
    session.register_component("data_loader", ServiceModels(list(usual.search_paths)))
