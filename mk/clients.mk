# The client in TypeScript, with npm's packages; included by the Makefile.
.PHONY: clients

ifneq ($(shell command -v npm 2>/dev/null),)

clients: $(VENV)/dev.stamp  ## Build the TypeScript client and test it against turnlog serve
	@if $(BIN)/python tools/clients.py install; then $(BIN)/python tools/clients.py test; \
		else $(call NEEDS,npm could not fetch its packages; try again with its registry in reach); fi

else

clients:
	@$(call NEEDS,needs npm on PATH; install Node.js (nodejs.org))

endif
