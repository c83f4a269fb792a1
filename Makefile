# Needs python3 (3.10 or newer), pip and make; everything else is installed into .venv.

PYTHON ?= python3
BIN := .venv/bin

# One pin for each tool, in the isolated build of the package too, where -c does not reach.
export PIP_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The pinned pyright, with no look at the registry for a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# The theme prints an appeal about another project's next version.
export NO_MKDOCS_2_WARNING := 1

# `make -j` changes nothing: the goals share one environment and its caches.
.NOTPARALLEL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test prove bench docs lint typecheck clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.runtime ## Show a handler delivered twice and run once
	$(BIN)/python -m samples.demo

test: lint typecheck ## Lint, formatting, types and all tests: what CI runs
	$(BIN)/python -m pytest

prove: .venv/.ready ## Attack the guarantees with races, crashes and lost answers
	$(BIN)/python -m tests.prove

bench: .venv/.ready ## Measure cold start, calls and CPU per delivery
	$(BIN)/python -m tests.bench

docs: .venv/.ready ## Build the documentation into site/
	$(BIN)/python -m mkdocs build --strict

lint: .venv/.ready ## Check lint rules and formatting
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

typecheck: .venv/.ready ## Check types with mypy and pyright
	$(BIN)/python -m mypy
	$(BIN)/python -m pyright --pythonpath $(BIN)/python

clean: ## Remove everything that was installed, cached or built
	rm -rf .venv .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What a user installs, enough for the demo.
.venv/.runtime: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

# What a contributor installs.
.venv/.ready: .venv/.runtime
	$(BIN)/python -m pip install --quiet --editable '.[cli,testing,dev]'
	$(BIN)/python -m tests.rie
	@touch $@
