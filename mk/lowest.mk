# The tests with the oldest versions that pyproject.toml allows, in an environment of their own; included by the Makefile.
LOWEST := .venv-lowest

.PHONY: lowest

$(LOWEST)/run.stamp: pyproject.toml mk/lowest-requirements.txt mk/lowest.mk
	@test -n "$(PYTHON)" || { echo "Turnlog needs Python 3.11 or later on PATH"; exit 1; }
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	@echo "Installing the oldest versions that Turnlog allows into $(LOWEST) (once) ..."
	@$(LOWEST)/bin/python $(PIP_INSTALL) -r mk/lowest-requirements.txt
	@$(LOWEST)/bin/uv pip install -q --python $(LOWEST)/bin/python --upgrade --resolution lowest-direct -r mk/lowest-requirements.txt \
		-e '.[aws,cli,langchain,langgraph,local,mcp,moto,openai-agents,otel,strands]'
	@touch $@

# Old versions warn of what is newer, generated pages are those of the newest pydantic, and one module compares Turnlog with the
# newest session of the OpenAI Agents SDK.
lowest: $(LOWEST)/run.stamp  ## Run the tests with the oldest versions that pyproject.toml allows
	@$(LOWEST)/bin/python -m pytest -q -n $(WORKERS) --dist worksteal -W ignore::DeprecationWarning \
		--ignore tests/integrations/test_openai_agents_advanced.py \
		$(filter-out tests/benchmarks tests/docs tests/e2e_aws tests/packaging tests/support,$(patsubst %/,%,$(wildcard tests/*/)))
