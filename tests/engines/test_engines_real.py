"""The shipped contracts on a real table, bucket and queue, when they are named.

    TURNLOG_TEST_TABLE=… TURNLOG_TEST_BUCKET=… make test      # with credentials and AWS_REGION in the environment

The table is of the schema of `turnlog.testing.aws.create_table`. What the tests write stays: use one made for tests.
"""

from __future__ import annotations

import os

import pytest

from turnlog.engines.aws_clients import Clients
from turnlog.engines.dynamodb import DynamoItemTable
from turnlog.engines.s3 import S3BlobStore
from turnlog.testing.contracts import BlobStoreContract, ItemTableContract

TABLE, BUCKET = os.environ.get("TURNLOG_TEST_TABLE"), os.environ.get("TURNLOG_TEST_BUCKET")
pytestmark = pytest.mark.network


@pytest.mark.skipif(not TABLE, reason="TURNLOG_TEST_TABLE names no real table")
class TestRealItemTable(ItemTableContract):
    index_lag_seconds = 5.0

    @pytest.fixture
    def table(self) -> DynamoItemTable:
        assert TABLE is not None
        return DynamoItemTable(Clients(None).dynamodb, TABLE)


@pytest.mark.skipif(not BUCKET, reason="TURNLOG_TEST_BUCKET names no real bucket")
class TestRealBlobStore(BlobStoreContract):
    @pytest.fixture
    def blobs(self) -> S3BlobStore:
        assert BUCKET is not None
        return S3BlobStore(Clients(None).s3, BUCKET)
