# Everything a contributor runs. `make demo` and `make test` do all that is needed on a fresh machine with
# Python 3.11 or newer; nothing is compiled. PYTHON=python3.12 chooses another interpreter.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# A process for every core; tests of one file stay together, for they share what is slow to make.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
# Tests are compiled once, not in every process and at every run.
export PYTHONDONTWRITEBYTECODE :=
# The part of the tests that a contributor runs all the time: the corpus is fetched, the engine's tests load MLX, the
# properties are searched and the killed processes waited for at length.
QUICK := -m "not slow and not model" $(foreach folder,corpus crash engine property,--ignore tests/$(folder))

# Where the editors that the tests drive are kept: a gigabyte, made once.
EDITORS ?= $(HOME)/.cache/qmlx-lsp-editors

.PHONY: demo test test-editors check lint format bench bench-quick clean

demo: $(VENV)/installed
	$(BIN)/qmlx-lsp demo

test: lint $(VENV)/tests
	$(BIN)/python -m pytest $(PARALLEL)

# Real editors, installed by tests/editors/install.sh; what cannot be had is skipped, and counted. What fails is tried once
# more, alone: a browser on a machine with other work may lose a key. QMLX_PICTURES=1 renews the pictures in editors/.
test-editors: $(VENV)/tests
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test-editors]'
	PYTHON=$(BIN)/python tests/editors/install.sh '$(EDITORS)'
	QMLX_EDITORS='$(EDITORS)' $(BIN)/python -m pytest -n 2 --dist loadfile tests/editors || { \
	  echo "once more, what failed:"; \
	  QMLX_EDITORS='$(EDITORS)' $(BIN)/python -m pytest --last-failed --last-failed-no-failures none tests/editors; }

check: lint $(VENV)/tests
	$(BIN)/python -m pytest $(PARALLEL) $(QUICK)

lint: $(VENV)/tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/tests
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# All that is claimed, beside mlx_lm.server: an hour and a half, with nothing else running. It goes on where it was stopped.
bench: $(VENV)/tests
	$(BIN)/python -m benchmarks

# What must not get worse, in less than a minute: 1 when something did, 2 when it could not be measured.
bench-quick: $(VENV)/tests
	$(BIN)/python -m benchmarks.quick

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "qmlx-lsp needs Python 3.11 or newer; choose one with make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "Python's venv module is missing; on Debian: apt-get install python3-venv"; exit 1; }
	@touch $@

$(VENV)/installed: $(VENV)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/tests: $(VENV)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,bench]'
	@touch $(VENV)/installed $@
