# `make demo` and `make test` need Python 3.11 or newer on the machine, and nothing else: they make .venv themselves.
# PYTHON=/path/to/python picks the Python, PYTEST_ARGS="-k imu" goes to pytest, GPU_ARGS to bench-gpu.
# Tests run in as many processes as there are cores, 4 at most; PYTEST_ARGS="-n 0 -s" runs them in one and shows all.

VENV := .venv
PY = $(VENV)/bin/python
PINS := constraints.txt
PIP_INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check -c $(PINS)
# Read from the pins, so that the version stands in one place.
TORCH := $(shell grep '^torch==' constraints.txt)
# 3.12 and 3.11 first: every package that the tests use has wheels for them.
PYTHON ?=
PYTHONS := $(or $(PYTHON),python3.12 python3.11 python3.13 python3)
PYTEST_ARGS ?=
# A file's tests stay together and in order. Each process has torch's threads: those that wait for work must sleep, not
# spin, for another process needs the core.
PYTEST_ALL = OMP_WAIT_POLICY=passive $(PY) -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
GPU_ARGS ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test soak test-mjlab bench bench-gpu lint type format clean env-plot env-test env-mjlab

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | sort | awk -F '\t' '{ printf "  make %-10s %s\n", $$1, $$2 }'

demo: env-plot  ## a quadruped walks over uneven ground; what its sensors say is printed, checked and saved
	$(VENV)/bin/sensorium demo

test: lint type  ## everything that a change must pass: format, lint, types, tests
	$(PYTEST_ALL) $(PYTEST_ARGS)

soak: env-test  ## the long runs: two hundred kills, a hundred thousand broken messages, thousands of sensors
	$(PY) -m pytest -m soak $(PYTEST_ARGS)

test-mjlab: env-mjlab  ## our sensors inside the real mjlab, with its MuJoCo 3.11, in an environment beside .venv
	$(PY) -m pytest tests_mjlab $(PYTEST_ARGS)
	$(PY) -m pytest tests/engines/test_mujoco_warp.py tests/engines/test_mujoco_warp_contacts.py

bench: env-plot  ## measure speed and memory
	$(PY) -m benchmarks

bench-gpu: env-test  ## measure beside mujoco_warp on a GPU; GPU_ARGS="--device cpu --envs 1 16" tries it without one
	$(PY) -m benchmarks.gpu $(GPU_ARGS)

lint: env-test  ## check format and style, change nothing
	$(PY) -m ruff format --check --quiet . || { echo "Not formatted as above. 'make format' does it."; exit 1; }
	$(PY) -m ruff check .

type: env-test  ## check types
	$(PY) -m mypy

format: env-test  ## format the code and fix what ruff can fix
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:  ## remove .venv and everything else that was generated
	rm -rf $(VENV) .venv-mjlab out build dist .pytest_cache .mypy_cache .ruff_cache MUJOCO_LOG.TXT
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# .venv with one extra of pyproject.toml. Looked at on every call, because it may be missing, half made (the file
# `.unfinished` tells; it is then made anew), made by a Python that is gone, moved, or older than the pins.
# .venv-mjlab is made alike, but has no extra: its pins are all that is installed beside torch.
WANTED = -e '.[$*]'
test-mjlab env-mjlab: VENV := .venv-mjlab
env-mjlab: PINS := requirements-mjlab.txt
env-mjlab: WANTED = --no-deps -r $(PINS) -e .
# What the demo's environment is used for next, and what `make bench` measures: streams.
env-plot: WANTED = -e '.[plot,stream]'

env-plot env-test env-mjlab: env-%:
	@set -eu; \
	state="$$(cat Makefile pyproject.toml $(sort constraints.txt $(PINS)) | cksum) $(CURDIR)"; \
	sound() { \
	  [ ! -e $(VENV)/.unfinished ] && \
	  $(PY) -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	}; \
	if sound && [ "$$(cat $(VENV)/.installed-$* 2>/dev/null)" = "$$state" ]; then exit 0; fi; \
	if ! sound; then \
	  found=; bare=; \
	  for python in $(PYTHONS); do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    "$$python" -c 'import ensurepip, venv' 2>/dev/null || { bare="$$python"; continue; }; \
	    found="$$python"; break; \
	  done; \
	  if [ -z "$$found" ]; then \
	    if [ -n "$$bare" ]; then echo "$$bare lacks the venv module, which some systems package apart." >&2; \
	    else echo "Python 3.11 or newer is needed; none of these is one: $(PYTHONS)." >&2; fi; \
	    echo "  Debian, Ubuntu:  sudo apt install python3 python3-venv   (or python3.12 python3.12-venv)" >&2; \
	    echo "  Fedora:          sudo dnf install python3" >&2; \
	    echo "  macOS:           brew install python@3.12" >&2; \
	    echo "A Python elsewhere:  make PYTHON=/path/to/python ..." >&2; \
	    exit 1; \
	  fi; \
	  echo "Making $(VENV) with $$("$$found" --version)."; \
	  "$$found" -m venv --clear $(VENV); \
	fi; \
	echo "Installing $(TORCH), then sensorium[$*] and what it needs. The first time this takes some minutes."; \
	touch $(VENV)/.unfinished; \
	$(PIP_INSTALL) $(TORCH); \
	$(PIP_INSTALL) $(WANTED); \
	echo "$$state" > $(VENV)/.installed-$*; \
	rm $(VENV)/.unfinished
