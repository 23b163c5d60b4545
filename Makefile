# `make demo` and `make test` only need Python 3.11 or newer. They create .venv themselves.
# PYTHON=/path/to/python selects the Python. PYTEST_ARGS="-k imu" is passed to pytest, BENCH_ARGS="--save" to bench,
# GPU_ARGS to bench-gpu.
# Tests run in several processes (tests/parallel.py). PYTEST_ARGS="--processes=1 -s" runs them in one and shows all output.

VENV := .venv
PY = $(VENV)/bin/python
PINS := constraints.txt
# Bytecode is written when a module is first imported; most modules of these packages never are.
PIP_INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check --no-compile -c $(PINS)
# uv takes a quarter of pip's time. It does not read pip's settings; where it fails, pip installs.
UV_INSTALL = $(VENV)/bin/uv pip install --quiet --python $(PY) -c $(PINS)
export PYTHONDONTWRITEBYTECODE :=
# Read from the pins, so that the version is written in one place.
TORCH := $(shell grep '^torch==' constraints.txt)
# 3.12 and 3.11 come first, because every package that the tests use has wheels for them.
PYTHON ?=
PYTHONS = $(or $(PYTHON),python3.12 $(if $(filter 3.11,$(OLDEST)),python3.11) python3.13 python3)
OLDEST := 3.11
comma := ,
PYTEST_ARGS ?=
# Each process has torch's threads. Waiting threads must sleep instead of spinning, because another process needs the
# core.
PYTEST_ALL = OMP_WAIT_POLICY=passive $(PY) -m pytest --processes=auto
# Everything but the soak runs.
FULL := -m "not soak"
GPU_ARGS ?=
BENCH_ARGS ?=
# The words after `bench` name groups of benchmarks.
ifeq ($(firstword $(MAKECMDGOALS)),bench)
GROUPS := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
.PHONY: $(GROUPS)
$(GROUPS): ; @:
endif
SPELLED := *.md CITATION.cff .github Makefile pyproject.toml benchmarks changelog docs examples src tests tests_formats \
  tests_jax tests_mjlab tests_newton tests_peers tests_ray tests_rl

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo check test test-full test-lowest test-mjlab test-newton test-jax test-formats test-rl test-ray test-peers soak \
  coverage package wheel-check changelog docs bench bench-gpu lint type format clean env-plot env-test env-docs env-package env-mjlab env-newton env-jax \
  env-formats env-rl env-ray env-genesis env-lowest env-warp

help:  ## show this help
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | sort | awk -F '\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

demo: env-plot  ## simulate a quadruped on uneven ground; print, check and save the readings of its sensors
	$(VENV)/bin/sensorium demo

# The types are checked while pytest collects the tests.
test: lint  ## run all checks that a change must pass: format, lint, types, tests
	@$(MAKE) --no-print-directory type & types=$$!; \
	$(PYTEST_ALL) $(PYTEST_ARGS); tests=$$?; \
	wait $$types && exit $$tests

# Files whose tests fail first when something is wrong, one or two per area: about 300 tests and 30 s of one core.
CHECKED := tests/test_layers.py tests/test_public_api.py tests/test_scene.py tests/test_registry.py tests/test_packaging.py \
  tests/measurement/test_schedule.py tests/measurement/test_chain.py tests/measurement/test_transport.py \
  tests/sensors/test_imu.py tests/sensors/test_contact.py tests/sensors/test_terrain_height.py \
  tests/sensors/test_camera_boxes.py tests/engines/test_tensor.py tests/record/test_npz.py tests/wire/test_header.py
check: lint  ## a developer's inner loop: format, style, types and the most telling tests, in a minute
	@$(MAKE) --no-print-directory type & types=$$!; \
	$(PYTEST_ALL) $(CHECKED) $(PYTEST_ARGS); tests=$$?; \
	wait $$types && exit $$tests

test-full: lint type  ## run the checks of `make test` with every case of every test
	$(PYTEST_ALL) $(FULL) $(PYTEST_ARGS)

coverage: env-test  ## measure which lines of src the tests of `make test` run; the report is out/coverage/index.html
	$(PYTEST_ALL) --cov=sensorium --cov-report=term:skip-covered --cov-report=html:out/coverage $(PYTEST_ARGS)

package: env-package  ## build the source distribution and the wheel in dist/ and check them; TAG=v1.2.3 checks the version
	@version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml); tag='$(TAG)'; \
	if [ -n "$$tag" ] && [ "$$tag" != "v$$version" ]; then \
	  echo "The tag is $$tag, the version in pyproject.toml $$version."; exit 1; fi
	rm -rf dist
	$(PY) -m build --quiet
	$(PY) -m twine check --strict dist/*
	$(VENV)/bin/check-wheel-contents dist/*.whl
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@size=$$(cat dist/*.tar.gz | wc -c); echo "The source distribution has $$size bytes."; [ $$size -lt 2000000 ]

wheel-check: package  ## install the wheel in a clean environment and simulate with it
	rm -rf out/wheel && mkdir -p out/wheel
	$(PY) -m venv out/wheel/venv
	out/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(TORCH)
	out/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd out/wheel && env -u PYTHONPATH venv/bin/python -m pip check
	cd out/wheel && env -u PYTHONPATH venv/bin/sensorium list
	cd out/wheel && env -u PYTHONPATH venv/bin/python $(CURDIR)/examples/01_first_reading.py

test-lowest: env-lowest env-warp  ## test with the lowest declared versions except torch; all sensors with the lowest Warp
	OMP_WAIT_POLICY=passive $(PY) -m pytest $(LOWEST_TESTS) $(PYTEST_ARGS)
	OMP_WAIT_POLICY=passive .venv-warp/bin/python -m pytest --processes=auto tests/sensors $(PYTEST_ARGS)

changelog: env-test  ## show the changes since the last release, from the fragments in changelog/
	$(PY) -m towncrier build --draft --version next

soak: env-test  ## run the long tests: 200 killed processes, 100,000 malformed messages, thousands of sensors
	$(PY) -m pytest -m soak $(PYTEST_ARGS)

test-mjlab: env-mjlab  ## test the sensors in mjlab with its MuJoCo 3.11, in a separate virtual environment
	$(PY) -m pytest tests_mjlab $(PYTEST_ARGS)
	$(PY) -m pytest tests/engines/test_mujoco_warp.py tests/engines/test_mujoco_warp_contacts.py

test-newton: env-newton  ## test the sensors in Newton with the MuJoCo that it pins, in a separate virtual environment
	$(PY) -m pytest tests_newton $(PYTEST_ARGS)

test-jax: env-jax  ## test the sensors with JAX and MJX, in a separate virtual environment
	$(PY) -m pytest tests_jax $(PYTEST_ARGS)

test-formats: env-formats  ## open exported files with evo, lerobot and pykitti, and images with OpenCV, in a separate virtual environment
	$(PY) -m pytest tests_formats $(PYTEST_ARGS)

test-rl: env-rl  ## test the wrappers with rsl_rl, Stable-Baselines3, TorchRL and skrl, in a separate virtual environment
	$(PY) -m pytest tests_rl $(PYTEST_ARGS)

test-ray: env-ray  ## generate data on a Ray cluster of two nodes on this machine, in a separate virtual environment
	$(PY) -m pytest tests_ray $(PYTEST_ARGS)

test-peers: env-test env-mjlab env-genesis  ## run tests of other libraries with our sensors; PEERS=folder with their checkouts
	$(PY) -m tests_peers.run $(or $(PEERS),$(error PEERS=folder with checkouts of mjlab, Genesis and Isaac Lab)) $(FILES)

docs: env-docs  ## build the documentation site in out/site; broken links and other warnings are errors
	rm -rf out/site
	$(PY) -m sphinx --fail-on-warning --keep-going --quiet --jobs auto docs out/site
	$(PY) -m tests.site_check out/site
	@echo "Open out/site/index.html."

bench: env-plot  ## measure speed and memory; `make bench engines cameras` runs only these groups; BENCH_ARGS=--save keeps the rows
	$(PY) -m benchmarks $(GROUPS) $(BENCH_ARGS)

bench-gpu: env-test  ## compare with mujoco_warp on a GPU; GPU_ARGS="--device cpu --envs 1 16" runs it without a GPU
	$(PY) -m benchmarks.gpu $(GPU_ARGS)

lint: env-test  ## check format, style and spelling without changes
	$(PY) -m ruff format --check --quiet . || { echo "Some files are not formatted. Run 'make format'."; exit 1; }
	$(PY) -m ruff check .
	$(PY) -m codespell_lib $(SPELLED)

type: env-test  ## check types
	$(PY) -m mypy

format: env-test  ## format the code and fix what ruff can fix
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:  ## remove .venv and all other generated files
	rm -rf $(VENV) .venv-docs .venv-package .venv-mjlab .venv-newton .venv-jax .venv-formats .venv-rl .venv-ray .venv-genesis .venv-lowest
	rm -rf .venv-warp out build dist .pytest_cache .mypy_cache .ruff_cache MUJOCO_LOG.TXT
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# .venv with one extra of pyproject.toml, or one of its groups of developers' packages. Every call checks it, because it may be missing, incomplete, moved, older than
# the pins, or created by a Python that no longer exists. The file `.unfinished` marks an incomplete .venv.
# .venv-mjlab is created in the same way without an extra: only its pins are installed besides torch.
WANTED = -e '.[$*]'
env-test: WANTED = -e . --group test
# .venv-docs likewise with the group `docs`.
docs env-docs: VENV := .venv-docs
package wheel-check env-package: VENV := .venv-package
env-package: WANTED = --group package
env-docs: WANTED = -e '.[all]' --group docs
test-mjlab env-mjlab: VENV := .venv-mjlab
env-mjlab: PINS := requirements-mjlab.txt
env-mjlab: WANTED = --no-deps -r $(PINS) -e .
# .venv-newton likewise, with the MuJoCo that Newton pins.
test-newton env-newton: VENV := .venv-newton
env-newton: PINS := requirements-newton.txt
env-newton: WANTED = --no-deps -r $(PINS) -e .
# .venv-jax likewise, with JAX and MuJoCo Playground.
test-jax env-jax: VENV := .venv-jax
env-jax: PINS := requirements-jax.txt
env-jax: WANTED = --no-deps -r $(PINS) -e .
# .venv-formats likewise, with the programs that read exported files, of which lerobot needs Python 3.12.
test-formats env-formats: VENV := .venv-formats
env-formats: OLDEST := 3.12
env-formats: PINS := requirements-formats.txt
env-formats: WANTED = --no-deps -r $(PINS) -e .
# .venv-rl likewise, with libraries of reinforcement learning.
test-rl env-rl: VENV := .venv-rl
env-rl: PINS := requirements-rl.txt
env-rl: WANTED = --no-deps -r $(PINS) -e .
# .venv-ray likewise, with Ray.
test-ray env-ray: VENV := .venv-ray
env-ray: PINS := requirements-ray.txt
env-ray: WANTED = --no-deps -r $(PINS) -e .
# .venv-genesis likewise, with Genesis.
env-genesis: VENV := .venv-genesis
env-genesis: PINS := requirements-genesis.txt
env-genesis: WANTED = --no-deps -r $(PINS) -e .
# .venv-lowest has what the tests of the core and of streams need.
LOWEST_TESTS := tests/test_scene.py tests/test_cfg.py tests/test_registry.py tests/test_check_sensor.py \
  tests/sensors/test_imu.py tests/engines/test_tensor.py tests/wire tests/record/test_npz.py tests/record/test_damaged.py
test-lowest env-lowest: VENV := .venv-lowest
env-lowest: PINS := requirements-lowest.txt
env-lowest: WANTED = -e '.[stream]' pytest scipy
# .venv-warp has the packages of `make test` but for the lowest Warp, because the tests of sensors need a recent MuJoCo.
env-warp: VENV := .venv-warp
env-warp: PINS := out/constraints-warp.txt
env-warp: WANTED = -e . --group test
env-warp: out/constraints-warp.txt
out/constraints-warp.txt: constraints.txt requirements-lowest.txt
	@mkdir -p $(@D)
	@sed "s/^warp-lang==.*/$$(grep '^warp-lang==' requirements-lowest.txt)/" constraints.txt > $@
# `stream`, `record` and `generate` are included because `make bench` measures them, and because users try them after
# the demo.
env-plot: WANTED = -e '.[plot,stream,record,generate]'

env-plot env-test env-docs env-package env-mjlab env-newton env-jax env-formats env-rl env-ray env-genesis env-lowest env-warp: env-%:
	@set -eu; \
	state="$$(cat Makefile pyproject.toml $(sort constraints.txt $(PINS)) | cksum) $(CURDIR)"; \
	sound() { \
	  [ ! -e $(VENV)/.unfinished ] && \
	  $(PY) -c 'import pip, sys; sys.exit(sys.version_info < ($(subst .,$(comma),$(OLDEST))))' 2>/dev/null; \
	}; \
	if sound && [ "$$(cat $(VENV)/.installed-$* 2>/dev/null)" = "$$state" ]; then exit 0; fi; \
	if ! sound; then \
	  found=; bare=; \
	  for python in $(PYTHONS); do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < ($(subst .,$(comma),$(OLDEST))))' 2>/dev/null || continue; \
	    "$$python" -c 'import ensurepip, venv' 2>/dev/null || { bare="$$python"; continue; }; \
	    found="$$python"; break; \
	  done; \
	  if [ -z "$$found" ]; then \
	    if [ -n "$$bare" ]; then echo "$$bare lacks the venv module, which some systems package separately." >&2; \
	    else echo "Python $(OLDEST) or newer is required. None of these commands provides it: $(PYTHONS)." >&2; fi; \
	    echo "  Debian, Ubuntu:  sudo apt install python3 python3-venv   (or python3.12 python3.12-venv)" >&2; \
	    echo "  Fedora:          sudo dnf install python3" >&2; \
	    echo "  macOS:           brew install python@3.12" >&2; \
	    echo "For a Python in another place:  make PYTHON=/path/to/python ..." >&2; \
	    exit 1; \
	  fi; \
	  echo "Creating $(VENV) with $$("$$found" --version)."; \
	  "$$found" -m venv --clear $(VENV); \
	fi; \
	echo "Installing $(TORCH), then sensorium[$*] and its dependencies. The first time, this takes some minutes."; \
	touch $(VENV)/.unfinished; \
	$(PIP_INSTALL) $(TORCH); \
	{ $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt uv && $(UV_INSTALL) $(WANTED); } || \
	  { echo "uv did not install them; pip does."; $(PIP_INSTALL) 'pip>=25.1' && $(PIP_INSTALL) $(WANTED); }; \
	echo "$$state" > $(VENV)/.installed-$*; \
	rm $(VENV)/.unfinished
