"""Faults that `plant_faults` puts into the code on purpose: each a small edit, and the tests that must fail then."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Edit: TypeAlias = tuple[str, str, str]
"""File, what stands there exactly once, and what is put in its place."""


class PlantError(Exception):
    """The source has moved: an edit does not stand in its file, or more than once."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault, the edits that make it, and the tests that must see it, by their ids."""

    kind: str
    what: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]

    def apply(self, root: Path) -> dict[Path, str]:
        """Writes the edits below ``root``; the files as they were."""
        before, after = dict[Path, str](), dict[Path, str]()
        for name, old, new in self.edits:
            path = root / name
            before.setdefault(path, path.read_text(encoding="utf-8"))
            text = after.get(path, before[path])
            if text.count(old) != 1:
                raise PlantError(f"{self.what}: found {text.count(old)} times in {name}: {old!r}")
            after[path] = text.replace(old, new)
        for path, text in after.items():
            path.write_text(text, encoding="utf-8")
        return before


_CODE = "shared/turnlog"
_COMMITS, _RENDER = f"{_CODE}/log/commits.py", f"{_CODE}/windows/render.py"
_KEYS, _REQUEST_KEYS = f"{_CODE}/log/request_keys.py", "tests/log/test_request_keys.py"
_LAWS, _APPEND, _ERASE = (
    "tests/properties/test_window_laws.py",
    "tests/sessions/test_append.py",
    "tests/privacy/test_erase.py",
)
_CRASHES, _STORAGE, _DOCUMENTS = (
    "tests/log/test_crashes.py",
    "tests/log/test_storage.py",
    "tests/sessions/test_documents.py",
)
_EXPORT = "tests/snapshots/test_export.py"
_AWS, _TEMPLATE, _TENANCY = (
    "tests/engines/test_engines_aws.py",
    "tests/template/test_template.py",
    "tests/log/test_tenancy.py",
)

_LATE = (
    "        outcome = self._items.put(item, condition=Absent())\n",
    "        outcome = self._items.put(item, condition=Absent())\n        self._payloads.store(self._late)\n",
)
_ALL_FIRST = (
    '        for one in event["Records"]:\n            work(SQSRecord(one))\n'
    "        return dict(process_partial_response(event, lambda record: None, processor))"
)
_OWN_TIME = 'replace(following(header, kind="m", events=len(events), now_ms=time_ms), time_ms=time_ms),'

_EACH_CALL = "test_a2_a3_a_fault_at_every_call_then_the_same_call_again_has_one_effect"
PLANTED: tuple[Planted, ...] = (
    # ------------------------------------------------------------ append
    Planted(
        "append",
        "a slot is taken without looking whether it is free",
        ((_COMMITS, "self._items.put(item, condition=Absent())", "self._items.put(item)"),),
        (f"{_CRASHES}::test_every_order_of_two_appends_keeps_both",),
    ),
    Planted(
        "storage",
        "a connection is closed while another thread uses it",
        (
            (
                f"{_CODE}/engines/sqlite.py",
                "        with self.lock:\n            if self.connection is not None:\n",
                "        if True:\n            if self.connection is not None:\n",
            ),
        ),
        ("tests/engines/test_engines_embedded.py::test_close_waits_for_what_another_thread_is_doing[file]",),
    ),
    Planted(
        "storage",
        "a writer that is interrupted keeps the lock",
        ((f"{_CODE}/engines/sqlite.py", "        if connection.in_transaction:", "        if False:"),),
        ("tests/engines/test_sqlite_waiting.py::test_a_writer_that_is_interrupted_when_it_has_the_lock_gives_it_back",),
    ),
    Planted(
        "append",
        "an idempotency key is not looked up",
        (
            (
                _COMMITS,
                "draft = earlier or compose(tail)",
                "draft = compose(tail)",
            ),
        ),
        (f"{_APPEND}::test_a3_the_same_key_makes_one_commit_and_the_same_answer[sqlite]",),
    ),
    Planted(
        "append",
        "a key is taken for another payload too",
        ((_KEYS, "if stamp != self.stamp:", "if stamp[:HASH_BYTES] != self.key_hash:"),),
        (f"{_APPEND}::test_a4_the_same_key_with_another_payload_is_refused[sqlite]",),
    ),
    Planted(
        "append",
        "a key is recorded at every attempt",
        ((_COMMITS, '"ttl": ttl}), condition=Absent())', '"ttl": ttl}))'),),
        (f"{_REQUEST_KEYS}::test_a3_a_repeated_append_is_one_commit_with_many_commits_between",),
    ),
    Planted(
        "append",
        "a lost slot is not searched for the request's own commit",
        ((_KEYS, "        self._seen = last\n", "        self._seen = last + 1\n"),),
        (f"{_CRASHES}::test_a3_every_order_of_two_attempts_and_another_writer_stores_the_request_once",),
    ),
    Planted(
        "append",
        "a key is forgotten after an hour",
        ((_KEYS, "KEPT_SECONDS = DAY_MS // 1000", "KEPT_SECONDS = 3600"),),
        (f"{_REQUEST_KEYS}::test_a3_a_key_is_remembered_for_24_hours_also_when_clocks_differ[sqlite-0]",),
    ),
    Planted(
        "append",
        "`if_head` may be older than the head",
        (
            (
                f"{_CODE}/sessions/append.py",
                "if self._body.if_head not in (None, header.last):",
                "if (self._body.if_head or 0) > header.last:",
            ),
        ),
        (f"{_APPEND}::test_a6_a_wrong_if_head_is_refused_with_the_head[sqlite]",),
    ),
    Planted(
        "append",
        "a writer does not know its own commit when the SDK has sent it twice",
        ((_COMMITS, 'outcome.existing.get("n") != nonce', 'outcome.existing.get("n") is not None'),),
        ("tests/log/test_faults_of_aws.py::test_a3_what_the_sdk_sends_twice_without_a_key_is_one_commit",),
    ),
    Planted(
        "append",
        "a commit has the time of the clock, also when that goes back",
        (
            (
                f"{_CODE}/sessions/append.py",
                "time_ms = max(self._log.clock.now_ms(), header.time_ms + 1)",
                "time_ms = self._log.clock.now_ms()",
            ),
            (
                f"{_CODE}/sessions/append.py",
                'following(header, kind="m", events=len(events), now_ms=time_ms),',
                _OWN_TIME,
            ),
        ),
        ("tests/log/test_faults_of_clocks.py::test_times_increase_when_the_clock_goes_back[sqlite]",),
    ),
    # ------------------------------------------------------------ window
    Planted(
        "window",
        "a result goes to any open call",
        (
            (
                f"{_CODE}/core/calls.py",
                '        return self._oldest_match("id", call_hash(result.key)) if result.key else',
                '        return self._oldest_match("order", b"") if result.key else',
            ),
        ),
        (
            "tests/core/test_pairing.py",
            f"{_LAWS}::test_W2_a_call_and_its_results_are_in_or_out_together",
        ),
    ),
    Planted(
        "window",
        "an unanswered call is sent without a result",
        (
            (
                _RENDER,
                "waiting = [answer.ref for answer in unit.answers if answer.entry is None]",
                "waiting = list[Ref]()",
            ),
        ),
        (f"{_LAWS}::test_W2_an_unanswered_call_is_settled_and_every_other_has_its_own_result",),
    ),
    Planted(
        "window",
        "the budget is off by a hundredth",
        (
            (
                f"{_CODE}/windows/epochs.py",
                "    if message_tokens(view) <= room - limits.of_whole:",
                "    if message_tokens(view) <= room * 1.01 - limits.of_whole:",
            ),
        ),
        (f"{_LAWS}::test_W3_at_every_budget_that_is_a_little_too_small",),
    ),
    Planted(
        "window",
        "the task is folded into the notes of its loop",
        (
            (
                f"{_CODE}/windows/base.py",
                'unit.level == "whole" and not unit.pinned and unit.entry.facts.role == "assistant"',
                'unit.level == "whole" and not unit.pinned and unit.entry.facts.role in ("assistant", "user")',
            ),
        ),
        (
            "tests/properties/test_epochs.py",
            f"{_LAWS}::test_W4_the_user_messages_before_the_first_assistant_message_of_the_current_loop_are_in_uncut",
        ),
    ),
    Planted(
        "window",
        "the line says that nothing is left out",
        (
            (
                _RENDER,
                "        return left_out_line(loops=len(loops), messages=len(evicted))\n    # The same",
                "        return left_out_line(loops=0, messages=0)\n    # The same",
            ),
            (
                _RENDER,
                "loops=len(loops) + older_loops(view), messages=len(evicted) + aside + view.unread)",
                "loops=0, messages=0)",
            ),
        ),
        (f"{_LAWS}::test_W5_the_line_counts_what_is_not_shown",),
    ),
    Planted(
        "ledger",
        "identifiers have no precedence over other values",
        (
            (
                f"{_CODE}/windows/ledger.py",
                "        if place[1] in names or is_identifier(place[1]):",
                "        if True:",
            ),
        ),
        ("tests/properties/test_ledger.py::test_where_there_is_no_room_for_all_identifiers_stay_before_other_values",),
    ),
    # ------------------------------------------------------------ summary
    Planted(
        "summary",
        "a summary is published on another base than the one in force",
        (
            (
                f"{_CODE}/summaries/rounds.py",
                "if (header.summary, header.rewound, header.redacted) != (read.summary, read.rewound, read.redacted):",
                "if (header.rewound, header.redacted) != (read.rewound, read.redacted):",
            ),
        ),
        (f"{_CRASHES}::test_every_order_of_two_summaries_publishes_one",),
    ),
    Planted(
        "summary",
        "a summary of another history is continued",
        (
            (
                f"{_CODE}/summaries/rounds.py",
                "is_bound = before is None or history.commit_of(before.last).header.hash.hex() == before.covers",
                "is_bound = before is None or history.commit_of(before.last).header.hash.hex() != before.text",
            ),
        ),
        (
            "tests/summaries/test_rounds.py::test_s3_a_summary_of_another_history_is_rebuilt_of_the_rounds_that_are_of_this_one",
        ),
    ),
    Planted(
        "summary",
        "the newest loop is covered too",
        (
            (
                f"{_CODE}/summaries/rounds.py",
                "return self.open_loop - 1 - (self.keep_loops",
                "return self.open_loop - (self.keep_loops",
            ),
        ),
        ("tests/summaries/test_compress.py::test_s2_covers_closed_loops_only_and_never_the_newest[sqlite]",),
    ),
    # ------------------------------------------------------------ storage
    Planted(
        "storage",
        "payloads are stored after the commit that names them",
        (
            (
                _COMMITS,
                "        self._payloads.store(prepared)\n        return lines",
                "        self._late = prepared\n        return lines",
            ),
            (_COMMITS, *_LATE),
        ),
        (f"{_CRASHES}::{_EACH_CALL}[sqlite-append with payloads-before]",),
    ),
    Planted(
        "storage",
        "the checksum of an item is not looked at",
        (
            (
                f"{_CODE}/log/packing.py",
                'if zlib.crc32(content, zlib.crc32(beside)).to_bytes(4, "big") != checksum:',
                "if len(checksum) != 4:",
            ),
        ),
        (f"{_STORAGE}::test_d4_every_single_byte_of_a_body_is_guarded",),
    ),
    Planted(
        "storage",
        "the chain of hashes is not looked at",
        (
            (
                f"{_CODE}/log/commit.py",
                "if previous is not None and chain_hash(previous, verified.covered, verified.digests) != header.hash:",
                "if previous is None and header.hash == GENESIS:",
            ),
        ),
        (f"{_STORAGE}::test_d4_a_commit_swapped_for_another_session_s_is_found",),
    ),
    Planted(
        "storage",
        "a hole in the log is read over",
        ((f"{_CODE}/log/commit.py", "before.last + 1 != header.first:", "before.last >= header.first:"),),
        (f"{_STORAGE}::test_d4_a_hole_is_a_typed_error",),
    ),
    Planted(
        "storage",
        "what is unpacked has no limit",
        ((f"{_CODE}/log/packing.py", "inflater.decompress(data, MAX_UNPACKED_BYTES)", "inflater.decompress(data)"),),
        (f"{_STORAGE}::test_d4_a_zip_bomb_is_not_inflated",),
    ),
    Planted(
        "storage",
        "a payload is not compared with what its commit names",
        ((f"{_CODE}/log/payloads.py", "if digest_of(content) != payload.digest:", "if not payload.digest:"),),
        (f"{_STORAGE}::test_d4_a_missing_or_changed_payload_is_never_read_as_nothing",),
    ),
    Planted(
        "storage",
        "keys that DynamoDB has left unprocessed are forgotten",
        (
            (
                f"{_CODE}/engines/dynamodb.py",
                'return [_key_of(_decode(raw)) for raw in unprocessed["Keys"]] if unprocessed else []',
                "return []",
            ),
        ),
        (f"{_AWS}::test_keys_left_unprocessed_are_read_again",),
    ),
    # ------------------------------------------------------------ delete
    Planted(
        "delete",
        "a session is said to be gone without a tombstone in its log",
        (
            (
                f"{_CODE}/privacy/fence_and_delete.py",
                "return self._items.put(tombstone, condition=Absent()) is None",
                "return tombstone is not None",
            ),
        ),
        (f"{_ERASE}::test_e1_nothing_answers_from_the_moment_it_returns[sqlite]",),
    ),
    Planted(
        "delete",
        "versions of blobs behind a delete marker are left",
        (
            (
                f"{_CODE}/engines/s3.py",
                '[*page.get("Versions", []), *page.get("DeleteMarkers", [])]',
                '[one for one in page.get("Versions", []) if one["IsLatest"]]',
            ),
        ),
        (f"{_AWS}::test_old_versions_go_with_what_was_deleted_before",),
    ),
    Planted(
        "delete",
        "a blob that S3 keeps is no error",
        (
            (
                f"{_CODE}/engines/s3.py",
                "        if failed:",
                "        erased = 0 if failed else erased\n        if failed and not failed:",
            ),
        ),
        ("tests/log/test_faults_of_aws.py::test_e3_versions_that_s3_keeps_are_no_erased_session",),
    ),
    Planted(
        "delete",
        "what has expired is shown until it is erased",
        ((_COMMITS, "self._clock.now_ms() >= newest.expires_ms:", "self._clock.now_ms() < 0:"),),
        ("tests/privacy/test_retention.py::test_e4_expired_is_invisible_at_once_everywhere[sqlite]",),
    ),
    Planted(
        "delete",
        "documents are left when their session is erased",
        ((f"{_CODE}/privacy/fence_and_delete.py", '("", "C"), ("D", "~")', '("", "C"), ("D", "J")'),),
        (f"{_DOCUMENTS}::test_documents_go_with_their_session[sqlite]",),
    ),
    Planted(
        "delete",
        "a redacted body stays where it was",
        (
            (
                f"{_CODE}/privacy/redact.py",
                'lost = self._items.put(with_lines(item, new_lines), condition=Equal("b", item["b"]))',
                'lost = self._items.put(item, condition=Equal("b", item["b"]))',
            ),
        ),
        ("tests/privacy/test_redact.py::test_e5_a_redacted_body_is_nowhere",),
    ),
    # ------------------------------------------------------------ tenancy
    Planted(
        "tenancy",
        "the user is not in the key of a session",
        (
            (
                f"{_CODE}/log/keys.py",
                'own = f"T#{self.owner.tenant_id}#U#{self.owner.user_id}#S#{self.session_id}"',
                'own = f"T#{self.owner.tenant_id}#U##S#{self.session_id}"',
            ),
        ),
        (f"{_TENANCY}::test_t1_every_route_answers_another_owner_as_if_the_session_were_not_there",),
    ),
    Planted(
        "tenancy",
        "the signature of a cursor is not looked at",
        (
            (
                f"{_CODE}/core/models.py",
                "if not hmac.compare_digest(signature, self._sign(content, scope)):",
                "if len(signature) != _SIGNATURE_BYTES:",
            ),
        ),
        (f"{_TENANCY}::test_t2_a_cursor_of_another_secret_is_refused",),
    ),
    Planted(
        "tenancy",
        "a cursor is good for any caller",
        ((f"{_CODE}/core/models.py", 'scope.encode() + b"\\0" + content', "content"),),
        (f"{_TENANCY}::test_t2_a_cursor_is_bound_to_its_caller_and_filter[sqlite]",),
    ),
    # ------------------------------------------------------------ service
    Planted(
        "service",
        "an unexpected error tells its message",
        (
            (
                f"{_CODE}/http/api.py",
                'TurnlogError("unexpected error", code=code)',
                'TurnlogError(f"unexpected error: {error}", code=code)',
            ),
        ),
        ("tests/http/test_http.py::test_an_unexpected_error_is_500_without_contents",),
    ),
    Planted(
        "service",
        "one poison message fails its whole batch",
        (
            (
                f"{_CODE}/http/lambda_workers.py",
                "        return dict(process_partial_response(event, work, processor))",
                _ALL_FIRST,
            ),
        ),
        ("tests/jobs/test_job_faults.py::test_v4_of_ten_records_one_is_poison_and_nine_succeed[sqlite]",),
    ),
    Planted(
        "service",
        "a job is begun however little time is left",
        (
            (
                f"{_CODE}/http/lambda_workers.py",
                "context.get_remaining_time_in_millis() < deadline_ms:",
                "context.get_remaining_time_in_millis() < 0:",
            ),
        ),
        ("tests/jobs/test_jobs.py::test_v6_no_job_is_begun_near_the_deadline[sqlite]",),
    ),
    Planted(
        "service",
        "a log line has the text of an error",
        (
            (
                f"{_CODE}/core/errors.py",
                'descriptions.append(f"{type(current).__name__} at',
                'descriptions.append(f"{type(current).__name__} {current} at',
            ),
        ),
        ("tests/functions/test_logs.py::test_an_unexpected_error_is_logged_by_its_types_and_places",),
    ),
    Planted(
        "service",
        "throttling is an error of the service",
        ((f"{_CODE}/core/errors.py", "    429: ThrottledError,\n", ""),),
        ("tests/http/test_http.py::test_an_engine_that_fails_is_503_or_429_with_retry_after",),
    ),
    # ------------------------------------------------------------ documents
    Planted(
        "documents",
        "the condition of a writing is not looked at",
        (
            (
                f"{_CODE}/sessions/documents.py",
                "conflict = self._items.put(item, condition=condition)",
                "conflict = self._items.put(item)",
            ),
        ),
        (f"{_DOCUMENTS}::test_one_of_many_writers_wins_a_condition",),
    ),
    Planted(
        "documents",
        "`then` is written before `put`",
        (
            (
                f"{_CODE}/sessions/documents.py",
                "written = [*self._write(keys, first), *self._write(keys, then)]",
                "written = [*self._write(keys, then), *self._write(keys, first)]",
            ),
        ),
        (f"{_DOCUMENTS}::test_what_is_written_then_is_never_there_without_what_comes_before[sqlite]",),
    ),
    Planted(
        "documents",
        "a newer version is read as if it were known",
        (
            (
                f"{_CODE}/sessions/documents.py",
                "check_version(item)",
                "item_name(item)",
            ),
        ),
        (f"{_DOCUMENTS}::test_damage_is_told_by_its_item",),
    ),
    # ------------------------------------------------------------ codecs, search
    Planted(
        "codecs",
        "results stay behind the text of their turn",
        (
            (
                f"{_CODE}/providers/alternation.py",
                "repaired.sort(key=lambda block: not self.is_result(block))",
                "pass",
            ),
        ),
        ("tests/providers/test_codecs_anthropic.py::test_a_result_behind_text_is_sent_before_it",),
    ),
    Planted(
        "search",
        "the filter by position and time is not looked at",
        (
            (
                f"{_CODE}/search/session.py",
                "if corpus.matches(hit[0], query) and is_within(corpus.entries[hit[0]]))",
                "if corpus.matches(hit[0], query))",
            ),
        ),
        ("tests/search/test_search.py::test_filters_take_their_share_of_all_results",),
    ),
    # ------------------------------------------------------------ template
    Planted(
        "template",
        "a permission is a wildcard",
        (
            (
                "template.yaml",
                "Sid: Read, Action: [dynamodb:GetItem, dynamodb:BatchGetItem, dynamodb:Query]",
                "Sid: Read, Action: [dynamodb:GetItem, dynamodb:BatchGetItem, dynamodb:Query*]",
            ),
        ),
        (f"{_TEMPLATE}::test_a_role_has_inline_statements_without_wildcards",),
    ),
    Planted(
        "template",
        "nobody is told of a queue's dead letters",
        (
            (
                "template.yaml",
                "<<: *DeadLetters, Dimensions: [{ Name: QueueName, Value: !GetAtt EraseDeadLetters.QueueName }]",
                "<<: *DeadLetters, Dimensions: [{ Name: QueueName, Value: !GetAtt EraseQueue.QueueName }]",
            ),
        ),
        (f"{_TEMPLATE}::test_a_queue_has_dead_letters_with_an_alarm",),
    ),
    Planted(
        "template",
        "a queue takes what is not TLS",
        (
            (
                "template.yaml",
                'Principal: "*", Condition: { Bool: { aws:SecureTransport: "false" } }',
                'Principal: "*", Condition: { Bool: { aws:SecureTransport: "true" } }',
            ),
        ),
        (f"{_TEMPLATE}::test_bucket_and_queues_refuse_what_is_not_tls",),
    ),
    # ------------------------------------------------------------ export
    Planted(
        "export",
        "the hash of a redacted line is taken of the line that stands there",
        (
            (
                f"{_CODE}/snapshots/exchange.py",
                "list(map(line_digest, lines))",
                "[__import__('hashlib').sha256(line).digest() for line in lines]",
            ),
        ),
        (f"{_EXPORT}::test_a_redacted_session_comes_back[sqlite-10]",),
    ),
    Planted(
        "export",
        "what lies behind the moment of a fork is exported with it",
        ((f"{_CODE}/snapshots/segments.py", "items = list(map(as_shared, stored))", "items = list(stored)"),),
        (
            "tests/sessions/test_fork.py::test_what_is_made_of_a_fork_has_nothing_of_what_lies_behind_its_moment[sqlite-10]",
        ),
    ),
    Planted(
        "export",
        "an imported event is not held against its class",
        ((f"{_CODE}/snapshots/exchange.py", "    check_shape(event, type(event))\n", ""),),
        ("tests/security/test_forged.py",),
    ),
    Planted(
        "export",
        "an imported session is seen before its documents are there",
        (
            (
                f"{_CODE}/snapshots/exports.py",
                "if newest.last < body.head or body.more:",
                "if newest.last < body.head:",
            ),
        ),
        (f"{_EXPORT}::test_a_session_is_not_seen_before_the_last_of_its_documents[sqlite]",),
    ),
)
