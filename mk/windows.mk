# Windows, summaries and segments on conversations, and load; included by the Makefile. Without ARGS: the project's own conversations.
.PHONY: replay bench-load bench-windows bench-worst bench-breakpoints bench-search bench-recall bench-segments bench-snapshots bench-summaries bench-inspector

replay: $(VENV)/dev.stamp  ## Replay conversations over HTTP and check every message and window [ARGS='FOLDER --policy run_loops']
	@$(BIN)/python -m benchmarks.replay $(or $(ARGS),examples/conversations)

bench-windows: $(VENV)/dev.stamp  ## What windows cost and lose, by policy and budget [ARGS='FOLDER --loader FILE.py']
	@$(BIN)/python -m benchmarks.windows $(ARGS)

bench-worst: $(VENV)/dev.stamp  ## The worst legal request of each route, in CPU seconds [ARGS='--routes patch_state --all']
	@$(BIN)/python -m benchmarks.worst_requests $(ARGS)

bench-breakpoints: $(VENV)/dev.stamp  ## What calls cost with our prompt-cache breakpoints [ARGS='FOLDER --loader FILE.py']
	@$(BIN)/python -m benchmarks.windows.breakpoints $(ARGS)

bench-search: $(VENV)/dev.stamp  ## What search finds, and what it costs at 100 to 10,000 messages [ARGS='FOLDER --loader FILE.py']
	@$(BIN)/python -m benchmarks.search $(ARGS)

bench-recall: $(VENV)/dev.stamp  ## How much of a question's evidence stands in the window, by budget [ARGS='FOLDER --loader FILE.py --costs']
	@$(BIN)/python -m benchmarks.recall $(ARGS)

bench-segments: $(VENV)/dev.stamp  ## What segments take of the bytes that were said [ARGS='FOLDER --loader FILE.py']
	@$(BIN)/python -m benchmarks.segments $(ARGS)

bench-snapshots: $(VENV)/dev.stamp  ## Full snapshots, restore, export and import of 10,000 messages [ARGS='--messages N']
	@$(BIN)/python -m benchmarks.snapshots $(ARGS)

bench-summaries: $(VENV)/dev.stamp  ## What summaries save and lose, with facts and without [ARGS='FOLDER --loader FILE.py']
	@$(BIN)/python -m benchmarks.summaries $(ARGS)

bench-load: $(VENV)/dev.stamp  ## Load on loopback: sessions x writers x readers, processes on one file, memory over a long run [ARGS=--quick]
	@$(BIN)/python -m benchmarks.load $(ARGS)

bench-inspector: $(VENV)/dev.stamp  ## The inspector on 10,000 messages: CPU of the server and of the page
	@$(BIN)/python -m benchmarks.inspector
