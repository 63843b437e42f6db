# AWS emulators beside the tests; included by the Makefile. What can't be had here is named, and its tests are skipped.
.PHONY: emulators

emulators: $(VENV)/dev.stamp  ## Fetch dynoxide and ministack, run the contract suites on them
	@$(BIN)/python tools/emulators.py install
	@$(BIN)/python tools/emulators.py test
