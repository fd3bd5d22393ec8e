# Shunter's commands. Everything happens in .venv, which the first command creates.
PYTHON   ?= python3.11
# The CUDA lock where there is an NVIDIA driver; `make run PLATFORM=cpu` overrides.
PLATFORM ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && echo cuda || echo cpu)
LOCK     := requirements/$(PLATFORM).txt
BIN      := .venv/bin
READY    := .venv/.ready-$(PLATFORM)

.DEFAULT_GOAL := help
.PHONY: help run setup test test-all test-fast test-gpu test-e2e bench docs house words lint format lock clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: setup  ## train a recommender on MovieLens-100K, from click log to registered model
	@$(BIN)/shunter train --data ml-100k

setup: $(READY)  ## create .venv and install the locked packages

# Python's own compilation comes last, on all cores (some packages bring templates that are no Python), and the tables
# that the first command would wait for.
$(READY): $(LOCK) pyproject.toml setup.py models/native/kernels.cpp
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' || \
		{ echo "Shunter needs Python 3.11 to 3.14: install one, or name it with 'make PYTHON=/path/to/python3.11'."; exit 1; }
	@echo "Installing into .venv (some minutes the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python requirements/install.py $(LOCK)
	@ls models/native/_kernels*.so >/dev/null 2>&1 || \
		echo "No C++ compiler was found or its build failed: training on processors is slower, by torch's own operators."
	@requirements/links.sh
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib || true
	@$(BIN)/python -m shunter.flows.command.empty_database || true
	@touch $@

PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder

# Many tests wait for a process to start or to end: a third beside two keeps two cores at work.
test: setup  ## run the tests, the dearest first
	@$(PYTEST) -m "not browser and not long" --numprocesses 3

test-all: setup  ## run also those that take minutes for what shorter ones show: before a release
	@$(PYTEST) -m "not browser" --numprocesses 3

test-fast: setup  ## run the tests that take a moment each, for the daily loop
	@$(PYTEST) -m "not browser and not slow and not long" --numprocesses 2 --durations 10

test-gpu: setup  ## run the tests that need a CUDA device
	@$(BIN)/python -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' || \
		{ echo "torch sees no CUDA device here: run this on a machine with an NVIDIA GPU and its driver."; exit 1; }
	@$(BIN)/python -m pytest -m gpu

test-e2e: setup  ## run the tests in a browser, which needs Chromium; pictures go to test-output/
	@$(BIN)/python -m pytest -m browser tests/end_to_end

bench: setup  ## run every benchmark in its quick form, and compare with what is published
	@$(BIN)/python -m benchmarks.quick

docs: setup  ## build the documentation's site in site/, without network; fails on a dead link
	@$(BIN)/python -m benchmarks.page
	@requirements/links.sh
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

house: setup  ## print the measured figures of the house; fails above tests/house/limits.yaml
	@$(BIN)/python -m tests.house

words: setup  ## print banned words of docstrings, messages, names and pages, each with the word to use
	@$(BIN)/python -m tests.house.words

lint: setup  ## formatting, style, types, the direction of imports, the figures of the house and its words
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@requirements/links.sh
	@$(BIN)/pyright
	@cd .links && ../$(BIN)/lint-imports --no-logo --config ../pyproject.toml
	@$(BIN)/python -m tests.house --static

format: setup  ## reformat the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: setup  ## resolve requirements/*.in into the complete locks
	@requirements/lock.sh

clean:  ## remove the environment, the data cache and the local runs
	rm -rf .venv .shunter mlflow/mlflow.db* mlflow/artifacts
