"""What only AWS does: a key of KMS that is off, a permission that is gone, half of a batch, a request that the SDK sends twice.

Whatever happens, a call is done once, or ends in a typed error and is done when it is made again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.conftest import Harness
from tests.effort import is_full
from tests.faulty_engines import FaultyGuard
from tests.log.everything import blobs_of, items_of
from tests.support.steps import HUGE, STEPS, begin, check
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.core.errors import UnavailableError
from turnlog.core.identity import Owner
from turnlog.engines.aws_clients import Clients
from turnlog.engines.aws_errors import DENIED
from turnlog.engines.dynamodb import DynamoItemTable
from turnlog.privacy.erase import SECOND_PASS_SECONDS
from turnlog.settings import Settings

WRITES = ("PutItem", "BatchWriteItem")
REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "table": ("AccessDeniedException", ()),
    "key of the blobs": ("KMS.DisabledException", ("PutObject", "GetObject")),
    "table, writes": ("AccessDeniedException", WRITES),
    "key of the queue": ("KMS.AccessDeniedException", ("SendMessage",)),
}
"""What is denied -> the service's code, and the operations that get it."""


@pytest.mark.parametrize("step", STEPS)
def test_what_is_denied_is_a_typed_error_and_goes_on_when_it_is_mended(
    moto: Harness, step: str, tells: Callable[..., None]
) -> None:
    met, first = 0, list(STEPS).index(step)
    tried = [*REFUSED.values()] if is_full() else [[*REFUSED.values()][first % len(REFUSED)]]
    for at, (code, operations) in enumerate(tried):
        log = moto.log(user=f"user-{at}")
        begin(log, step)
        before, meets = items_of(moto), moto.meter.often_met
        moto.meter.fail_often(1, "before", seed=1, code=code, operations=operations)
        try:
            STEPS[step](log)
        except UnavailableError as error:
            assert error.error_code == DENIED and code in str(error)
            if operations in ((), WRITES):
                assert items_of(moto) == before, "nothing is half written"
        else:
            assert operations not in ((), WRITES), "who may not write does not say that he has"
        moto.meter.clear_faults()
        met += moto.meter.often_met - meets
        answer = STEPS[step](log)
        assert STEPS[step](log) == answer
        check(log, step)
    if met:
        tells("denied", step, met)


def test_a_blob_that_can_not_be_read_is_no_missing_one(moto: Harness, tells: Callable[..., None]) -> None:
    session = moto.log().sessions.create("s")
    session.append({"role": "user", "content": "hi"}, HUGE)
    session.documents.put("large", random.Random(1).randbytes(300_000))
    for read in (lambda: list(session.messages()), lambda: session.documents.get("large")):
        moto.meter.fail_often(1, "before", seed=1, code="KMS.DisabledException", operations=["GetObject"])
        with pytest.raises(UnavailableError) as raised:
            read()
        assert raised.value.error_code == DENIED
        moto.meter.clear_faults()
        assert read()
    tells("denied", "read", 2)


def test_a_session_is_read_and_erased_with_keys_left_unprocessed(moto: Harness, tells: Callable[..., None]) -> None:
    log = moto.log()
    session = log.sessions.create("s")
    for at in range(6):
        session.append({"role": "user", "content": f"{at}"}, {**HUGE, "content": HUGE["content"][: 9_000 + at]})
    session.documents.put_many({f"d{at}": b"x" for at in range(8)})
    wanted = [message.body for message in session.messages()], session.context(budget=10**6, policy="full").messages
    held = hold_back(moto)
    assert (
        [message.body for message in session.messages()],
        session.context(budget=10**6, policy="full").messages,
    ) == wanted
    assert len(session.documents.get_many([f"d{at}" for at in range(8)])) == 8
    tells("unprocessed", "read", sum(held))
    assert len(held) >= 3
    held.clear()
    session.erase()
    session.backend.run_jobs()
    moto.clock.advance(SECOND_PASS_SECONDS + 1)
    session.backend.run_jobs()
    assert "something" not in str(items_of(moto)) and blobs_of(moto) == {}
    assert not any("b" in item for item in items_of(moto) if "#S#s" in item["pk"])
    tells("unprocessed", "erase", sum(held))
    assert len(held) >= 3


def test_a3_what_the_sdk_sends_twice_without_a_key_is_one_commit(moto: Harness, tells: Callable[..., None]) -> None:
    client = Clients("eu-central-1", max_attempts=2).dynamodb
    guard = FaultyGuard.attach(client)
    table = DynamoItemTable(client, "turnlog", sleep=moto.clock.sleep)
    engine = replace(moto.app.engine, items=table)
    app = Application(engine, Settings(), clock=moto.clock, ids=moto.app.ids)
    session = Turnlog(InProcessBackend(app, Owner.of("acme", "ada"))).sessions.create("s")
    guard.fail(2, "after")  # the query of the log's end, then the put
    result = session.append({"role": "user", "content": "once"})
    assert guard.faults_left == 0
    assert [message.body["content"] for message in session.messages()] == ["once"] and result.head == 2
    tells("no answer after", "append without a key, sent twice by the SDK")


def test_e3_versions_that_s3_keeps_are_no_erased_session(moto: Harness, tells: Callable[..., None]) -> None:
    log = moto.log()
    session = log.sessions.create("s")
    session.append({"role": "user", "content": "hi"}, HUGE)
    job, events = session.erase(), moto.clients.s3.meta.events

    def keep(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        context["kept"] = [
            {"Key": item["Key"], "Code": "AccessDenied", "Message": "x"} for item in params["Delete"]["Objects"]
        ]
        params["Delete"] = {**params["Delete"], "Objects": [{"Key": "none", "VersionId": "none"}]}

    def say_so(parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        parsed["Errors"] = context["kept"]

    events.register("provide-client-params.s3.DeleteObjects", keep)
    events.register("after-call.s3.DeleteObjects", say_so)
    for _ in range(3):
        session.backend.run_jobs()
        assert log.job(job.job_id).status == "queued" and len(blobs_of(moto)) == 1
        moto.clock.advance(SECOND_PASS_SECONDS + 1)
        log.redrive(job.job_id)
    events.unregister("provide-client-params.s3.DeleteObjects", keep)
    events.unregister("after-call.s3.DeleteObjects", say_so)
    while log.job(job.job_id).status != "done":
        moto.clock.advance(SECOND_PASS_SECONDS + 1)
        log.redrive(job.job_id)
        session.backend.run_jobs()
    assert blobs_of(moto) == {}
    tells("denied", "erase")


def hold_back(moto: Harness) -> list[int]:
    """From now on the table takes one part of each batch, by chance, and leaves the others. How many keys it has left."""
    left, chance = list[int](), random.Random(7)
    answers = {"BatchGetItem": "UnprocessedKeys", "BatchWriteItem": "UnprocessedItems"}

    def take_a_part(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        ((name, batch),) = params["RequestItems"].items()
        entries = batch["Keys"] if isinstance(batch, dict) else batch
        count = chance.randint(1, len(entries))
        taken, others = entries[:count], entries[count:]
        if not others:
            return
        left.append(len(others))
        params["RequestItems"] = {name: {**batch, "Keys": taken} if isinstance(batch, dict) else taken}
        context["left"] = {name: {**batch, "Keys": others} if isinstance(batch, dict) else others}

    def give_back(parsed: dict[str, Any], context: dict[str, Any], model: Any, **_: Any) -> None:
        if "left" in context:
            parsed[answers[model.name]] = context["left"]

    events = moto.clients.dynamodb.meta.events
    for operation in answers:
        events.register(f"provide-client-params.dynamodb.{operation}", take_a_part)
        events.register(f"after-call.dynamodb.{operation}", give_back)
    return left
