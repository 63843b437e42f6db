# Agent frameworks whose dependencies are large or quarrel with the development environment, in one of their own that lies over
# it; included by the Makefile. Their adapters' tests skip where they are not.
FRAMEWORKS := .venv-frameworks

.PHONY: frameworks

$(FRAMEWORKS)/run.stamp: $(VENV)/dev.stamp tools/frameworks.py pyproject.toml
	@echo "Installing the agent frameworks of the adapters into $(FRAMEWORKS) (once) ..."
	@$(BIN)/python tools/frameworks.py $(FRAMEWORKS)
	@touch $@

frameworks: $(VENV)/dev.stamp  ## Test the adapters of large frameworks in an environment of their own
	@if $(MAKE) --no-print-directory $(FRAMEWORKS)/run.stamp; then \
		$(FRAMEWORKS)/bin/python -m pytest -q -n $(WORKERS) --dist worksteal tests/integrations/frameworks tests/integrations/test_adapters.py \
		tests/integrations/test_frameworks_page.py \
		-k "agent_framework or claude or google_adk or llama_index or pydantic_ai or page"; \
		else $(call NEEDS,the frameworks could not be fetched; try again with the registry in reach); fi
