"""Creates the AWS resources that Turnlog needs, for tests on moto, on an emulator or in an account."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from turnlog.ports import INDEX_KEYS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import CreateTableInputTypeDef
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient


def create_table(client: DynamoDBClient, name: str) -> None:
    """Create the table with its two indexes, wait until it can be used, and enable time to live on ``ttl``."""
    keys = [("pk", "sk"), *INDEX_KEYS.values()]
    request: CreateTableInputTypeDef = {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"} for pair in keys for key in pair],
        "KeySchema": [
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": index,
                "KeySchema": [
                    {"AttributeName": partition, "KeyType": "HASH"},
                    {"AttributeName": sort, "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
            for index, (partition, sort) in INDEX_KEYS.items()
        ],
    }
    client.create_table(**request)
    client.get_waiter("table_exists").wait(TableName=name)
    client.update_time_to_live(TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": "ttl"})


def create_bucket(client: S3Client, name: str) -> None:
    """Create a bucket in the client's region, with versioning as in the template."""
    region = client.meta.region_name
    if region == "us-east-1":
        client.create_bucket(Bucket=name)
    else:
        client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": region})  # type: ignore[typeddict-item]
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})


def create_queue(client: SQSClient, name: str, *, visibility_seconds: int, max_receives: int) -> tuple[str, str]:
    """Create a standard queue and its dead-letter queue, and return the URLs of both."""
    dead_url = client.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    attributes = client.get_queue_attributes(QueueUrl=dead_url, AttributeNames=["QueueArn"])["Attributes"]
    redrive = {"deadLetterTargetArn": attributes["QueueArn"], "maxReceiveCount": str(max_receives)}
    url = client.create_queue(
        QueueName=name,
        Attributes={"VisibilityTimeout": str(visibility_seconds), "RedrivePolicy": json.dumps(redrive)},
    )["QueueUrl"]
    return url, dead_url
