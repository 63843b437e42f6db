# Windows on conversations, beside plain baselines; included by the Makefile. Without ARGS: the project's own conversations.
.PHONY: bench-windows bench-breakpoints

bench-windows: $(VENV)/dev.stamp  ## What windows cost and lose, by policy and budget [ARGS='FOLDER --loader FILE.py']
	@$(BIN)/python -m benchmarks.windows $(ARGS)

bench-breakpoints: $(VENV)/dev.stamp  ## What calls cost with our prompt-cache breakpoints [ARGS='FOLDER --loader FILE.py']
	@$(BIN)/python -m benchmarks.windows.breakpoints $(ARGS)
