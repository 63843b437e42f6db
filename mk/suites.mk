# The frameworks' own tests on Turnlog's stores, in an environment of its own; included by the Makefile.
SUITES := .venv-suites

.PHONY: framework-suites

$(SUITES)/run.stamp: pyproject.toml constraints.txt tools/suites/requirements.txt mk/suites.mk
	@test -n "$(PYTHON)" || { echo "Turnlog needs Python 3.11 or later on PATH"; exit 1; }
	@test -x $(SUITES)/bin/python || $(PYTHON) -m venv $(SUITES)
	@echo "Installing Turnlog, the frameworks and what their tests need into $(SUITES) (once) ..."
	@$(SUITES)/bin/python $(PIP_INSTALL) -c constraints.txt -e '.[aws,langchain,langgraph,moto,openai-agents,strands]'
	@$(SUITES)/bin/python $(PIP_INSTALL) -r tools/suites/requirements.txt
	@touch $@

framework-suites: $(SUITES)/run.stamp  ## Run the frameworks' own tests on Turnlog's stores, into docs/contributing/framework-suites.md
	@$(SUITES)/bin/python -m tools.suites.run $(ARGS)
