"""The frameworks' own tests on Turnlog's stores, and docs/contributing/framework-suites.md of what came out.

python tools/suites/run.py [NAME ...]      # make framework-suites

The sources with the tests are fetched from the package registry and are changed nowhere: a plugin of pytest puts Turnlog's
saver, repository, storage and session where the suite makes the framework's own. Each suite runs twice, with the framework's
own store too: what fails there as well is no matter of the store. Exit 1 when anything else fails that is not explained below.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.faults import commit_id  # noqa: E402
from tools.suites.turnlog_in_suites import MADE  # noqa: E402

PAGE = ROOT / "docs" / "contributing" / "framework-suites.md"
FOLDER = ROOT / ".venv-suites" / "sources"
_SECONDS = 1_800


@dataclass(frozen=True)
class Suite:
    """``tests`` are globs below the sources. ``explained``: a test, or what its failure says -> what it asks for."""

    name: str
    package: str
    label: str
    store: str
    tests: tuple[str, ...]
    explained: dict[str, str] = field(default_factory=dict)


SUITES = (
    Suite(
        "langgraph",
        "langgraph",
        "LangGraph",
        "`TurnlogSaver`, plain and with the suite's encrypted serializer",
        ("tests/test_*.py",),
    ),
    Suite(
        "langgraph_sqlite",
        "langgraph-checkpoint-sqlite",
        "`langgraph-checkpoint-sqlite`",
        "`TurnlogSaver`, `TurnlogStore`",
        ("tests/test_*.py",),
        {
            "has no attribute 'conn'": "reaches into the connection to SQLite, or sets up its tables",
            "has no attribute 'setup'": "reaches into the connection to SQLite, or sets up its tables",
            **dict.fromkeys(
                (
                    "test_async_empty_checkpoint_id_reads_from_the_latest_checkpoint",
                    "test_async_walk_reaches_parent_whatever_the_id_order",
                    "test_seed_present_when_snapshot_in_ancestor_sync",
                    "test_sync_empty_checkpoint_id_reads_from_the_latest_checkpoint",
                    "test_sync_walk_reaches_parent_whatever_the_id_order",
                    "test_walk_reaches_root_of_long_chain_with_descending_ids",
                ),
                "that a value which is put without a new version is kept; the saver in memory keeps none either",
            ),
            **dict.fromkeys(
                ("test_filter_keys_with_hyphens_and_digits", "test_metadata_filter_keys_with_hyphens_and_digits"),
                "that a dot in a filter's key leads into a value; here and in memory it is part of the key",
            ),
            **dict.fromkeys(
                ("test_checkpoint_search_sql_injection_prevention", "test_sql_injection_vulnerability"),
                "that a filter's key which would be SQL is refused; here a key is only compared",
            ),
            **dict.fromkeys(
                ("test_informative_async_errors", "test_no_running_loop"),
                "that one class has no asynchronous calls, and the other no plain ones: ours has both",
            ),
            "test_embed_with_path": "for `text_fields`, this store's own name of `fields`",
            "test_walk_terminates_when_put_makes_the_parent_chain_cycle": (
                "that a checkpoint which is its own ancestor is read; here it is `CorruptError`"
            ),
        },
    ),
    Suite(
        "langgraph_store",
        "langgraph-checkpoint",
        "`langgraph-checkpoint`",
        "`TurnlogStore`",
        ("tests/test_store.py",),
    ),
    Suite(
        "strands",
        "strands-agents",
        "Strands",
        "`TurnlogRepository`, `TurnlogStorage`",
        (
            "tests/strands/agent/test_agent*.py",
            "tests/strands/middleware/test_agent_stream_middleware.py",
            "tests/strands/test_tracking_id_history_invariant.py",
            "tests/strands/session/test_repository_session_manager.py",
            "tests/strands/session/test_snapshot_session_manager.py",
            "tests/strands/storage/test_in_memory_storage.py",
            "tests/strands/storage/test_storage.py",
            "tests/strands/storage/search/test_keyword.py",
            "tests/strands/multiagent/test_*.py",
            "tests/strands/vended_plugins/context_offloader/test_*.py",
            "tests/strands/_context_manager/test_*.py",
            "tests/strands/vended_memory_stores/file_memory_store/test_*.py",
        ),
        {
            "has no attribute 'clear'": "`clear` of the storage in memory, which the protocol has not",
            "has no attribute '_store'": "looks into the storage in memory",
            **dict.fromkeys(
                (
                    "test_ephemeral_detection_survives_namespacing",
                    "test_false_with_namespaced_in_memory_storage",
                    "test_immutable_snapshot_includes_stash",
                    "test_save_includes_inline_stash_for_ephemeral_storage",
                    "test_save_omits_stash_when_empty",
                ),
                "that what is in memory is gone with the process: ours is not",
            ),
        },
    ),
    Suite(
        "openai_agents",
        "openai-agents",
        "OpenAI Agents SDK",
        "`TurnlogSession`, `TurnlogAdvancedSession`",
        (
            "tests/memory/test_*.py",
            "tests/extensions/memory/test_advanced_sqlite_session.py",
            "tests/extensions/memory/test_encrypt_session.py",
            "tests/deferred_session_writes/test_*.py",
            "tests/test_*history*.py",
            "tests/test_*resume*.py",
            "tests/test_*session*.py",
            "tests/test_agent_runner*.py",
            "tests/test_max_turns.py",
            "tests/test_programmatic_tool_calling.py",
            "tests/test_soft_cancel.py",
            "tests/test_tool_failure_boundaries.py",
        ),
        {
            **dict.fromkeys(
                (
                    "has no attribute '_",
                    "does not have the attribute '_",
                    "has no attribute 'db_path'",
                    "has no attribute 'messages_table'",
                    "test_add_captures_coherent_branch_after_clear_publication",
                    "test_add_items_can_retry_after_structure_metadata_failure",
                    "test_add_items_failure_preserves_existing_history",
                    "test_add_items_rolls_back_messages_when_structure_metadata_fails",
                    "test_add_items_rolls_back_partial_structure_metadata_write",
                    "test_failed_branch_reservation_rolls_back_and_allows_retry",
                    "test_turn_ordering_survives_reuse_on_another_event_loop",
                ),
                "reaches into `SQLiteSession`",
            ),
            "no such table": "reads the tables of `SQLiteSession`",
            **dict.fromkeys(
                (
                    "test_concurrent_structure_table_claims_leave_one_coherent_owner",
                    "test_no_create_session_rejects_a_database_without_an_owner",
                    "test_no_create_session_rejects_owner_metadata_without_base_tables",
                    "test_structure_tables_reject_a_second_base_table_pair",
                    "test_structure_tables_reject_an_ownerless_layout",
                    "test_structure_tables_reject_changed_messages_with_shared_sessions",
                    "test_structure_tables_reject_changed_sessions_with_shared_messages",
                    "test_structure_tables_reject_distinct_non_ascii_identifiers",
                    "test_structure_tables_reject_malformed_owner_layouts",
                ),
                "that tables of other names are refused",
            ),
            **dict.fromkeys(
                (
                    "test_branch_allocation_is_serialized_across_processes",
                    "test_pop_item_claim_is_unique_across_processes",
                ),
                "processes of their own, which have the SDK's session",
            ),
            "test_error_handling_in_usage_tracking": "that an error is logged when usage is stored; here it is raised",
            "test_create_branch_logging_respects_model_data_policy": "that the turn which a branch begins at is logged",
            **dict.fromkeys(
                (
                    "test_automatic_compaction_rollback_budget",
                    "test_backend_read_limit_cannot_hide_retained_history_from_compaction",
                    "test_encrypted_compaction_skips_unencrypted_stored_history",
                    "test_expired_prefix_does_not_block_full_live_window",
                    "test_expired_read_overhead_does_not_authorize_hidden_history",
                    "test_failed_encrypted_suffix_transaction_preserves_original_tokens",
                    "test_new_backend_write_invalidates_snapshot",
                    "test_partial_compaction_does_not_split_tool_call_and_output",
                    "test_partial_compaction_preserves_reasoning_and_its_follower",
                    "test_prefix_cleanup_stops_before_retained_history",
                    "test_repeated_ttl_bursts_do_not_accumulate_expired_rows",
                    "test_suffix_transaction_rolls_back_failed_insert",
                    "test_unverifiable_rows_inside_snapshot_are_retained",
                ),
                "compaction of a part of the history, by a private method that `SQLiteSession` has",
            ),
            **dict.fromkeys(
                (
                    "test_encrypted_pop_cancellation_waits_for_authentication_rollback",
                    "test_encrypted_pop_rechecks_authentication_after_expired_tail",
                    "test_encrypted_pop_wrong_key_preserves_recoverable_history",
                ),
                "`EncryptedSession` checks before a pop, for `SQLiteSession` alone",
            ),
            "test_encrypted_session_scan_budget_rejects_negative_limit_before_read": (
                "that a negative limit is no limit, as in SQLite; here it gives nothing, as in Redis"
            ),
            **dict.fromkeys(
                (
                    "test_advanced_sqlite_session_closed_rejects_empty_add_items",
                    "test_sqlite_session_closed_rejects_empty_add_items",
                ),
                "that a closed `SQLiteSession` refuses an empty batch",
            ),
            "test_sqlite_session_failed_add_items_releases_write_lock": (
                "that an object which is no JSON is a `TypeError`; here it is `MalformedError`"
            ),
        },
    ),
)


@dataclass(frozen=True)
class Ran:
    """A test that made a store. ``error`` is the last thing that a failure says."""

    name: str
    failed: bool
    error: str


def sources_of(suite: Suite) -> Path:
    """Return the package's sources with its tests, of the version that is installed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = f"{suite.package}=={version(suite.package)}"
    folder = FOLDER / wanted.replace("==", "-")
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*command, "--no-build-isolation", "-d", str(folder), wanted], check=True)  # noqa: S603
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
    (result,) = (path for path in folder.iterdir() if path.is_dir())
    return result


def run(suite: Suite, sources: Path, *, own: bool, only: Collection[str] = ()) -> list[Ran]:
    """Run the tests that made a store of the kind, by Turnlog's or the framework's ``own``. ``only`` those of files, one by one."""
    report = FOLDER / f"{suite.name}{'-own' if own else ''}{'-again' if only else ''}.xml"
    files = sorted({str(path.relative_to(sources)) for glob in suite.tests for path in sources.glob(glob)})
    files = [file for file in files if not only or file.removeprefix("tests/") in only]
    environment = {
        **os.environ,
        "FRAMEWORK_SUITE": suite.name,
        "FRAMEWORK_SUITE_OWN": "1" if own else "",
        "NO_DOCKER": "true",
        "PYTHONPATH": str(Path(__file__).parent),
        "OPENAI_API_KEY": "none",
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0" if only else "auto",
        "--timeout",
        "120",
        "-p",
        "turnlog_in_suites",
    ]
    command += ["-p", "no:cacheprovider", "-p", "no:inline_snapshot", "--continue-on-collection-errors"]
    command += ["-o", "junit_family=xunit1", "--junitxml", str(report), *files]
    report.unlink(missing_ok=True)
    result = FOLDER / f"{report.stem}.log"
    with result.open("w") as log:
        subprocess.run(command, cwd=sources, env=environment, stdout=log, stderr=log, check=False, timeout=_SECONDS)  # noqa: S603
    if not report.exists():
        sys.exit(f"the suite of {suite.label} did not begin; {result} ends with:\n{result.read_text()[-2_000:]}")
    return list(read_report(report))


def read_report(report: Path) -> Sequence[Ran]:
    result = list[Ran]()
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - written by pytest just now
        made = [item.get("value") for item in case.iter("property") if item.get("name") == MADE]
        if not made or made[0] == "0" or case.find("skipped") is not None:
            continue
        failure = case.find("failure") if case.find("failure") is not None else case.find("error")
        file = (case.get("file") or case.get("classname") or "").removeprefix("tests/")
        text = "" if failure is None else f"{failure.get('message') or ''}\n{failure.text or ''}"
        result.append(Ran(f"{file}::{case.get('name')}", failure is not None, text))
    return result


def explained(suite: Suite, ran: Ran) -> str | None:
    """Return why a failure is none of the store's, by the whole name of its test, or by what it says."""
    said = "\n".join(line for line in ran.error.splitlines() if line.startswith("E  "))
    test = ran.name.rpartition("::")[2].partition("[")[0]
    by_name = suite.explained.get(test)
    return by_name or next((why for what, why in suite.explained.items() if what in said), None)


def unexplained_of(suite: Suite, ours: Sequence[Ran], own: Sequence[Ran]) -> set[str]:
    """Return the names of failures that neither happen with the framework's own store nor are explained."""
    of_theirs = {item.name for item in own if item.failed}
    return {our.name for our in ours if our.failed and our.name not in of_theirs and explained(suite, our) is None}


def settled(ours: Sequence[Ran], again: Sequence[Ran], names: Collection[str]) -> list[Ran]:
    """Return what ran, with the second result of each test of ``names``: alone it may pass where a busy machine failed it."""
    second = {item.name: item for item in again if item.name in names}
    return [second.get(our.name, our) for our in ours]


def section(suite: Suite, ours: Sequence[Ran], own: Sequence[Ran]) -> tuple[str, list[str], int]:
    """Return a row of the table, the lines of what failed, and the number of failures that nothing explains."""
    of_theirs = {item.name for item in own if item.failed}
    failed = [our for our in ours if our.failed]
    also = [item for item in failed if item.name in of_theirs]
    rest = [(item, explained(suite, item)) for item in failed if item.name not in of_theirs]
    unexplained = [item for item, match in rest if match is None]
    passed = len(ours) - len(failed)
    counted = [len(ours), passed, len(also), len(rest) - len(unexplained), len(unexplained)]
    cells = " | ".join(f"{count:,}" for count in counted)
    row = f"| {suite.label} {version(suite.package)} | {suite.store} | {cells} |"
    why = [(item.name, "(it fails with the framework's own store too)") for item in also]
    why += [(item.name, match or "**not explained**") for item, match in rest]
    lines = list[str]()
    for reason in sorted({reason for _, reason in why}):
        names = [name for name, match in why if match == reason]
        kinds = sorted({name.partition("[")[0] for name in names})
        lines += [
            f"- {reason}: {len(names)}",
            *(f"  - `{kind}`" for kind in kinds if reason not in suite.explained.values()),
        ]
    return row, lines, len(unexplained)


def main(names: Sequence[str]) -> int:
    rows, details, unexplained, is_empty = list[str](), list[str](), 0, False
    for suite in SUITES:
        if names and suite.name not in names:
            continue
        sources = sources_of(suite)
        ours = run(suite, sources, own=False)
        is_empty |= not ours
        own = run(suite, sources, own=True)
        if names_again := unexplained_of(suite, ours, own):
            files = {name.partition("::")[0] for name in names_again}
            ours = settled(ours, run(suite, sources, own=False, only=files), names_again)
        row, lines, count = section(suite, ours, own)
        rows.append(row)
        unexplained += count
        if lines:
            details += ["", f"{suite.label}, what fails:", "", *lines]
        print(row, flush=True)
    if not names:
        PAGE.write_text(_page(rows, details), encoding="utf-8")
    return 1 if unexplained or is_empty else 0


def _page(rows: Sequence[str], details: Sequence[str]) -> str:
    head = f"""# The frameworks' own tests, on Turnlog

<!-- Written by `make framework-suites`; do not edit. -->

The tests in the sources of frameworks, unchanged, with Turnlog where they make a store. By `make framework-suites` at
commit `{commit_id()}`.

| suite | store | tests | passed | fail with their store too | ask for what only it has | others |
|---|---|---:|---:|---:|---:|---:|
"""
    return head + "\n".join([*rows, *details]) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
