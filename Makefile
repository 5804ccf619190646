# Each target is one task of tools/tasks.py, run by a Python that is new enough; the task makes .venv as it needs it.
PYTHON ?= $(shell for p in python3.11 python3; do \
    $$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
TASKS = install test lint format docs wheels demo bench changelog summary

.PHONY: help clean $(TASKS)
help:
	@echo "make test    install everything into .venv, compile, run all tests"
	@echo "make demo    install everything into .venv, compile, run examples/demo.py"
	@echo "also: $(TASKS) clean; PYTHON=... chooses the interpreter, ARGS=... is handed on"

$(TASKS):
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or later found; name one with PYTHON=..."; exit 1; }
	@$(PYTHON) tools/tasks.py $@ $(ARGS)

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache docs/reference/api
	find packages src -name '*.so' -delete
