# `make` lists the targets. All of them work inside .venv and leave the rest of the machine alone,
# except `make system-packages` (part of `make test`).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help lab install kernels golden test test-long docs format readme experiments kernel-table screenshots lock perf-python system-packages clean

VENV := .venv
BIN := $(VENV)/bin
LAB_ARGS ?=
RUNS ?=
GOLDEN_ARGS ?=
PYTEST_ARGS ?=
# two files of tests at once, in the order of tests/conftest.py
TWO_AT_ONCE := -n 2 --dist loadfile --no-loadscope-reorder
AT_LEAST_3_11 := import sys; sys.exit(sys.version_info < (3, 11))
LOCKED := --universal --fork-strategy fewest --python-version 3.11 --no-header --no-annotate
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$name" -c '$(AT_LEAST_3_11)' 2>/dev/null && command -v "$$name" && break; done)

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

lab: $(VENV)/lab ## set up, say in a line how right the model is, open the first notebook (LAB_ARGS=...)
	$(BIN)/python -m pagealloc_model.cli.compile_kernels --first
	@$(BIN)/pagealloc validate kbuild --brief
	@echo "the other kernels are compiled while the notebook opens"
	@nice $(BIN)/python -m pagealloc_model.cli.compile_kernels 2>/dev/null &
	$(BIN)/pagealloc lab -- $(LAB_ARGS)

install: $(VENV)/installed ## create .venv from requirements.lock, with what tests need (PYTHON=... picks the interpreter)

kernels: $(VENV)/installed ## compile the model; seconds once it is cached
	$(BIN)/python -m pagealloc_model.cli.compile_kernels

golden: kernels ## name every result that differs from the committed ones, in minutes (GOLDEN_ARGS=--help)
	nice $(BIN)/python -m tests.golden $(GOLDEN_ARGS)

test: system-packages kernels ## format and lint checks, unit, notebook and browser tests (PYTEST_ARGS=...)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m pytest $(TWO_AT_ONCE) $(PYTEST_ARGS)

test-long: kernels ## tests that take minutes or need the full recordings (PAGEALLOC_RECORDINGS=DIR)
	$(BIN)/python -m pytest -m long $(TWO_AT_ONCE) $(PYTEST_ARGS)

docs: $(VENV)/installed ## build the documentation as a site (build/docs/html); warnings are errors
	$(BIN)/python docs/site/build_site.py build/docs

format: $(VENV)/installed ## format the code and mend what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

readme: kernels ## write the figures of README and docs/ anew (PAGEALLOC_RECORDINGS=DIR for those of full recordings)
	$(BIN)/python benchmarks/readme.py

experiments: kernels ## predict the shipped experiments anew from their runs in RUNS=DIR; write their tables and figures
	@test -n "$(RUNS)" || { echo "make experiments RUNS=DIR: DIR has a folder of runs for each plan" >&2; exit 2; }
	$(BIN)/python notebooks/studies/others/experiment_tables.py "$(RUNS)"
	$(BIN)/python benchmarks/readme.py experiments-sentence experiments-short experiments experiments-slopes experiments-large

kernel-table: $(VENV)/installed ## write docs/kernel_functions.md anew: the kernel's functions and the model's
	$(BIN)/python -m tests.kernel_functions

screenshots: system-packages kernels ## draw README's pictures anew (docs/images)
	$(BIN)/python docs/site/screenshots.py

lock: $(VENV)/installed ## resolve both lock files again from setup.cfg
	$(BIN)/uv pip compile $(LOCKED) --all-extras --upgrade --output-file requirements.lock setup.cfg
	$(BIN)/uv pip compile $(LOCKED) --extra explore --extra export --constraint requirements.lock \
		--upgrade --output-file requirements-lab.lock setup.cfg

perf-python: $(VENV)/installed ## build perf's Python module from the kernel's source into .venv
	@.ci/perf-python $(VENV)

system-packages: ## install the Debian packages the tests need, if any is missing and this user may
	@.ci/system-packages

clean: ## remove .venv and what builds and tests left behind
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis test-artefacts

$(VENV)/created:
	@"$(PYTHON)" -c '$(AT_LEAST_3_11)' 2>/dev/null || { echo "Python 3.11 or newer is missing: install" \
		"it, or name it with make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot create virtual" \
		"environments: install its venv module (Debian: python3-venv)" >&2; exit 1; }
	"$(PYTHON)" -m venv --clear $(VENV)
	@touch $@

# Last, the checkout goes to the end of the path: from the folder that a checkout named pagealloc_model
# lies in, Python would else take it for the package, and a namespace package hides an editable one.
# uv installs in seconds what takes pip minutes; it is asked again with the machine's certificates, and
# pip is the way out where uv finds no index. Bytecode is compiled now, as by pip: else the first start takes seconds more, and each where none may be written
define install-locked
$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock uv setuptools
$(BIN)/uv pip $(1) --compile-bytecode --python $(BIN)/python $(2) \
	|| $(BIN)/uv pip $(1) --system-certs --compile-bytecode --python $(BIN)/python $(2) \
	|| $(BIN)/python -m pip install $(3)
$(BIN)/uv pip install --python $(BIN)/python --no-deps --no-build-isolation --editable .
@echo "$(CURDIR)" >"$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/checkout.pth"
@touch $@
endef

# all that docs and tests need, too
$(VENV)/installed: requirements.lock setup.cfg pyproject.toml | $(VENV)/created
	$(call install-locked,sync,requirements.lock,--requirement=requirements.lock)

# what notebooks, explorer and figures need; it takes nothing away where more is installed
$(VENV)/lab: requirements-lab.lock setup.cfg pyproject.toml | $(VENV)/created
	$(call install-locked,install,--requirement=requirements-lab.lock,--requirement=requirements-lab.lock)
