"""Windows on real conversations: what each policy sends, what it costs, and what a call then lacks, beside plain baselines."""
