# Windows, summaries and segments on conversations, and load; included by the Makefile. Without ARGS: the project's own conversations.
.PHONY: replay bench-load bench-windows bench-worst bench-breakpoints bench-search bench-recall bench-segments bench-snapshots bench-summaries bench-inspector

replay: $(VENV)/dev.stamp  ## Replay conversations over HTTP and check every message and window [ARGS='FOLDER --policy run_loops']
	@$(BIN)/python -m benchmarks.replay $(or $(ARGS),examples/conversations)

bench-windows: $(VENV)/dev.stamp  ## Measure what windows cost and lose, by policy and budget [ARGS='FOLDER --loader FILE.py']
	@$(BIN)/python -m benchmarks.windows $(ARGS)

bench-worst: $(VENV)/dev.stamp  ## Measure the worst legal request of each route, in CPU seconds [ARGS='--routes patch_state --all']
	@$(BIN)/python -m benchmarks.worst_requests $(ARGS)

bench-breakpoints: $(VENV)/dev.stamp  ## Measure what calls cost with our prompt-cache breakpoints [ARGS='FOLDER --loader FILE.py']
	@$(BIN)/python -m benchmarks.windows.breakpoints $(ARGS)

bench-search: $(VENV)/dev.stamp  ## Measure what search finds, and its cost at 100 to 10,000 messages [ARGS='FOLDER --loader FILE.py']
	@$(BIN)/python -m benchmarks.search $(ARGS)

bench-recall: $(VENV)/dev.stamp  ## Measure how much of a question's evidence is in the window, by budget [ARGS='FOLDER --loader FILE.py --costs']
	@$(BIN)/python -m benchmarks.recall $(ARGS)

bench-segments: $(VENV)/dev.stamp  ## Measure the size of segments against their messages [ARGS='FOLDER --loader FILE.py']
	@$(BIN)/python -m benchmarks.segments $(ARGS)

bench-snapshots: $(VENV)/dev.stamp  ## Measure full snapshots, restore, export and import of 10,000 messages [ARGS='--messages N']
	@$(BIN)/python -m benchmarks.snapshots $(ARGS)

bench-summaries: $(VENV)/dev.stamp  ## Measure what summaries save and lose, with facts and without [ARGS='FOLDER --loader FILE.py']
	@$(BIN)/python -m benchmarks.summaries $(ARGS)

bench-load: $(VENV)/dev.stamp  ## Load a service on loopback: sessions x writers x readers, processes on one file, memory [ARGS=--quick]
	@$(BIN)/python -m benchmarks.load $(ARGS)

bench-inspector: $(VENV)/dev.stamp  ## Measure the inspector on 10,000 messages: CPU of the server and of the page
	@$(BIN)/python -m benchmarks.inspector
