"""Which tests are asked about a module: `make mutants` runs these alone."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

TESTS = Path(__file__).parent.parent / "tests"

RELATED = {
    "client/aws_signing": "client/test_signing",
    "engines/__init__": "engines/test_settings engines/test_tenancy engines/test_chat_models search/test_reranking",
    "engines/aws_clients": (
        "engines/test_engines_aws log/test_faults_of_aws engines/test_tenant_credentials engines/test_settings "
        "functions/test_tenant_credentials functions/test_service_models functions/test_stalls"
    ),
    "engines/aws_errors": (
        "engines/test_engines_aws log/test_faults_of_aws engines/test_chat_models search/test_reranking "
        "memory/test_agentcore engines/test_service_errors"
    ),
    "engines/aws_tenants": "engines/test_tenant_credentials functions/test_tenant_credentials",
    "engines/bedrock": "search/test_reranking engines/test_chat_models",
    "engines/dynamodb": "engines/test_engines_aws log/test_faults_of_aws",
    "engines/files": (
        "engines/test_blob_folders engines/test_engines_embedded log/test_faults_of_disks privacy/test_erase snapshots/test_export "
        "log/test_pairs privacy/test_erased_bytes"
    ),
    "engines/http_post": "engines/test_http_post engines/test_chat_models memory/test_webhook",
    "engines/openai_compatible": "engines/test_chat_models summaries/test_summary_texts",
    "engines/s3": "engines/test_engines_aws log/test_faults_of_aws functions/test_stalls",
    "engines/sqlite": (
        "engines/test_engines_embedded engines/test_sqlite_waiting log/test_faults_of_disks jobs/test_jobs "
        "engines/test_sqlite_file privacy/test_erased_bytes"
    ),
    "engines/sqlite_tables": (
        "engines/test_sqlite_rows engines/test_engines_embedded engines/test_sqlite_waiting log/test_faults_of_disks "
        "jobs/test_jobs engines/test_sqlite_file privacy/test_erased_bytes"
    ),
    "engines/sqs": "engines/test_engines_aws log/test_faults_of_aws",
    "engines/piece_counter": "engines/test_piece_counter",
    "engines/token_counters": "engines/test_token_counters engines/test_piece_counter providers/test_counting log/test_cost",
    "log/fork_lock": "log/test_fork_lock",
    "log/caches": (
        "log/test_settings_caches sessions/test_state sessions/test_update sessions/test_listing log/test_faults_of_items "
        "summaries/test_summary_life log/test_storage"
    ),
    "log/commit": (
        "log/test_verified sessions/test_append sessions/test_fork log/test_faults_of_items log/test_storage "
        "log/test_damage privacy/test_redact server/test_content_budget log/test_pointer_cycles"
    ),
    "log/commit_items": (
        "log/test_ranges_of_forks log/test_commit_log log/test_pointer_cycles sessions/test_fork sessions/test_at "
        "sessions/test_rewind privacy/test_erase"
    ),
    "log/commits": (
        "log/test_commit_log sessions/test_append log/test_verified sessions/test_rewind log/test_pointer_cycles "
        "sessions/test_fork log/test_storage log/test_lost_slots"
    ),
    "log/headers": (
        "log/test_headers sessions/test_append sessions/test_end summaries/test_totals sessions/test_token_calibration "
        "log/test_storage log/test_faults_of_items log/test_damage log/test_pointer_cycles"
    ),
    "log/keys": (
        "log/test_keys sessions/test_append snapshots/test_segments log/test_tenancy privacy/test_redact "
        "snapshots/test_export privacy/test_retention log/test_storage memory/test_offload privacy/test_erase "
        "sessions/test_documents"
    ),
    "log/lines": (
        "log/test_stored_events sessions/test_history sessions/test_append sessions/test_state "
        "summaries/test_summary_life sessions/test_decisions privacy/test_redact"
    ),
    "log/packing": (
        "log/test_packing sessions/test_append sessions/test_fork privacy/test_redact snapshots/test_export security/test_forged "
        "snapshots/test_segments log/test_storage server/test_content_budget"
    ),
    "log/payloads": (
        "log/test_payload_borders log/test_stored_events snapshots/test_segments search/test_recall log/test_storage "
        "sessions/test_at engines/test_tenancy snapshots/test_restore sessions/test_append sessions/test_fork privacy/test_redact "
        "memory/test_offload log/test_pairs security/test_forged server/test_content_budget"
    ),
    "log/read_lines": (
        "log/test_stored_events sessions/test_history sessions/test_append sessions/test_state "
        "summaries/test_summary_life log/test_storage"
    ),
    "log/reading": (
        "log/test_commit_log sessions/test_at sessions/test_history privacy/test_retention search/test_recall sessions/test_rewind "
        "search/test_search snapshots/test_segments sessions/test_bounded_reading log/test_reading"
    ),
    "log/records": (
        "log/test_records privacy/test_redact snapshots/test_snapshots jobs/test_jobs jobs/test_redrive "
        "snapshots/test_full_snapshots"
    ),
    "log/request_keys": "sessions/test_append sessions/test_fork privacy/test_redact log/test_request_keys log/test_commit_log",
    "log/tombstones": (
        "log/test_slot_leases snapshots/test_restore_own_id privacy/test_retention snapshots/test_restore_orders privacy/test_erase"
    ),
    "memory/agentcore": "memory/test_agentcore memory/test_memory_settings",
    "memory/bootstrap": "properties/test_bootstrapped memory/test_bootstrap security/test_injection",
    "memory/embedded": "memory/test_memories memory/test_embedded memory/test_memory_erasure",
    "memory/facts": (
        "memory/test_memories memory/test_memory_settings security/test_parsers memory/test_sentences "
        "memory/test_embedded summaries/test_facts"
    ),
    "memory/hand_over": "privacy/test_redact memory/test_memory_erasure memory/test_offload",
    "memory/webhook": "memory/test_webhook memory/test_memory_settings",
    "privacy/erase": (
        "snapshots/test_restore_own_id privacy/test_retention snapshots/test_full_snapshots privacy/test_erase "
        "privacy/test_erase_user privacy/test_erase_orders memory/test_memory_erasure privacy/test_redact "
        "privacy/test_erased_bytes"
    ),
    "privacy/fence_and_delete": (
        "sessions/test_append sessions/test_fork privacy/test_redact privacy/test_erase privacy/test_erase_user "
        "privacy/test_retention snapshots/test_restore_own_id privacy/test_erasure_counts privacy/test_erased_bytes"
    ),
    "privacy/redact": "privacy/test_redact privacy/test_redacted_summaries sessions/test_fork privacy/test_erased_bytes",
    "privacy/redacted_archives": "privacy/test_redact snapshots/test_full_snapshots log/test_lost_races",
    "search/days": "search/test_search",
    "search/fts5": "memory/test_embedded memory/test_memories search/test_search",
    "search/index": "search/test_search snapshots/test_segments",
    "search/session_words": "search/test_search_sessions",
    "sessions/documents": "sessions/test_documents log/test_faults_of_items",
    "sessions/session_history": (
        "sessions/test_warm_sessions sessions/test_bounded_reading sessions/test_prefix log/test_cost sessions/test_fork "
        "sessions/test_at"
    ),
    "sessions/session_log": (
        "sessions/test_fork privacy/test_erase privacy/test_redact sessions/test_update sessions/test_append "
        "sessions/test_end sessions/test_rewind sessions/test_listing"
    ),
    "sessions/state_store": (
        "sessions/test_state sessions/test_at sessions/test_decisions log/test_pointer_cycles log/test_faults_of_items"
    ),
    "snapshots/exchange": (
        "snapshots/test_exchange snapshots/test_export log/test_pointer_cycles security/test_forged "
        "security/test_parsers"
    ),
    "snapshots/full": "snapshots/test_archive_items snapshots/test_full_snapshots snapshots/test_restore privacy/test_redact",
    "snapshots/materialise": "snapshots/test_restore snapshots/test_restore_own_id snapshots/test_export",
    "snapshots/segment_format": (
        "snapshots/test_segments snapshots/test_exchange snapshots/test_full_snapshots privacy/test_redact"
    ),
    "snapshots/segments": (
        "snapshots/test_segments snapshots/test_archive_items snapshots/test_full_snapshots privacy/test_redact"
    ),
    "summaries/budget": "summaries/test_budget log/test_cost log/test_lost_races",
    "summaries/passages": "summaries/test_summary_texts summaries/test_rounds",
    "summaries/store": (
        "summaries/test_compress summaries/test_rounds summaries/test_summary_life summaries/test_discard"
    ),
    "summaries/summarisers": (
        "summaries/test_summary_texts summaries/test_model_tries summaries/test_budget summaries/test_compress "
        "engines/test_chat_models"
    ),
    "summaries/trigger": (
        "summaries/test_trigger summaries/test_summary_life summaries/test_totals sessions/test_listing "
        "sessions/test_reach client/test_worker"
    ),
    "windows/assembly": (
        "windows/test_windows windows/test_windows_policies windows/test_classic windows/test_prefix "
        "properties/test_window_laws core/test_pairing search/test_recall properties/test_epochs "
        "windows/test_digests windows/test_large_results properties/test_policies windows/test_items"
    ),
    "windows/base": (
        "properties/test_epochs properties/test_window_laws properties/test_prefix windows/test_windows "
        "windows/test_prefix"
    ),
    "core/token_bounds": (
        "providers/test_counting properties/test_bounds properties/test_lower_bound windows/test_large_results"
    ),
    "core/agent_state": "agents/test_conversion sessions/test_state sessions/test_decisions",
    "core/limits": "core/test_borders http/test_sizes functions/test_stalls core/test_patches windows/test_limits",
    "core/positions": "core/test_borders sessions/test_rewind sessions/test_fork snapshots/test_segments log/test_headers",
    "core/scripts": "summaries/test_summary_texts",
    "core/summaries": "core/test_borders summaries/test_rounds summaries/test_covering log/test_stored_events",
    "core/errors": "core/test_errors http/test_http core/test_borders functions/test_logs",
    "core/*": (
        "core/test_borders core/test_check_shape core/test_frozen core/test_loops core/test_pairing core/test_patches "
        "core/test_patterns core/test_values providers/test_codecs_turnlog log/test_stored_events log/test_headers "
        "security/test_parsers security/test_identity windows/test_ledger windows/test_media windows/test_limits "
        "memory/test_memories search/test_recall_tools sessions/test_run_lease sessions/test_append "
        "sessions/test_decisions sessions/test_state"
    ),
    "providers/*": (
        "providers/test_alternation providers/test_breakpoints providers/test_calibration providers/test_codecs_anthropic "
        "providers/test_codecs_converse providers/test_codecs_openai_chat providers/test_codecs_responses "
        "providers/test_codecs_tools providers/test_codecs_turnlog providers/test_counting providers/test_formats "
        "providers/test_hosted_calls providers/test_javascript_formats properties/test_round_trip "
        "properties/test_javascript_formats windows/test_media windows/test_prefix"
    ),
    "linter/anthropic*": "linter/test_rules_anthropic linter/test_lint linter/test_lint_mutants linter/test_thinking",
    "linter/bedrock_converse*": "linter/test_rules_bedrock_converse linter/test_lint linter/test_lint_mutants",
    "linter/openai_chat": "linter/test_rules_openai_chat linter/test_lint linter/test_lint_mutants",
    "linter/openai_responses": "linter/test_rules_openai_responses linter/test_lint linter/test_lint_mutants",
    "linter/*": (
        "linter/test_lint linter/test_thinking linter/test_rules_anthropic linter/test_rules_bedrock_converse "
        "linter/test_rules_openai_chat linter/test_rules_openai_responses"
    ),
    "windows/breaks": (
        "properties/test_epochs properties/test_prefix windows/test_prefix windows/test_long_runs "
        "properties/test_window_laws windows/test_windows"
    ),
    "windows/budgets": (
        "windows/test_windows windows/test_windows_policies windows/test_classic windows/test_prefix "
        "properties/test_window_laws windows/test_pins properties/test_epochs properties/test_summary_step"
    ),
    "windows/build": (
        "windows/test_windows windows/test_windows_policies windows/test_classic windows/test_prefix "
        "properties/test_window_laws windows/test_pins properties/test_epochs properties/test_summary_step "
        "windows/test_stub_step properties/test_breakpoints properties/test_prefix properties/test_recall_tools"
    ),
    "summaries/covering": (
        "summaries/test_covering summaries/test_open_loop summaries/test_compress summaries/test_rounds windows/test_pins "
        "properties/test_summaries summaries/test_chosen_facts properties/test_summary_step windows/test_windows"
    ),
    "windows/digests": (
        "windows/test_digests windows/test_windows windows/test_windows_policies windows/test_classic "
        "windows/test_prefix properties/test_window_laws windows/test_pins properties/test_epochs "
        "properties/test_summary_step properties/test_ledger"
    ),
    "windows/epochs": (
        "properties/test_epochs properties/test_window_laws properties/test_prefix windows/test_windows "
        "windows/test_prefix"
    ),
    "windows/ledger": (
        "windows/test_ledger summaries/test_chosen_facts properties/test_ledger windows/test_windows "
        "windows/test_windows_policies windows/test_classic windows/test_prefix properties/test_window_laws"
    ),
    "windows/manifest": (
        "windows/test_windows windows/test_windows_policies windows/test_classic windows/test_prefix "
        "properties/test_window_laws windows/test_pins properties/test_epochs properties/test_summary_step "
        "windows/test_items search/test_recall_elsewhere"
    ),
    "windows/media": "windows/test_media windows/test_windows properties/test_window_laws properties/test_prefix",
    "windows/plan": (
        "windows/test_windows windows/test_windows_policies windows/test_classic windows/test_prefix "
        "properties/test_window_laws windows/test_own_steps properties/test_policies properties/test_epochs "
        "properties/test_prefix"
    ),
    "windows/policy": (
        "windows/test_published_limits windows/test_options windows/test_windows windows/test_windows_policies "
        "windows/test_classic windows/test_prefix properties/test_window_laws windows/test_own_steps "
        "core/test_frozen windows/test_pins windows/test_triggers properties/test_policies"
    ),
    "windows/prefix": (
        "providers/test_breakpoints properties/test_breakpoints windows/test_prefix windows/test_windows "
        "windows/test_windows_policies windows/test_classic properties/test_window_laws properties/test_prefix "
        "windows/test_long_runs"
    ),
    "windows/prices": (
        "windows/test_windows_prices benchmarks/test_bench_windows properties/test_summaries windows/test_windows "
        "windows/test_windows_policies windows/test_classic windows/test_prefix properties/test_window_laws"
    ),
    "windows/request": "windows/test_windows search/test_recall_tools sessions/test_law_9 properties/test_recall_tools",
    "windows/recalled": "sessions/test_recalled sessions/test_warm_sessions properties/test_epochs properties/test_window_laws",
    "windows/registry": "windows/test_windows_policies windows/test_own_steps",
    "windows/render": (
        "windows/test_windows windows/test_windows_policies windows/test_classic windows/test_prefix "
        "properties/test_window_laws windows/test_pins properties/test_epochs properties/test_summary_step "
        "windows/test_items"
    ),
    "windows/steps": (
        "windows/test_published_limits windows/test_own_steps windows/test_triggers windows/test_windows_policies "
        "sessions/test_reach core/test_frozen windows/test_digests properties/test_policies windows/test_windows "
        "windows/test_classic windows/test_prefix properties/test_window_laws windows/test_pins "
        "properties/test_epochs properties/test_summary_step windows/test_stub_step"
    ),
    "windows/stubs": (
        "windows/test_published_limits windows/test_stub_step windows/test_windows windows/test_windows_policies "
        "windows/test_classic windows/test_prefix properties/test_window_laws windows/test_large_results "
        "properties/test_epochs properties/test_prefix"
    ),
    "windows/text": (
        "windows/test_windows windows/test_windows_policies windows/test_classic windows/test_prefix "
        "properties/test_window_laws windows/test_pins properties/test_epochs properties/test_summary_step "
        "summaries/test_chosen_facts summaries/test_compress"
    ),
    "windows/triggers": (
        "windows/test_published_limits windows/test_triggers sessions/test_reach windows/test_windows_policies "
        "properties/test_policies summaries/test_totals"
    ),
    "windows/view": (
        "windows/test_windows windows/test_windows_policies windows/test_classic windows/test_prefix "
        "properties/test_window_laws core/test_pairing search/test_recall properties/test_epochs "
        "windows/test_digests windows/test_large_results properties/test_policies windows/test_items windows/test_own_steps"
    ),
    "agents/graph_state/*": "agents/test_conversion agents/test_nodes agents/test_langgraph sessions/test_state",
    "agents/*": "agents/test_*",
    "app": "engines/test_settings engines/test_chat_models memory/test_memory_settings jobs/test_jobs http/test_http",
    "cli/chat/*": "cli/test_chat*",
    "cli/*": "cli/test_*",
    "client/__init__": "client/test_* agents/test_given_messages",
    "client/async*": "client/test_*",
    "client/conversation": "client/test_* sessions/test_append sessions/test_rewind agents/test_nested_agents",
    "client/documents": "sessions/test_documents client/test_over_http",
    "client/exports": "snapshots/test_export snapshots/test_full_snapshots client/test_async",
    "client/finding": "search/test_* windows/test_windows",
    "client/states": "sessions/test_state sessions/test_decisions sessions/test_at",
    "client/stateless": "windows/test_others_calls",
    "client/time_travel": "sessions/test_at sessions/test_fork sessions/test_rewind sessions/test_history snapshots/test_restore",
    "client/*": "client/test_* sessions/test_append sessions/test_listing sessions/test_end jobs/test_jobs",
    "engines/*": "engines/test_* functions/test_service_models",
    "http/openapi": "docs/test_generated http/test_http http/test_reference server/test_pages",
    "http/*": "http/test_* functions/test_* security/test_identity security/test_matrix server/test_pages",
    "importers/*": "importers/test_* snapshots/test_export cli/test_cli_import security/test_parsers",
    "integrations/langchain": "integrations/test_langchain integrations/test_adapters",
    "integrations/langgraph/*": "integrations/test_langgraph* integrations/test_killed",
    "integrations/mcp": "integrations/test_mcp*",
    "integrations/openai_agents*": "integrations/test_openai_agents*",
    "integrations/strands/*": "integrations/test_strands integrations/test_adapters",
    "integrations/*": "integrations/test_*",
    "jobs/*": "jobs/test_*",
    "log/links": "log/test_links snapshots/test_export http/test_sizes",
    "memory/*": "memory/test_*",
    "ports": "jobs/test_jobs engines/test_tenancy engines/test_engines_embedded functions/test_events log/test_cost",
    "privacy/*": "privacy/test_*",
    "routing": "http/test_* functions/test_events security/test_matrix client/test_twins",
    "search/*": "search/test_* sessions/test_recalled",
    "server/admission": "server/test_content_budget e2e/test_web_pages",
    "server/*": "server/test_* http/test_at_once http/test_sizes cli/test_cli template/test_stack e2e/test_serve*",
    "sessions/read": "sessions/test_listing importers/test_shapes sessions/test_*",
    "sessions/update": "sessions/test_update privacy/test_retention sessions/test_*",
    "sessions/*": "sessions/test_*",
    "settings": "engines/test_settings engines/test_chat_models memory/test_memory_settings",
    "snapshots/*": "snapshots/test_*",
    "summaries/*": "summaries/test_* sessions/test_rewind",
    "telemetry": "http/test_telemetry",
    "upkeep/*": "e2e/test_backup cli/test_cli",
}
"""A module below ``shared/turnlog``, or a pattern -> its tests below ``tests``, or patterns of them; the first line that matches
counts. Modules without a line are not mutated."""
RECORDED = "windows/test_recorded"
"""Asked last about each module of windows: any other window fails it, so it says least of what is wrong."""
SCOPE = tuple(f"shared/turnlog/{name}.py" for name in RELATED)


_ON_MOTO = (
    "engines/aws_clients",
    "engines/aws_errors",
    "engines/aws_tenants",
    "engines/dynamodb",
    "engines/s3",
    "engines/sqs",
)


def related(file: str) -> Sequence[str]:
    """Return the test files of a module, those with its name first, then those of its folder."""
    name = file.removeprefix("shared/turnlog/").removesuffix(".py")
    folder, module = name.partition("/")[0], name.rpartition("/")[2]
    listed = next(tests for pattern, tests in RELATED.items() if fnmatch(name, pattern))
    tests = [path.relative_to(TESTS) for pattern in listed.split() for path in sorted(TESTS.glob(f"{pattern}.py"))]
    tests.sort(key=lambda test: (f"test_{module}" not in test.stem, test.parent.name != folder))
    return [f"tests/{test}" for test in [*tests, *([f"{RECORDED}.py"] if folder == "windows" else [])]]


def needs_moto(file: str) -> bool:
    """Return whether a module only runs on AWS: the tests of the others are run on the embedded engine alone."""
    return file.removeprefix("shared/turnlog/").removesuffix(".py") in _ON_MOTO
