# `make demo` and `make test` do all set-up on a machine that has only Python >= 3.11 and make.

PYTHON ?= $(firstword $(foreach v,3.11 3.12 3.13 3.14,$(shell command -v python$(v))) python3)
PY := .venv/bin/python
ARGS ?=
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
JS_TESTS = $(wildcard tests/js/*.test.mjs)

.PHONY: demo test check lint setup bench torture-tasks clean

demo: .venv/.installed-lab
	.venv/bin/jupyter lab $(AS_ROOT) --LabApp.default_url=/lab/tree/notebooks/01-quickstart.ipynb $(ARGS)

test: lint setup
	$(PY) tests/support/run_tests.py
	$(if $(JS_TESTS),"$$($(PY) tests/support/setup_node.py --print)" --test $(JS_TESTS))

check: lint
	$(PY) -m pytest -m "not server and not browser"

lint: .venv/.installed-dev
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m pyright
	.venv/bin/lint-imports

setup: .venv/.installed-dev tests/mastra_server/node_modules/.installed
	$(PY) tests/support/setup_browser.py
	$(PY) tests/support/setup_postgres.py

bench: .venv/.installed-dev
	@set -e; for file in benchmarks/bench_*.py; do echo "== $$file"; $(PY) "$$file"; done

torture-tasks: .venv/.installed-dev
	$(PY) tests/support/setup_postgres.py
	$(PY) -m tests.torture $(ARGS)

clean:
	rm -rf .venv tests/mastra_server/node_modules tests/mastra_server/older/node_modules test-results .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# Each stamp is newer than what it was made from, so a second run starts at once.

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "nbmastra needs Python >= 3.11 (make PYTHON=...)"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.installed-%: pyproject.toml | .venv/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	@touch $@

tests/mastra_server/node_modules/.installed: tests/mastra_server/package.json tests/mastra_server/older/package.json .venv/.installed-dev
	$(PY) tests/support/setup_node.py
	@touch $@
