# Everything from a fresh clone: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-slow test-warp test-mjlab test-install lint docs figures bench bench-environments bench-jumpstart bench-learning bench-metra setup clean

demo: setup ## explore without reward, jump-start an agent to a goal, write a page (again: goes on where it was)
	$(BIN)/python examples/demo.py

test: setup lint ## everything a change must pass, in a few minutes
	$(BIN)/python -m pytest

test-slow: $(VENV)/.bench ## the long tests
	$(BIN)/python -m pytest -m slow

test-warp: $(VENV)/.warp ## worlds on MuJoCo Warp, on its CPU device: the first time it compiles for a minute or two
	$(BIN)/python -m pytest -m warp -n 0

test-mjlab: .venv-mjlab/.ready ## mjlab's environments, in an environment of their own: their pins are not ours
	.venv-mjlab/bin/python -m pytest -m mjlab -n 0 -W default tests/simulators

test-install: setup ## whether pip finds versions for kmyriad beside mjlab, and beside Isaac Lab: some minutes
	$(BIN)/python -m pytest -m index -n 0 tests/test_install.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup ## the documentation as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

figures: setup ## train what the documentation's figures show and draw them: about a quarter of an hour, resumable
	$(BIN)/python docs/figures.py

bench: $(VENV)/.bench ## compare speeds; writes benchmarks/results/
	mkdir -p benchmarks/results
	$(BIN)/python benchmarks/stepping.py --json benchmarks/results/stepping.json
	$(BIN)/python benchmarks/epoch.py --json benchmarks/results/epoch.json
	$(BIN)/python benchmarks/learning.py --only timing --json benchmarks/results/timing.json
	$(BIN)/python benchmarks/ppo.py --json benchmarks/results/ppo.json
	$(BIN)/python benchmarks/contention.py --json benchmarks/results/contention.json
	$(BIN)/python benchmarks/export.py --json benchmarks/results/export.json
	$(BIN)/python benchmarks/scaling.py --json benchmarks/results/scaling.json

bench-jumpstart: setup ## jump-starts against baselines, four worlds, five seeds with goals of their own: hours, resumable
	mkdir -p benchmarks/results
	$(BIN)/python benchmarks/jumpstart.py --json benchmarks/results/jumpstart.json --pictures pictures

bench-environments: $(VENV)/.bench ## learning, goals and speed in other people's environments: hours, resumable
	mkdir -p benchmarks/results
	$(BIN)/python benchmarks/environments.py --json benchmarks/results/environments.json

bench-metra: setup ## coverage beside METRA and DIAYN on Gymnasium's Ant, three seeds: days, resumable
	mkdir -p benchmarks/results
	$(BIN)/python benchmarks/metra.py --json benchmarks/results/metra.json

bench-learning: setup ## steps to learn of ours and the paper's method in all worlds, three seeds: days, resumable
	mkdir -p benchmarks/results
	$(BIN)/python benchmarks/learning.py --json benchmarks/results/learning.json --pictures pictures

setup: $(VENV)/.ready ## the environment alone

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[dev]'
	touch $@

$(VENV)/.bench: $(VENV)/.ready
	$(INSTALL) --editable '.[dev,bench]'
	touch $@

$(VENV)/.warp: $(VENV)/.ready
	$(INSTALL) --editable '.[dev,warp]'
	touch $@

.venv-mjlab/.ready: pyproject.toml tests/simulators/requirements.txt
	test -x .venv-mjlab/bin/python || $(PYTHON) -m venv .venv-mjlab
	.venv-mjlab/bin/pip install --quiet --disable-pip-version-check --editable . --requirement tests/simulators/requirements.txt
	touch $@

clean:
	rm -rf $(VENV) .venv-mjlab pictures build *.egg-info .mypy_cache .pytest_cache .ruff_cache
