# Building and checking what is deployed. The SAM CLI has a venv of its own: its pins clash with ours.
# The runtime's Python has to be on PATH, as `sam build` asks for it; without it these targets fail and say so.
RUNTIME_PYTHON := python3.13
NO_RUNTIME := needs $(RUNTIME_PYTHON) on PATH, the Python of the Lambda runtime; install it (www.python.org/downloads, or pyenv install 3.13)
HAS_RUNTIME := $(shell $(RUNTIME_PYTHON) -c 'print(1)' 2>/dev/null)
SAM_VENV := .venv-sam
LAMBDA_VENV := .venv-lambda
SAM_CLI := SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=$${AWS_DEFAULT_REGION:-eu-central-1} $(SAM_VENV)/bin/sam
FINISH := $(RUNTIME_PYTHON) tools/finish_build.py
HOST_BUILD := .aws-sam/host/build
HOST_ARCHITECTURE := $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,x86_64)

LAYER_REQUIREMENTS := layers/dependencies/requirements.txt
LAYER_WHEELS := $(SAM_VENV)/layer-wheels

.PHONY: bench-starts build build-test sam-validate

$(SAM_VENV)/sam.stamp: mk/sam-requirements.txt
	@test -x $(SAM_VENV)/bin/python || $(PYTHON) -m venv $(SAM_VENV)
	@echo "Installing the SAM CLI into $(SAM_VENV) (once) ..."
	@$(SAM_VENV)/bin/python $(PIP_INSTALL) -r $<
	@touch $@

$(LAMBDA_VENV)/lambda.stamp: mk/lambda-requirements.txt
	@test -x $(LAMBDA_VENV)/bin/python || $(RUNTIME_PYTHON) -m venv $(LAMBDA_VENV)
	@echo "Installing the Lambda runtime's client into $(LAMBDA_VENV) (once) ..."
	@$(LAMBDA_VENV)/bin/python $(PIP_INSTALL) -r $<
	@touch $@

sam-validate: $(SAM_VENV)/sam.stamp  ## Let the SAM CLI check template.yaml
	@$(SAM_CLI) validate --lint

# The wheels of the layer, each compared with its hash: for both architectures of Lambda, and for this machine, where `sam build`
# looks first. It compares no hash of what it downloads for another machine than its own, so it gets these files and no index.
$(LAYER_WHEELS)/wheels.stamp: $(LAYER_REQUIREMENTS) $(SAM_VENV)/sam.stamp
	@rm -rf $(@D) && mkdir -p $(@D)
	@echo "Fetching the layer's wheels into $(@D) (once) ..."
	@$(LAYER_DOWNLOAD)
	@$(LAYER_DOWNLOAD) --platform manylinux2014_aarch64 --platform manylinux_2_28_aarch64
	@$(LAYER_DOWNLOAD) --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64
	@touch $@

LAYER_DOWNLOAD = $(SAM_VENV)/bin/python -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps \
	--only-binary=:all: --implementation cp --python-version 3.13 --dest $(@D) --requirement $(LAYER_REQUIREMENTS)
SAM_BUILD := PIP_NO_INDEX=1 PIP_FIND_LINKS=$(abspath $(LAYER_WHEELS)) $(SAM_CLI) build

ifeq ($(HAS_RUNTIME),1)

build: $(LAYER_WHEELS)/wheels.stamp  ## Build what `sam deploy` deploys, into .aws-sam/build
	@$(SAM_BUILD)
	@$(FINISH) .aws-sam/build

# Not cached: two builds of one template would throw away each other's cache.
build-test: $(VENV)/dev.stamp $(LAYER_WHEELS)/wheels.stamp $(LAMBDA_VENV)/lambda.stamp  ## Build for this machine, run it in the Lambda runtime
	@$(SAM_BUILD) --no-cached --build-dir $(HOST_BUILD) --parameter-overrides Architecture=$(HOST_ARCHITECTURE)
	@$(FINISH) $(HOST_BUILD)
	@TURNLOG_TEST_BUILT=1 $(BIN)/python -m pytest -q -rP tests/template/test_built.py

bench-starts: build-test  ## Measure import and first request of the built handlers against boto3 [ARGS='--runs 21']
	@rm -rf .aws-sam/host/boto3
	@$(LAMBDA_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --target .aws-sam/host/boto3 boto3
	@$(BIN)/python -m benchmarks.handlers --built $(ARGS)

else

bench-starts build build-test:
	@$(call NEEDS,$(NO_RUNTIME))

endif
