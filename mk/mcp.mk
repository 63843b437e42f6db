# The MCP conformance suite, from npm; included by the Makefile.
.PHONY: mcp-conformance

ifneq ($(shell command -v npm 2>/dev/null),)

mcp-conformance: $(VENV)/dev.stamp  ## Run the MCP conformance suite against turnlog mcp --http
	@if $(BIN)/python tools/mcp_conformance.py install; then $(BIN)/python tools/mcp_conformance.py test; \
		else $(call NEEDS,npm could not fetch the suite; try again with its registry in reach); fi

else

mcp-conformance:
	@$(call NEEDS,needs npm on PATH; install Node.js (nodejs.org))

endif
