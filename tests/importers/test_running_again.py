"""An import that was stopped goes on, a second one writes nothing, a source that has grown gives what is new, and one that has
changed is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import boundaries, examples
from tests.importers.reading import CODING, CODING_ID, FLAT, held, lost, sample, statuses, told, written
from turnlog.client.model import Turnlog
from turnlog.core.errors import HeadMismatchError, InvalidInputError, SessionEndedError, TurnlogError
from turnlog.importers import SourceChangedError, coding_agents, import_files
from turnlog.importers.flat import read
from turnlog.importers.models import SourceFile, earlier_id
from turnlog.importers.writing import import_session


@pytest.fixture
def log() -> Iterator[Turnlog]:
    """What depends on no engine; what does asks for the harness."""
    with Turnlog.open("memory://") as made:
        yield made


def before_write(log: Turnlog, number: int, action: Callable[[], object]) -> None:
    """Run an action once, before the log sends its write of this number: the first one creates the session."""
    call, writes = log.backend.call, list[str]()

    def counted(operation: str, **fields: Any) -> Any:
        if not operation.startswith(("get_", "read_")):
            writes.append(operation)
            if len(writes) == number:
                action()
        return call(operation, **fields)

    log.backend.call = counted  # type: ignore[assignment, method-assign]


def long_flat(count: int = 60, **more: Any) -> dict[str, Any]:
    messages = [
        {"kind": ("user", "assistant")[at % 2], "content": f"message {at}", "timestamp": 1763683200000 + at * 1000}
        for at in range(count)
    ]
    return {"id": "long", "systemMessage": {"content": "Be brief."}, "messages": messages, **more}


@pytest.mark.parametrize("when", ["before", "after"])
def test_d1_an_import_killed_at_any_call_goes_on_where_it_stopped(harness: Any, tmp_path: Path, when: str) -> None:
    """Calls are counted in a clean run; each is tried in an owner of its own."""
    path = written(tmp_path, "long.json", long_flat(26))
    import_files(harness.log(user="first of all"), [path]).check()
    clean, before = harness.log(user="clean"), harness.faults.calls
    import_files(clean, [path]).check()
    calls, wanted, tried = harness.faults.calls - before, held(clean.sessions.get("long")), 0
    for at in boundaries(calls, harness.name):
        log = harness.log(user=f"u{when}{at}")
        harness.faults.fail(at, when)
        try:
            import_files(log, [path]).check()
        except TurnlogError:
            assert not harness.faults.is_pending
        tried += not harness.faults.is_pending
        harness.faults.clear()
        report = import_files(log, [path]).check()
        assert report.written + report.sessions[0].present == 26
        assert held(log.sessions.get("long")) == wanted
        assert statuses(import_files(log, [path])) == ["same"]
    assert tried == len(boundaries(calls, harness.name)) > 2


def test_two_imports_at_once_write_it_once(harness: Any, tmp_path: Path) -> None:
    """The second one reads before the first one writes, and writes after it."""
    (source,) = read(SourceFile(written(tmp_path, "long.json", long_flat())))
    log, other = harness.log(), harness.log()
    before_write(log, 1, lambda: import_session(other, source))
    import_session(log, source)
    assert [message.body["content"] for message in log.sessions.get("long").messages()] == [
        f"message {at}" for at in range(60)
    ]


def test_who_writes_into_the_session_meanwhile_stops_the_import(log: Turnlog, tmp_path: Path) -> None:
    session = log.sessions.of("long")
    before_write(log, 3, lambda: session.append({"role": "user", "content": "me too"}))
    path = written(tmp_path, "long.json", long_flat())
    (row,) = import_files(log, [path]).sessions
    assert isinstance(row.error, HeadMismatchError)
    assert log.sessions.get("long").info().messages == 26
    assert (row.status, row.messages, row.present, row.written) == ("refused", 60, 0, 25)
    (row,) = import_files(log, [path]).sessions
    assert isinstance(row.error, SourceChangedError)
    assert (row.status, row.messages, row.present, row.written) == ("refused", 60, 25, 0)


@pytest.mark.parametrize("write", ["compress", "put_state", "update"])
def test_a_commit_without_messages_does_not_stop_the_import(harness: Any, tmp_path: Path, write: str) -> None:
    """The background worker publishes a summary of what an import has written so far."""
    log, other = harness.log(), harness.log()
    (source,) = read(SourceFile(written(tmp_path, "long.json", long_flat())))
    session = log.sessions.of("long")
    writes = {
        "compress": lambda: session.compress(keep_loops=1),
        "put_state": lambda: session.put_state({"a": 1}),
        "update": lambda: session.update(title="mine"),
    }
    before_write(log, 2, writes[write])
    before_write(other, 3, lambda: import_session(log, source))
    row = import_session(other, source)
    assert (row.status, row.written) == ("new", 60)
    assert [message.body["content"] for message in session.messages()] == [f"message {at}" for at in range(60)]


def test_a_second_import_sends_no_write(harness: Any, tmp_path: Path) -> None:
    path = written(tmp_path, "long.json", long_flat(lastSentToLLMAt=1763683210000))
    log = harness.log()
    import_files(log, [path]).check()
    sent = list[str]()
    backend = log.backend
    call = backend.call
    backend.call = lambda operation, **given: (sent.append(operation), call(operation, **given))[1]  # type: ignore[assignment, func-returns-value]
    assert statuses(import_files(log, [path])) == ["same"]
    assert set(sent) == {"get_session", "read_messages"}


def test_a_source_that_has_grown_gives_what_is_new_and_its_settings(harness: Any, tmp_path: Path) -> None:
    log = harness.log()
    path = written(tmp_path, "long.json", long_flat(30, lastSentToLLMAt=1763683205000))
    import_files(log, [path]).check()
    written(tmp_path, "long.json", long_flat(61, lastSentToLLMAt=1763683245000, mood="new"))
    dry, report = import_files(log, [path], dry_run=True), import_files(log, [path])
    assert told(dry) == told(report)
    (row,) = report.sessions
    assert (row.status, row.present, row.written) == ("grown", 30, 31)
    imported = (log.sessions.get("long").info().metadata or {})["imported"]
    assert (imported["mood"], imported["last_sent_at"]) == ("new", "2025-11-21T00:00:45.000Z")
    at = {message.position: message.created_at for message in log.sessions.get("long").messages()}
    assert at[imported["last_sent_position"]] == "2025-11-21T00:00:45.000Z"
    assert statuses(import_files(log, [path])) == ["same"]


def test_only_settings_that_have_changed_are_told_as_that(log: Turnlog, tmp_path: Path) -> None:
    path = written(tmp_path, "long.json", long_flat())
    import_files(log, [path]).check()
    written(tmp_path, "long.json", long_flat(systemMessage={"content": "Be long."}))
    dry, report = import_files(log, [path], dry_run=True), import_files(log, [path])
    assert told(dry) == told(report) and statuses(report) == ["settings"] and report.written == 0
    assert "Be long." in held(log.sessions.get("long"))["system"]


def test_metadata_of_ones_own_stays_when_the_source_changes(log: Turnlog, tmp_path: Path) -> None:
    path = written(tmp_path, "long.json", long_flat())
    import_files(log, [path]).check()
    session = log.sessions.get("long")
    session.update(metadata={**(session.info().metadata or {}), "mine": 1})
    written(tmp_path, "long.json", long_flat(mood="new"))
    import_files(log, [path]).check()
    metadata = session.info().metadata or {}
    assert (metadata["mine"], metadata["imported"]["mood"]) == (1, "new")


def test_a_state_that_was_changed_here_is_not_overwritten(harness: Any, tmp_path: Path) -> None:
    log = harness.log()
    document = {"id": "d", "version": 1, "state": {"a": 1}, "history": [{"role": "user", "text": "hi"}]}
    path = written(tmp_path, "d.json", document)
    import_files(log, [path]).check()
    written(tmp_path, "d.json", {**document, "state": {"a": 2}})
    assert statuses(import_files(log, [path])) == ["settings"]
    session = log.sessions.get("d")
    assert session.state().state == {"a": 2}
    assert next(session.history()).action == "policy_change" and next(session.history(action="import")).diff is not None
    session.put_state({"a": "mine"})
    written(tmp_path, "d.json", {**document, "state": {"a": 3}})
    dry, report = import_files(log, [path], dry_run=True), import_files(log, [path])
    assert told(dry) == told(report)
    assert [warning.reason for warning in report.sessions[0].warnings] == ["state_kept"]
    assert session.state().state == {"a": "mine"}
    assert statuses(import_files(log, [path])) == ["same"]


@pytest.mark.parametrize("at", [0, 24, 25, 58, 59])
def test_an_earlier_message_that_has_changed_is_refused_by_name(log: Turnlog, tmp_path: Path, at: int) -> None:
    path = written(tmp_path, "long.json", long_flat())
    import_files(log, [path]).check()
    changed = long_flat(70)
    changed["messages"][at]["content"] += "!"
    written(tmp_path, "long.json", changed)
    before = held(log.sessions.get("long"))
    dry, report = import_files(log, [path], dry_run=True), import_files(log, [path])
    assert told(dry) == told(report) and statuses(report) == ["refused"] and not report.ok
    with pytest.raises(
        SourceChangedError, match=f"message {at + 1} of 'long' is not message {at + 2} of session 'long'"
    ) as raised:
        report.check()
    assert raised.value.details == {"place": f"message {at + 1}", "position": at + 2}
    assert held(log.sessions.get("long")) == before


@pytest.mark.parametrize("field", ["timestamp", "kind", "note", "id"])
def test_a_change_beside_the_text_is_a_change_too(log: Turnlog, tmp_path: Path, field: str) -> None:
    path = written(tmp_path, "long.json", long_flat(3))
    import_files(log, [path]).check()
    changed = long_flat(3)
    changed["messages"][1][field] = 7 if field == "timestamp" else "other"
    assert statuses(import_files(log, [written(tmp_path, "long.json", changed)])) == ["refused"]


def test_a_refused_session_does_not_stop_the_others(log: Turnlog, tmp_path: Path) -> None:
    log.sessions.create("b").append({"role": "user", "content": "somebody else's"})
    path = written(tmp_path, "many.json", [long_flat(2, id=name) for name in ("a", "b", "c")])
    assert statuses(import_files(log, [path])) == ["new", "refused", "new"]


def test_what_was_said_in_turnlog_after_an_import_stays_and_a_source_that_grew_is_refused(
    log: Turnlog, tmp_path: Path
) -> None:
    path = written(tmp_path, "long.json", long_flat(4))
    import_files(log, [path]).check()
    log.sessions.get("long").append({"role": "user", "content": "and now here"})
    (row,) = import_files(log, [path]).sessions
    assert (row.status, row.more) == ("same", 1)
    assert statuses(import_files(log, [written(tmp_path, "long.json", long_flat(6))])) == ["refused"]


def test_what_a_rewind_has_taken_out_of_view_is_still_in_the_log(log: Turnlog, tmp_path: Path) -> None:
    path = written(tmp_path, "long.json", long_flat(6))
    import_files(log, [path]).check()
    log.sessions.get("long").rewind(4)
    assert statuses(import_files(log, [path])) == ["same"]


def test_an_ended_session_takes_nothing_more(log: Turnlog, tmp_path: Path) -> None:
    path = written(tmp_path, "long.json", long_flat(4))
    import_files(log, [path]).check()
    log.sessions.get("long").end()
    assert statuses(import_files(log, [path])) == ["same"]
    written(tmp_path, "long.json", long_flat(6))
    dry, report = import_files(log, [path], dry_run=True), import_files(log, [path])
    assert told(dry) == told(report)
    with pytest.raises(SessionEndedError, match="'long' has ended, and message 5 is not in it"):
        report.check()


def test_a_partial_answer_may_become_a_whole_one(log: Turnlog, tmp_path: Path) -> None:
    first = sample(FLAT)
    path = written(tmp_path, "travel-7.json", first)
    import_files(log, [path]).check()
    longer = {**first, "partialMessage": {"content": "I am booking it", "timestamp": 1763683206500}}
    assert import_files(log, [written(tmp_path, "travel-7.json", longer)]).written == 1
    whole = {"kind": "assistant", "content": "I am booking it now. Done.", "timestamp": 1763683207000}
    last = {**first, "messages": [*first["messages"], whole], "partialMessage": None}
    assert import_files(log, [written(tmp_path, "travel-7.json", last)]).written == 1
    assert statuses(import_files(log, [path])) == ["same"]
    said = [(message.status, message.body["content"]) for message in log.sessions.get("travel-7").messages()][-3:]
    assert said == [
        ("interrupted", "I am book"),
        ("interrupted", "I am booking it"),
        ("complete", "I am booking it now. Done."),
    ]


LINES = CODING.read_text("utf-8").splitlines()


@settings(max_examples=examples(40), deadline=None)
@given(cuts=st.sets(st.integers(4, len(LINES)), max_size=4))
def test_a_log_that_is_imported_while_it_grows_loses_nothing(tmp_path_factory: Any, cuts: set[int]) -> None:
    """Also in the middle of an answer, whose blocks come line by line."""
    path = tmp_path_factory.mktemp("grows") / f"{CODING_ID}.jsonl"
    with Turnlog.open("memory://") as log:
        for cut in [*sorted(cuts), len(LINES)]:
            path.write_text("\n".join(LINES[:cut]), "utf-8")
            dry, report = import_files(log, [path], dry_run=True), import_files(log, [path])
            assert told(dry) == told(report)
            report.check()
            assert import_files(log, [path]).written == 0
        sessions = [log.sessions.get(CODING_ID), log.sessions.get(f"{CODING_ID}-a2018e5")]
        lines = [json.loads(line) for line in LINES if line.startswith('{"') and line.endswith("}")]
        assert lost(lines, sessions) == []
        whole = sum(len(source.messages) for source in coding_agents.read(SourceFile(CODING)))
        assert whole <= sum(session.info().messages for session in sessions) <= whole + len(cuts)
        blocks = [
            block for message in sessions[0].messages() for block in message.body["content"] if isinstance(block, dict)
        ]
        assert [block["id"] for block in blocks if block["type"] == "tool_use"] == ["toolu_1", "toolu_2"]


def test_a_source_with_nothing_in_it_makes_no_session(log: Turnlog, tmp_path: Path) -> None:
    empty = {"id": "d", "version": 1, "history": []}
    (row,) = import_files(log, [written(tmp_path, "d.json", empty)]).sessions
    assert (row.status, [(item.place, item.reason) for item in row.skipped]) == (
        "skipped",
        [("session", "no_messages")],
    )
    assert not log.sessions.exists("d")
    assert statuses(import_files(log, [written(tmp_path, "d.json", {**empty, "state": {"a": 1}})])) == ["new"]
    assert log.sessions.get("d").state().state == {"a": 1}
    assert statuses(import_files(log, [written(tmp_path, "d.json", empty)])) == ["settings"], "the session is there"


def test_a_session_that_an_earlier_version_named_otherwise_goes_on_under_that_name(
    log: Turnlog, tmp_path: Path
) -> None:
    source_id = "ada@example.org"
    (source,) = read(SourceFile(written(tmp_path, "a.json", long_flat(2, id=source_id))))
    import_session(log, replace(source, id=earlier_id(source_id)))
    (row,) = import_files(log, [written(tmp_path, "a.json", long_flat(3, id=source_id))]).sessions
    assert (row.session_id, row.status, row.written) == (earlier_id(source_id), "grown", 1)
    assert not log.sessions.exists(source_id)
    (row,) = import_files(log, [written(tmp_path, "b.json", long_flat(2, id="bob@example.org"))]).sessions
    assert (row.session_id, row.status) == ("bob@example.org", "new")


def test_an_export_is_restored_once_and_never_added_to_a_session(log: Turnlog, tmp_path: Path) -> None:
    with Turnlog.open("memory://") as other:
        session = other.sessions.create("s")
        session.append({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"})
        session.export(tmp_path / "two.zip")
        session.append({"role": "user", "content": "c"})
        session.export(tmp_path / "three.zip")
    two, three = tmp_path / "two.zip", tmp_path / "three.zip"

    def imported(path: Path, *, dry_run: bool) -> tuple[Any, ...]:
        done = list[tuple[int, int]]()
        (row,) = import_files(log, [path], dry_run=dry_run, on_bytes=lambda *counts: done.append(counts)).sessions
        assert set(done) == {(path.stat().st_size, path.stat().st_size)}
        return row.status, row.messages, row.present, row.written

    assert [imported(two, dry_run=dry) for dry in (True, False)] == [("new", 2, 0, 0), ("new", 2, 0, 2)]
    assert [imported(two, dry_run=dry) for dry in (True, False)] == [("same", 2, 2, 0)] * 2
    assert [imported(three, dry_run=dry) for dry in (True, False)] == [("refused", 3, 0, 0)] * 2
    assert [message.position for message in log.sessions.get("s").messages()] == [2, 3]


def test_progress_is_told_in_bytes_of_the_files_that_are_done(log: Turnlog, tmp_path: Path) -> None:
    told_bytes = list[tuple[int, int]]()
    paths = [written(tmp_path, f"{name}.json", long_flat(count, id=name)) for name, count in (("a", 50), ("b", 1))]
    paths.append(written(tmp_path, "c.json", {"messages": "?"}))
    first, second, third = (path.stat().st_size for path in paths)
    report = import_files(log, [tmp_path], on_bytes=lambda *counts: told_bytes.append(counts))
    assert statuses(report) == ["new", "new", "skipped"]
    total = first + second + third
    assert told_bytes == [(first, total), (first + second, total), (total, total)]


def altered(path: Path) -> Path:
    with ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data.replace(b"hello", b"hullo"))
    return path


@pytest.mark.parametrize("is_dry", [False, True])
def test_a_damaged_file_of_a_folder_is_refused_and_the_others_are_imported(
    log: Turnlog, tmp_path: Path, is_dry: bool
) -> None:
    for name in ("a", "z"):
        written(tmp_path, f"{name}.json", [{"kind": "user", "content": name}])
    with Turnlog.open("memory://") as source:
        source.sessions.create("altered").append({"role": "user", "content": "hello"})
        source.sessions.of("altered").export(tmp_path / "export.zip")
    path = altered(tmp_path / "export.zip")
    report = import_files(log, tmp_path, dry_run=is_dry)
    rows = [(Path(row.file).name, row.shape, row.status) for row in report.sessions]
    assert rows == [("a.json", "flat", "new"), ("export.zip", "turnlog", "refused"), ("z.json", "flat", "new")]
    assert [info.session_id for info in log.sessions.list()] == ([] if is_dry else ["z", "a"])
    assert not report.ok and report.as_json()["sessions"][1]["error"]["code"] == "bad_export"
    with pytest.raises(InvalidInputError, match=r"messages\.jsonl does not match the manifest"):
        report.check()
    with pytest.raises(InvalidInputError, match=r"messages\.jsonl does not match the manifest"):
        import_files(log, path, dry_run=is_dry)


@pytest.mark.parametrize("shape", [None, "turnlog"])
@pytest.mark.parametrize("session_id", ["a", "i/" + "x" * 120])
def test_a_half_copied_export_is_refused_as_what_it_is(
    log: Turnlog, tmp_path: Path, shape: str | None, session_id: str
) -> None:
    with Turnlog.open("memory://") as source:
        for name, at in ((session_id, "b"), ("whole", "c")):
            source.sessions.create(name).append({"role": "user", "content": "hello"})
            source.sessions.of(name).export(tmp_path / f"{at}.zip")
    path = tmp_path / "b.zip"
    whole = path.read_bytes()
    with ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("sessions.txt", "of something else")
    for size in (150, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        report = import_files(log, tmp_path, shape=shape, dry_run=True)
        assert statuses(report) == ["refused", "new", "skipped"]
        for refused in (report.check, lambda: import_files(log, path, shape=shape)):
            with pytest.raises(
                InvalidInputError, match="not a valid export: it is cut short, or no zip file"
            ) as caught:
                refused()
            assert caught.value.error_code == "bad_export"


def test_a_file_of_a_folder_that_cannot_be_read_is_refused_and_the_others_are_imported(
    log: Turnlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening fails in place of a file's mode, because root may read every file."""
    for name in ("a", "b"):
        written(tmp_path, f"{name}.json", [{"kind": "user", "content": name}])
    opened = Path.open

    def denied(path: Path, *options: Any) -> Any:
        if path.name == "a.json":
            raise PermissionError(13, "Permission denied")
        return opened(path, *options)

    monkeypatch.setattr(Path, "open", denied)
    report = import_files(log, tmp_path)
    assert statuses(report) == ["refused", "new"]
    with pytest.raises(InvalidInputError, match=r"can't read '.*a\.json': permission denied"):
        report.check()
    with pytest.raises(InvalidInputError, match="permission denied"):
        import_files(log, tmp_path / "a.json")


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    for read_it in (lambda file: file.text, lambda file: file.is_sqlite):
        with pytest.raises(InvalidInputError, match=r"can't read '.*gone\.json': no such file") as caught:
            read_it(SourceFile(tmp_path / "gone.json"))
        assert caught.value.error_code == "no_file"


def test_a_dry_run_of_a_first_import_writes_nothing_at_all(harness: Any, tmp_path: Path) -> None:
    log = harness.log()
    list(log.sessions.list())
    report = import_files(log, [written(tmp_path, "long.json", long_flat())], dry_run=True)
    assert (report.written, statuses(report), report.dry_run) == (60, ["new"], True)
    assert list(log.sessions.list()) == [] and not log.sessions.exists("long")
