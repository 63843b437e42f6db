# What can't be done on this machine; included by the Makefile before the others. A target of its own fails and says what to install.
# Only `make pr` goes on without: it names this file in SKIPPED_PARTS, and its last lines are what is in it.
SKIPPED := build/skipped
pr: export SKIPPED_PARTS := $(abspath $(SKIPPED))

# $(call NEEDS,what is missing and how to get it): the end of a recipe that can't run here.
define NEEDS
if [ -n "$$SKIPPED_PARTS" ]; then echo "make $@: $(1)" >> "$$SKIPPED_PARTS"; \
	else echo "make $@: $(1)" >&2; exit 1; fi
endef
