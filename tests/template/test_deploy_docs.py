"""docs/how-to/deploy.md: its commands name what is there, its calls are answered, and what it removes is removed."""

from __future__ import annotations

import base64
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import botocore.session
import jmespath
import pytest
from moto import mock_aws

from tests.http.events import event
from tests.log.everything import sqlite_items
from tests.support.templates import template
from turnlog import Turnlog
from turnlog.app import make_application
from turnlog.engines import SystemClock
from turnlog.engines.sqlite import SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.http.lambda_api import make_handler
from turnlog.routing import ROUTES
from turnlog.settings import Settings

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^# (\d+) +.*\n((?:.+\\\n)*.+)$", PAGE, re.M)
"""Number and command; a command goes on in the next line behind a backslash."""
EXPECTED = re.findall(r"^# \d+ +.*\n(?:.+\\\n)*.+\n# {4}-> (.+)$", PAGE, re.M)


def test_there_are_ten_commands_and_each_says_what_it_prints() -> None:
    assert [int(number) for number, _ in COMMANDS] == list(range(1, 11))
    assert all(command and not command.startswith("#") for _, command in COMMANDS)
    assert len(EXPECTED) == len(COMMANDS), "each says what it prints"


def test_what_they_name_is_there() -> None:
    outputs = template().document["Outputs"]
    assert set(re.findall(r"OutputKey=='(\w+)'", PAGE) + re.findall(r"\$\(out (\w+)\)", PAGE)) <= set(outputs)
    config = (ROOT / "samconfig.toml").read_text(encoding="utf-8")
    named = set(re.findall(r"--config-env (\w+)", PAGE))
    assert named == {"dev", "prod"} and all(f"[{item}.deploy.parameters]" in config for item in named)
    targets = "".join(path.read_text(encoding="utf-8") for path in [ROOT / "Makefile", *(ROOT / "mk").glob("*.mk")])
    assert all(
        re.search(rf"^{target}\b[^=]*:", targets, re.M)
        for target in re.findall(r"make (\w+)(?=[`\n ]*(?:&&|`|\n))", PAGE)
    )
    typer_main, cli = (importlib.import_module(name) for name in ("typer.main", "turnlog.cli.app"))
    commands = typer_main.get_command(cli.app).list_commands(None)
    assert set(re.findall(r"`turnlog (\w+)", PAGE)) <= set(commands)


def test_its_calls_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, by the service in memory: what is signed is the handlers' caller."""
    app = make_application(Settings(engine="memory://"))
    handler, statuses = make_handler(ROUTES, app), list[int]()
    for (_, command), expected in zip(COMMANDS[6:], EXPECTED[6:], strict=True):
        match = re.fullmatch(r"(?:curl -sS|signed) \$URL(/\S+)(?: -d '(.+)')?", command)
        assert match is not None, command
        method = "POST" if match[2] else "GET"
        answer = handler(event(method, match[1], raw=match[2]), None)
        statuses.append(answer["statusCode"])
        printed = answer["body"].replace('"engine":"memory"', '"engine":"dynamodb"')
        assert re.fullmatch(".*".join(map(re.escape, expected.split("…"))), printed, re.S), printed
    app.close()
    assert statuses == [200, 201, 201, 200]


def test_what_stays_of_the_stack_is_removed_by_name() -> None:
    resources = template().document["Resources"]
    data = {"AWS::DynamoDB::Table": "delete-table", "AWS::S3::Bucket": "delete-bucket"}
    kept = {resource["Type"] for resource in resources.values() if resource.get("DeletionPolicy") == "Retain"}
    assert kept == {*data, "AWS::S3::BucketPolicy"}, "the policy goes with its bucket"
    assert all(command in PAGE for command in data.values())


@mock_aws
def test_the_query_of_the_removal_empties_a_bucket_with_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    query = re.search(r"--query '(\{Objects.+?\})' > versions.json", PAGE)
    assert query is not None
    s3: Any = botocore.session.get_session().create_client("s3", region_name="us-east-1")
    s3.create_bucket(Bucket="removed")
    s3.put_bucket_versioning(Bucket="removed", VersioningConfiguration={"Status": "Enabled"})
    for at in range(5):
        s3.put_object(Bucket="removed", Key=f"k{at % 2}", Body=b"x")
    for markers in (0, 1):
        if markers:
            s3.put_object(Bucket="removed", Key="k", Body=b"x")
            s3.delete_object(Bucket="removed", Key="k")
        hits = jmespath.search(query[1], s3.list_object_versions(Bucket="removed"))
        assert len(hits["Objects"]) == (2 if markers else 5)
        s3.delete_objects(Bucket="removed", Delete=hits)
        left = jmespath.search(query[1], s3.list_object_versions(Bucket="removed"))
        assert "VersionId" not in json.dumps(left), "the loop of the page ends"
    s3.delete_bucket(Bucket="removed")


def test_the_check_of_a_restored_table_runs_and_finds_damage(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
    url = f"sqlite:///{tmp_path / 'agent.db'}"
    with Turnlog.open(url, tenant="111122223333", user="agent-backend") as log:
        log.sessions.create("s").append(
            {"role": "user", "content": "hi"}, {"role": "assistant", "content": os.urandom(50_000).hex()}
        )

    def checked() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"RESTORED": url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    run = checked()
    assert (run.returncode, run.stdout.split()[:3]) == (0, ["s", "3", "2"])
    for blob in (tmp_path / "agent.db.blobs").rglob("*"):
        if blob.is_file():
            blob.unlink()
    run = checked()
    assert run.returncode == 1 and "CorruptError" in run.stderr


@mock_aws
def test_what_was_erased_after_the_moment_of_a_restore_is_erased_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan of the page finds the jobs of all owners; the tool asks for them in a table of the moment."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    old, restored, monthly = tmp_path / "old.db", tmp_path / "restored.db", 30 * 86_400_000

    def opened(path: Path, user: str) -> Turnlog:
        return Turnlog.open(f"sqlite:///{path}", user=user, worker=False)

    for user in ("ada", "a user with spaces"):
        with opened(old, user) as log:
            log.sessions.create("expires", ttl_days=1)
            for name in ("stays", "erased", "redacted", "begun"):
                log.sessions.create(name).append({"role": "user", "content": "secret"})
            log.sessions.get("begun").erase()
    with opened(old, "eve") as log:
        log.sessions.create("s").append({"role": "user", "content": "secret"})
    shutil.copy(old, restored)
    for user in ("ada", "a user with spaces"):
        with opened(old, user) as log:
            log.sessions.get("erased").erase()
            log.sessions.get("redacted").redact(2)
            log.sessions.create("later").erase()
            log.run_jobs()
    with opened(old, "eve") as log:
        log.erase_me()
        log.run_jobs()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.json").write_text(json.dumps({"Items": scanned(old, since_ms=SystemClock().now_ms() - monthly)}))
    run = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "erase_again.py"), "jobs.json"],
        env=os.environ | {"ENGINE": f"sqlite:///{restored}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 9, run.stdout
    for user in ("ada", "a user with spaces"):
        with opened(restored, user) as log:
            assert sorted(session.session_id for session in log.sessions.list()) == ["expires", "redacted", "stays"]
            (message,) = log.sessions.get("redacted").messages()
            assert message.body["content"] == "[redacted]"
            (job,) = (job for job in log.jobs() if job.session_id == "begun")
            log.run_jobs()
            assert log.job(job.job_id).result is not None, "it goes on"
    with opened(restored, "eve") as log:
        assert list(log.sessions.list()) == [] and [job.kind for job in log.jobs()] == ["erase_user"]
    assert scanned(old, since_ms=SystemClock().now_ms() + monthly) == []


def scanned(path: Path, *, since_ms: int) -> list[Any]:
    """What the page's scan finds in a DynamoDB table with the items of a SQLite file, as the AWS CLI prints it."""
    command = re.search(r"--filter-expression '(.+?)'.+?--expression-attribute-values \"(.+?)\" --output", PAGE, re.S)
    assert command is not None
    values = json.loads(command[2].replace('\\"', '"').replace("$SINCE", str(since_ms)))
    client: Any = botocore.session.get_session().create_client("dynamodb", region_name="us-east-1")
    types = {str: "S", int: "N", bytes: "B"}
    client.create_table(
        TableName=f"t{since_ms}",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
    )
    database = SqliteDatabase(path)
    for item in sqlite_items(SqliteItemTable(database)):
        typed = {
            name: {types[type(value)]: str(value) if isinstance(value, int) else value} for name, value in item.items()
        }
        client.put_item(TableName=f"t{since_ms}", Item=typed)
    database.close()
    answer = client.scan(TableName=f"t{since_ms}", FilterExpression=command[1], ExpressionAttributeValues=values)
    return [{**item, "b": {"B": base64.b64encode(item["b"]["B"]).decode()}, "cs": None} for item in answer["Items"]]
