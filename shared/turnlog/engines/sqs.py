"""`JobQueue` on a standard SQS queue and its dead-letter queue."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from turnlog.core.errors import TooLargeError
from turnlog.engines.aws_errors import error_code, translated
from turnlog.ports import Delivery

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import ReceiveMessageRequestTypeDef


_MAX_BODY_BYTES = 1_048_576
_MAX_DELAY_SECONDS = 900
_MAX_RECEIVES = 10
_REDRIVE_SECONDS = 300
"""Time for which a redrive hides the dead letters that it has received from other redrives."""

_OUTDATED_CODES = frozenset(
    {
        *("AWS.SimpleQueueService.MessageNotInflight", "MessageNotInflight"),
        *("InvalidParameterValue", "ReceiptHandleIsInvalid"),
    }
)
"""Codes of SQS for the receipt of a job that is finished or was delivered again."""


@contextmanager
def _unless_outdated(operation: str) -> Iterator[None]:
    """Translate errors as `translated` does, and ignore that the receipt is outdated."""
    with translated(operation):
        try:
            yield
        except ClientError as error:
            if error_code(error) not in _OUTDATED_CODES:
                raise


class SqsJobQueue:
    """Implements `JobQueue`. The queue's redrive policy moves jobs that fail repeatedly to the dead-letter queue.

    A message group on a standard queue keeps no order. It makes the queue fair: one tenant's backlog does not delay the others.
    """

    def __init__(self, client: SQSClient, queue: str, *, look_seconds: int = 1) -> None:
        """``queue`` is a URL, or a name that is resolved at its first use. Its redrive policy names the dead-letter queue.

        ``look_seconds`` is the time that `redrive` waits for a letter: without a wait, SQS queries only some of its hosts.
        """
        self._client = client
        self._look_seconds = look_seconds
        self._queue = queue
        self._dead_letters: str | None = None
        self._urls: dict[str, str] = {}

    def send(self, body: str, *, group: str, delay_seconds: int = 0) -> str:
        """Implement `JobQueue`; ``delay_seconds`` is at most 900. Raise `TooLargeError` for a body over 1 MiB."""
        if not 0 <= delay_seconds <= _MAX_DELAY_SECONDS:
            raise ValueError(f"delay_seconds must be within 0 and {_MAX_DELAY_SECONDS}, not {delay_seconds!r}")
        size = len(body.encode())
        if size > _MAX_BODY_BYTES:
            raise TooLargeError(
                f"the job has {size} bytes, over {_MAX_BODY_BYTES}",
                details={"size_bytes": size, "limit_bytes": _MAX_BODY_BYTES},
            )
        with translated("SendMessage"):
            answer = self._client.send_message(
                QueueUrl=self._url(self._queue), MessageBody=body, MessageGroupId=group, DelaySeconds=delay_seconds
            )
        return answer["MessageId"]

    def receive(self, *, limit: int = _MAX_RECEIVES) -> Sequence[Delivery]:
        return self._receive(self._queue, limit, visibility_seconds=None)

    def acknowledge(self, receipt: str) -> None:
        self._delete(self._queue, receipt)

    def _delete(self, queue: str, receipt: str) -> None:
        with _unless_outdated("DeleteMessage"):
            self._client.delete_message(QueueUrl=self._url(queue), ReceiptHandle=receipt)

    def redrive(self, group_of: Callable[[str], str | None]) -> int:
        """Implement `Redrivable`: send each letter to the queue, then delete it from the dead-letter queue."""
        dead, moved = self._dead_letter_queue(), 0
        seen, left = set[str](), list[str]()
        try:
            while dead:
                letters = self._receive(
                    dead, _MAX_RECEIVES, visibility_seconds=_REDRIVE_SECONDS, wait_seconds=self._look_seconds
                )
                fresh = [letter for letter in letters if letter.job_id not in seen]
                if not fresh:
                    break
                for letter in fresh:
                    seen.add(letter.job_id)
                    group = group_of(letter.body)
                    if group is None:
                        left.append(letter.receipt)
                        continue
                    self.send(letter.body, group=group)
                    self._delete(dead, letter.receipt)
                    moved += 1
        finally:
            for receipt in left:
                with _unless_outdated("ChangeMessageVisibility"):
                    self._client.change_message_visibility(
                        QueueUrl=self._url(dead), ReceiptHandle=receipt, VisibilityTimeout=0
                    )
        return moved

    def _dead_letter_queue(self) -> str:
        """Return the name of the dead-letter queue; empty if there is none."""
        if self._dead_letters is None:
            with translated("GetQueueAttributes"):
                answer = self._client.get_queue_attributes(
                    QueueUrl=self._url(self._queue), AttributeNames=["RedrivePolicy"]
                )
            policy = json.loads(answer.get("Attributes", {}).get("RedrivePolicy", "{}"))
            self._dead_letters = str(policy.get("deadLetterTargetArn", "")).rpartition(":")[2]
        return self._dead_letters

    def _url(self, queue: str) -> str:
        if "://" in queue:
            return queue
        if queue not in self._urls:
            with translated("GetQueueUrl"):
                self._urls[queue] = self._client.get_queue_url(QueueName=queue)["QueueUrl"]
        return self._urls[queue]

    def _receive(
        self, queue: str, limit: int, *, visibility_seconds: int | None, wait_seconds: int = 0
    ) -> Sequence[Delivery]:
        request: ReceiveMessageRequestTypeDef = {
            "QueueUrl": self._url(queue),
            "MaxNumberOfMessages": limit,
            "WaitTimeSeconds": wait_seconds,
            "MessageSystemAttributeNames": ["ApproximateReceiveCount"],
        }
        if visibility_seconds is not None:
            request["VisibilityTimeout"] = visibility_seconds
        with translated("ReceiveMessage"):
            answer = self._client.receive_message(**request)
        return tuple(
            Delivery(
                job_id=message["MessageId"],
                body=message["Body"],
                receipt=message["ReceiptHandle"],
                receives=int(message["Attributes"]["ApproximateReceiveCount"]),
            )
            for message in answer.get("Messages", [])
        )
