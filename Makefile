# Everything runs in .venv, which is made from the package registries with nothing but Python 3.11+ and make.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto
ENGINE ?= embedded
PR_PARTS := lint house checkov test frameworks clients build-test mcp-conformance
# Compiled is what is imported, when it is: a third of the time of an install.
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test serve lint house format docs bench bench-cost faults planted mutants pr pr-begins full clean

help:  ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | sort

$(VENV)/run.stamp: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Turnlog needs Python 3.11 or later on PATH"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Turnlog into $(VENV) (once) ..."
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[cli,local]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Turnlog needs Python 3.11 or later on PATH"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Turnlog and what its tests need into $(VENV) (once) ..."
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[dev]'
	@echo "Compiling what the tests import (once) ..."
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null || true  # else each process of a test run would compile it
	@touch $(VENV)/run.stamp $@

setup: $(VENV)/dev.stamp  ## Make .venv with everything

demo: $(if $(filter moto,$(ENGINE)),$(VENV)/moto.stamp,$(VENV)/run.stamp)  ## Run the main job on sample conversations [ENGINE=moto]
	@$(BIN)/python examples/demo.py --engine $(ENGINE) $(if $(filter embedded,$(ENGINE)),--keep build/demo)

test: $(VENV)/dev.stamp  ## Run the tests
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

serve: $(if $(filter moto,$(ENGINE)),$(VENV)/moto.stamp,$(VENV)/run.stamp)  ## Serve on http://127.0.0.1:8787 [ENGINE=moto]
	@$(BIN)/turnlog serve --engine $(ENGINE)

lint: $(VENV)/dev.stamp  ## Check style, types, import directions, spelling and prose of the pages
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy tests benchmarks tools examples/demo.py
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python tools/prose.py

house: $(VENV)/dev.stamp  ## Print the budgets of code and documentation beside their limits [ARGS=--list]
	@$(BIN)/python tools/house.py $(ARGS)

format: $(VENV)/dev.stamp  ## Let ruff format the code and fix what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(VENV)/dev.stamp  ## Write the generated pages: OpenAPI, JSON Schemas, configuration, figures of policies
	@$(BIN)/python tools/make_docs.py

bench: $(VENV)/dev.stamp  ## Measure each operation beside its limits: requests, capacity, bytes, CPU, import time [ARGS=--quick]
	@$(BIN)/python -m benchmarks.operations $(ARGS)

bench-cost: $(VENV)/dev.stamp  ## Meter what a thousand turns cost on AWS
	@$(BIN)/python -m benchmarks.cost $(ARGS)

faults: $(VENV)/dev.stamp  ## Try faults of each kind in each operation, into docs/contributing/faults.md [ARGS=--full]
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --faults-report docs/contributing/faults.md $(ARGS) \
		tests/log/test_crashes.py tests/log/test_throttling.py tests/log/test_pairs.py tests/privacy/test_erase.py \
		tests/log/test_faults_of_aws.py tests/log/test_faults_of_clocks.py tests/log/test_faults_of_disks.py \
		tests/log/test_faults_of_items.py tests/log/test_faults_of_workers.py

planted: $(VENV)/dev.stamp  ## Break the code on purpose and see the tests fail, into docs/contributing/planted-faults.md [ARGS="-k word"]
	@$(BIN)/python tools/plant_faults.py $(ARGS)

mutants: $(VENV)/dev.stamp  ## Break a seeded sample of places and see the tests fail, into docs/contributing/mutants.md [ARGS="--seed 1 --sample 40"]
	@$(BIN)/python tools/mutants.py $(ARGS)

pr: pr-begins $(PR_PARTS)  ## Run what CI runs; the last lines say what was skipped
	@if [ -s "$$SKIPPED_PARTS" ]; then echo "make pr has skipped:"; cat "$$SKIPPED_PARTS"; else echo "make pr has skipped nothing"; fi

pr-begins:
	@mkdir -p build && rm -f "$$SKIPPED_PARTS"

full: lint $(VENV)/dev.stamp  ## Run everything, which takes hours; write docs/contributing/full.md
	@mkdir -p build
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --full --timeout 1800 --junitxml build/full.xml; ended=$$?; \
		$(BIN)/python tools/full_report.py build/full.xml docs/contributing/full.md && exit $$ended

clean:  ## Remove what was made
	rm -rf $(VENV) .venv-* .mcp-conformance .aws-sam build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

include mk/skips.mk mk/aws.mk mk/clients.mk mk/e2e.mk mk/frameworks.mk mk/local.mk mk/lowest.mk mk/emulators.mk mk/mcp.mk mk/peers.mk mk/suites.mk mk/windows.mk
