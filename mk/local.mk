# The AWS path on this machine; included by the Makefile. `moto` needs nothing but PyPI, `sam local` needs Docker.
ENGINE ?= embedded
SAM ?= sam
FN ?= AppendFunction
EVENT ?= events/append_messages.json
# Where the moto server listens. Containers reach the loopback of a Mac, but not that of Linux: there, the bridge's own
# address is for you to choose, `make sam-resources BIND=172.17.0.1` (docs/how-to/sam-local.md).
BIND ?= 127.0.0.1
MOTO_PORT := 5555
SAM_ARCHITECTURE ?= $(if $(filter arm64 aarch64,$(shell uname -m)),arm64,x86_64)
SAM_LOCAL := --template .aws-sam/build/local.yaml --env-vars events/env.json --add-host host.docker.internal:host-gateway \
	--parameter-overrides Architecture=$(SAM_ARCHITECTURE)
# `sam local` hands the shell's credentials to the containers: these are made up.
SAM_SHELL := env -u AWS_PROFILE -u AWS_SESSION_TOKEN AWS_ACCESS_KEY_ID=made-up AWS_SECRET_ACCESS_KEY=made-up \
	AWS_DEFAULT_REGION=eu-central-1 AWS_REGION=eu-central-1

.PHONY: sam-resources sam-invoke sam-api sam-local-ready

$(VENV)/moto.stamp: $(VENV)/run.stamp
	@echo "Installing what the moto engine needs (once) ..."
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[cli,local,moto]'
	@touch $@

sam-resources: $(VENV)/moto.stamp  ## Serve the template's table, bucket and queues by moto, for sam-invoke
	@$(BIN)/python tools/local_stack.py serve --host $(BIND) --port $(MOTO_PORT)

sam-invoke: sam-local-ready  ## Invoke one function in a container: FN=AppendFunction EVENT=events/append_messages.json
	@$(SAM_SHELL) $(SAM) local invoke $(FN) --event $(EVENT) $(SAM_LOCAL)

sam-api: sam-local-ready  ## Serve the API in containers (only the open routes: sam local signs nobody in)
	@$(SAM_SHELL) $(SAM) local start-api --host 127.0.0.1 $(SAM_LOCAL)

sam-local-ready:
	@docker info >/dev/null 2>&1 || { echo "sam local needs Docker, which does not run here; the same without it: make serve ENGINE=moto" >&2; exit 1; }
	@command -v $(SAM) >/dev/null 2>&1 || { echo "sam is not on PATH: pip install aws-sam-cli" >&2; exit 1; }
	@$(MAKE) --no-print-directory $(VENV)/moto.stamp
	@$(BIN)/python tools/local_stack.py check --host $(BIND) --port $(MOTO_PORT)
	@$(SAM_SHELL) $(SAM) build --use-container --cached --parameter-overrides Architecture=$(SAM_ARCHITECTURE) >/dev/null
	@$(BIN)/python tools/local_stack.py template .aws-sam/build/template.yaml .aws-sam/build/local.yaml
