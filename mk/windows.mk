# Windows and summaries on conversations, beside plain baselines; included by the Makefile. Without ARGS: the project's own conversations.
.PHONY: bench-windows bench-breakpoints bench-summaries

bench-windows: $(VENV)/dev.stamp  ## What windows cost and lose, by policy and budget [ARGS='FOLDER --loader FILE.py']
	@$(BIN)/python -m benchmarks.windows $(ARGS)

bench-breakpoints: $(VENV)/dev.stamp  ## What calls cost with our prompt-cache breakpoints [ARGS='FOLDER --loader FILE.py']
	@$(BIN)/python -m benchmarks.windows.breakpoints $(ARGS)

bench-summaries: $(VENV)/dev.stamp  ## What summaries save and lose, with facts and without [ARGS='FOLDER --loader FILE.py']
	@$(BIN)/python -m benchmarks.summaries $(ARGS)
