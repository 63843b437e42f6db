# The MCP conformance suite, from npm; included by the Makefile. Skipped, and says so, where npm is not.
.PHONY: mcp-conformance

mcp-conformance: $(VENV)/dev.stamp  ## The MCP conformance suite against turnlog mcp --http
	@$(BIN)/python tools/mcp_conformance.py install
	@$(BIN)/python tools/mcp_conformance.py test
