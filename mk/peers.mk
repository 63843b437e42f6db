# Turnlog beside its peers, in an environment of its own; included by the Makefile. An installed peer that fails is a row of
# the table; delete .venv-peers to install again.
PEERS := .venv-peers

.PHONY: bench-peers

$(PEERS)/run.stamp: pyproject.toml benchmarks/peers/requirements.txt mk/peers.mk
	@test -n "$(PYTHON)" || { echo "Turnlog needs Python 3.11 or later on PATH"; exit 1; }
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@echo '*' > $(PEERS)/.gitignore
	@echo "Installing Turnlog and its peers into $(PEERS) (once) ..."
	@$(PEERS)/bin/python $(PIP_INSTALL) -r benchmarks/peers/requirements.txt -e '.[aws,cli,local]'
	@touch $@

bench-peers: $(PEERS)/run.stamp  ## Compare Turnlog with its peers over the same turns: cost, limits, lost messages
	@$(PEERS)/bin/python -m benchmarks.peers $(ARGS)
