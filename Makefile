# `make quickstart` and `make test` need nothing but Python 3.11 or newer; they install everything else.
PYTHON ?= python3
# Where PYTHON names another version than that of `.venv`, its environment lies beside it, such as `.venv-3.13`.
VENV := .venv
ifneq ($(origin PYTHON),file)
version := $(or $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'),$(error PYTHON: found $(PYTHON), which does not run; expected a Python from 3.11))
VENV := $(if $(wildcard .venv/lib),$(if $(wildcard .venv/lib/python$(version)),.venv,.venv-$(version)),.venv)
endif
BIN := $(VENV)/bin
export JAX_PLATFORMS ?=
# Without bytecode on disk, every process would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
# Most installed modules are never imported. Bytecode of those that we import is written after the installation, for
# starts that may not write any themselves, as where a Dockerfile sets PYTHONDONTWRITEBYTECODE.
PIP := $(BIN)/pip install --quiet --no-compile
define IMPORT_ALL
import contextlib, importlib, pkgutil, prism_jax
for module in pkgutil.walk_packages(prism_jax.__path__, "prism_jax."):
    with contextlib.suppress(Exception):  # such as that of an extra that is not installed
        importlib.import_module(module.name)
endef
export IMPORT_ALL

PURE := $(addprefix tests/,decision evaluation probe people streams)
# A test that hangs ends them all after 15 minutes, with its name and the stack of each of its threads.
PYTEST := $(BIN)/python -m pytest -n 2 -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true --max-worker-restart=0

.PHONY: quickstart distill-demo people-demo test test-slow studies mutants lint docs audit clean
.DELETE_ON_ERROR:

quickstart: $(VENV)/installed
	$(BIN)/python -m prism_jax train --config=configs/quickstart.py --workdir=runs/quickstart

distill-demo: $(VENV)/installed-remote
	$(BIN)/python -m prism_jax experiments distill_demo --workdir=runs/distill_demo

people-demo: $(VENV)/installed
	$(BIN)/python -m prism_jax experiments people_demo --workdir=runs/people_demo $(if $(LOGS),--logs="$(LOGS)")

test: $(VENV)/installed-dev
	$(PYTEST) --dist=worksteal -m "not slow and not study"

# What takes longer, and again the tests of pure functions with shapes checked, more examples, and optimised programs.
test-slow: $(VENV)/installed-dev
	$(PYTEST) --thorough --dist=loadfile --no-loadscope-reorder -m "slow and not study"
	$(PYTEST) --thorough --optimised --dist=worksteal -m "not slow and not study" $(PURE)

# Long runs that no change needs to pass: repetitions of studies, configs compiled for GPUs that are not here, and the
# fast tests on Python 3.13.
studies: $(VENV)/installed-studies
	$(BIN)/python -m pytest --thorough --optimised -m study
	launch/python.sh

# Which of the seeded faults in tests/mutants/faults no fast test notices.
mutants: $(VENV)/installed-dev
	mkdir -p build
	$(BIN)/python tests/mutants/run.py --all --out=build/mutants.jsonl

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Known vulnerabilities of what is installed, by the database of PyPI.
audit: $(VENV)/installed-dev
	$(PYTHON) -m venv build/audit
	build/audit/bin/pip install --quiet pip-audit
	build/audit/bin/pip-audit --path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "prism_jax needs Python 3.11 or newer, found %s; set PYTHON=..." % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: setup.py pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable .
	$(BIN)/python -c "$$IMPORT_ALL"
	touch $@

$(VENV)/installed-remote: setup.py pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[remote]'
	$(BIN)/python -c "$$IMPORT_ALL"
	touch $@ $(VENV)/installed

$(VENV)/installed-dev: setup.py pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[dev]'
	$(BIN)/python -c "$$IMPORT_ALL"
	touch $@ $(VENV)/installed $(VENV)/installed-remote

$(VENV)/installed-studies: setup.py pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[dev,studies]'
	$(BIN)/python -c "$$IMPORT_ALL"
	touch $@ $(VENV)/installed $(VENV)/installed-remote $(VENV)/installed-dev

clean:
	rm -rf .venv .venv-* runs build dist *.egg-info
