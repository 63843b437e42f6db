# The stack on an emulator of AWS, and the checks of its security; included by the Makefile. Both have a venv of their own. CI runs
# the first beside `make pr`: it takes minutes.
MINISTACK_VENV := .venv-ministack
CHECKOV_VENV := .venv-checkov

.PHONY: e2e checkov

$(CHECKOV_VENV)/checkov.stamp: mk/checkov-requirements.txt
	@test -x $(CHECKOV_VENV)/bin/python || $(PYTHON) -m venv $(CHECKOV_VENV)
	@echo "Installing checkov into $(CHECKOV_VENV) (once) ..."
	@$(CHECKOV_VENV)/bin/python $(PIP_INSTALL) -r $<
	@touch $@

# Asks nobody: no account, no download. LOG_LEVEL: it warns of what it can't import of other clouds. A template that it can't read is
# no error to it.
checkov: $(CHECKOV_VENV)/checkov.stamp  ## Check the security of template.yaml; what is skipped, and why: mk/checkov.yaml
	@said=$$(BC_API_KEY= LOG_LEVEL=ERROR $(CHECKOV_VENV)/bin/checkov --config-file mk/checkov.yaml --skip-download -f template.yaml 2>&1); \
		code=$$?; echo "$$said"; case "$$said" in *"Passed checks: 0,"* | *"Parsing errors"*) exit 1 ;; esac; exit $$code

ifeq ($(HAS_RUNTIME),1)

# Functions run in the Python of the emulator, so it is the runtime's.
$(MINISTACK_VENV)/ministack.stamp: mk/ministack-requirements.txt
	@test -x $(MINISTACK_VENV)/bin/python || $(RUNTIME_PYTHON) -m venv $(MINISTACK_VENV)
	@echo "Installing ministack into $(MINISTACK_VENV) (once) ..."
	@$(MINISTACK_VENV)/bin/python $(PIP_INSTALL) -r $<
	@touch $@

e2e: $(VENV)/dev.stamp $(LAYER_WHEELS)/wheels.stamp $(MINISTACK_VENV)/ministack.stamp  ## Build, deploy onto ministack with IAM enforced, drive it by the client
	@$(SAM_BUILD) --no-cached --build-dir $(HOST_BUILD) --parameter-overrides Architecture=$(HOST_ARCHITECTURE)
	@$(FINISH) $(HOST_BUILD)
	@TURNLOG_TEST_E2E=1 $(BIN)/python -m pytest -q -rP tests/e2e_aws

else

e2e:
	@$(call NEEDS,$(NO_RUNTIME))

endif
