"""Which tests are asked about a module, the quickest and nearest first: `make mutants` runs these alone."""

from __future__ import annotations

from collections.abc import Sequence

SCOPE = ("shared/turnlog/log/*.py", "shared/turnlog/adapters/*/*.py", "shared/turnlog/windows/*.py")

_LOG, _WINDOWS = "shared/turnlog/log/", "shared/turnlog/windows/"
_AWS, _EMBEDDED = "shared/turnlog/adapters/aws/", "shared/turnlog/adapters/embedded/"
_MEMORIES, _SUMMARISERS = "shared/turnlog/adapters/memories/", "shared/turnlog/adapters/summarisers/"
_TOKENS, _SEARCH = "shared/turnlog/adapters/tokens/", "shared/turnlog/adapters/search/"

_OF_WINDOWS = (
    "unit/test_windows unit/test_windows_policies unit/test_classic unit/test_prefix properties/test_window_laws"
)
_ENGINES_AWS = "contract/test_engines_aws log/test_faults_of_aws"

RELATED = {
    _LOG + "archive": "log/test_full_snapshots log/test_restore log/test_redact",
    _LOG + "attempts": "log/test_asking log/test_summary_life",
    _LOG + "caches": "log/test_state log/test_update log/test_listing log/test_faults_of_items log/test_summary_life",
    _LOG + "cards": "log/test_stored_events log/test_segments log/test_recall log/test_storage log/test_at",
    _LOG
    + "commit_items": "log/test_ranges_of_forks log/test_circles log/test_fork log/test_at log/test_rewind log/test_erase",
    _LOG
    + "commits": "log/test_append log/test_verified log/test_rewind log/test_circles log/test_fork log/test_storage",
    _LOG + "digests": "log/test_export log/test_redact security/test_forged",
    _LOG + "documents": "log/test_documents",
    _LOG + "erased": "log/test_erase log/test_erase_user log/test_retention",
    _LOG + "erasure": "log/test_erase log/test_retention log/test_erase_user log/test_restore_own_id",
    _LOG + "exchange": "log/test_export log/test_circles security/test_forged",
    _LOG + "first_slot": "log/test_restore_own_id log/test_retention log/test_restore_orders",
    _LOG + "forks": "log/test_fork log/test_erase log/test_redact",
    _LOG + "full_snapshots": "log/test_full_snapshots log/test_restore log/test_redact",
    _LOG
    + "headers": "log/test_append log/test_end log/test_totals log/test_learning log/test_storage log/test_faults_of_items",
    _LOG + "history": "log/test_at log/test_history",
    _LOG + "kept": "log/test_restore_own_id log/test_retention log/test_full_snapshots",
    _LOG
    + "keys": "log/test_append log/test_segments log/test_tenancy log/test_redact log/test_export log/test_retention",
    _LOG
    + "lines": "log/test_stored_events log/test_history log/test_append log/test_state log/test_summary_life log/test_pending",
    _LOG + "materialise": "log/test_restore log/test_restore_own_id log/test_export",
    _LOG + "memories": "log/test_memories contract/test_memory_embedded log/test_memory_erasure",
    _LOG + "message_copies": "log/test_redact log/test_memory_erasure log/test_offload",
    _LOG + "newest": "log/test_retention log/test_recall log/test_rewind",
    _LOG + "offloads": "log/test_offload",
    _LOG + "packing": "log/test_redact log/test_segments log/test_storage",
    _LOG + "parallel": "unit/test_tenancy log/test_restore log/test_segments",
    _LOG + "payloads": "log/test_append log/test_fork log/test_redact log/test_offload log/test_storage",
    _LOG
    + "read_lines": "log/test_stored_events log/test_history log/test_append log/test_state log/test_summary_life log/test_storage",
    _LOG + "reading": "log/test_recall log/test_search log/test_segments log/test_at",
    _LOG + "records": "log/test_redact log/test_snapshots log/test_jobs log/test_redrive log/test_full_snapshots",
    _LOG + "redacted_lines": "log/test_redact log/test_summary_life",
    _LOG + "redacted_parts": "log/test_redact log/test_full_snapshots",
    _LOG + "redaction": "log/test_redact log/test_fork",
    _LOG + "search_index": "log/test_search log/test_segments",
    _LOG + "segment_format": "log/test_segments log/test_full_snapshots log/test_redact",
    _LOG + "segments": "log/test_segments log/test_full_snapshots log/test_redact",
    _LOG + "sessions": "log/test_update log/test_append log/test_end log/test_rewind log/test_fork log/test_prefix",
    _LOG + "spending": "summarisers/test_budget log/test_cost",
    _LOG + "state": "log/test_state log/test_at log/test_pending log/test_circles log/test_faults_of_items",
    _LOG + "summaries": "log/test_compress log/test_rounds log/test_summary_life log/test_discard",
    _LOG + "tombstones": "log/test_erase log/test_retention log/test_restore_own_id",
    _LOG + "totals": "log/test_totals log/test_listing",
    _LOG + "verified": "log/test_verified log/test_faults_of_items log/test_storage",
    _LOG + "words": "log/test_search_sessions",
    _LOG + "": "log/test_append log/test_fork log/test_redact",
    _WINDOWS + "bound_tables": "properties/test_bounds properties/test_lower_bound",
    _WINDOWS + "bounds": "unit/test_counting properties/test_bounds properties/test_lower_bound",
    _WINDOWS + "caching": "unit/test_breakpoints properties/test_breakpoints",
    _WINDOWS + "breaks": "unit/test_breakpoints properties/test_breakpoints unit/test_prefix",
    _WINDOWS + "costs": f"unit/test_windows_prices {_OF_WINDOWS}",
    _WINDOWS + "covering": "log/test_compress log/test_rounds unit/test_pins properties/test_summaries",
    _WINDOWS + "ladder": f"unit/test_windows properties/test_ladder {_OF_WINDOWS}",
    _WINDOWS + "ledger": f"unit/test_summary_facts properties/test_ledger {_OF_WINDOWS}",
    _WINDOWS + "memories": "properties/test_bootstrapped log/test_bootstrap security/test_injection",
    _WINDOWS + "options": f"unit/test_options {_OF_WINDOWS}",
    _WINDOWS + "pins": f"unit/test_pins unit/test_pinned {_OF_WINDOWS}",
    _WINDOWS + "plan": f"{_OF_WINDOWS} unit/test_own_steps properties/test_policies",
    _WINDOWS
    + "policy": "unit/test_windows_policies unit/test_options unit/test_own_steps unit/test_triggers unit/test_classic",
    _WINDOWS + "prices": "unit/test_windows_prices unit/test_bench_windows properties/test_summaries",
    _WINDOWS + "reach": "log/test_reach log/test_asking",
    _WINDOWS + "recall": "log/test_recall_tools log/test_law_9 properties/test_recall_tools",
    _WINDOWS + "registry": "unit/test_windows_policies unit/test_own_steps",
    _WINDOWS + "step_checks": "unit/test_own_steps properties/test_policies",
    _WINDOWS + "steps": "unit/test_own_steps unit/test_triggers unit/test_windows_policies log/test_reach",
    _WINDOWS + "stub": f"unit/test_stub_step unit/test_windows {_OF_WINDOWS}",
    _WINDOWS + "summaries": f"unit/test_summary_facts properties/test_summary_step log/test_compress {_OF_WINDOWS}",
    _WINDOWS + "summary": f"unit/test_summary_facts properties/test_summary_step log/test_compress {_OF_WINDOWS}",
    _WINDOWS + "triggers": "unit/test_triggers log/test_reach unit/test_windows_policies properties/test_policies",
    _WINDOWS + "view": f"{_OF_WINDOWS} unit/test_pairing log/test_recall properties/test_ledger",
    _WINDOWS + "": f"{_OF_WINDOWS} unit/test_pins properties/test_ladder properties/test_prefix",
    _AWS + "agentcore": "memories/test_agentcore",
    _AWS + "asking": "summarisers/test_models embedders/test_reranking memories/test_agentcore",
    _AWS + "bedrock": "summarisers/test_models",
    _AWS + "clients": f"{_ENGINES_AWS} unit/test_tenant_credentials functions/test_tenant_credentials",
    _AWS + "embeddings": "embedders/test_reranking",
    _AWS + "service_models": "functions/test_service_models",
    _AWS + "signing": "client/test_signing",
    _AWS + "tenants": "unit/test_tenant_credentials functions/test_tenant_credentials",
    _AWS + "": _ENGINES_AWS,
    _EMBEDDED
    + "sqlite": "contract/test_engines_embedded unit/test_sqlite_waiting log/test_faults_of_disks log/test_jobs",
    _EMBEDDED + "": "contract/test_engines_embedded log/test_faults_of_disks log/test_erase log/test_export",
    _MEMORIES + "webhook": "memories/test_webhook",
    _MEMORIES + "sentences": "unit/test_sentences contract/test_memory_embedded log/test_memories",
    _MEMORIES + "": "log/test_memories memories/test_choice security/test_parsers",
    _SUMMARISERS + "extractive": "unit/test_summary_texts summarisers/test_budget log/test_compress",
    _SUMMARISERS + "": "summarisers/test_models unit/test_summary_texts",
    _TOKENS + "": "unit/test_token_counters unit/test_counting log/test_cost",
    _SEARCH + "": "contract/test_memory_embedded log/test_memories log/test_search",
}
"""Beginning of a module's path -> its tests; the longest that fits is taken."""


def related(file: str) -> Sequence[str]:
    """Return the test files of a module."""
    beginning = max((name for name in RELATED if file.startswith(name)), key=len)
    return list(dict.fromkeys(f"tests/{name}.py" for name in RELATED[beginning].split()))
