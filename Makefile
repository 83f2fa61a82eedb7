# Everything from a fresh clone: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-slow lint docs figures bench bench-environments bench-jumpstart bench-learning setup clean

demo: setup ## explore without reward, jump-start an agent to a goal, write a page (again: goes on where it was)
	$(BIN)/python examples/demo.py

test: setup lint ## everything a change must pass, in a few minutes
	$(BIN)/python -m pytest

test-slow: $(VENV)/.bench ## the long tests
	$(BIN)/python -m pytest -m slow

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
	$(BIN)/python benchmarks/learning.py --timing --json benchmarks/results/timing.json
	$(BIN)/python benchmarks/ppo.py --json benchmarks/results/ppo.json
	$(BIN)/python benchmarks/contention.py --json benchmarks/results/contention.json
	$(BIN)/python benchmarks/export.py --json benchmarks/results/export.json
	$(BIN)/python benchmarks/scaling.py --json benchmarks/results/scaling.json

bench-jumpstart: setup ## jump-starts against baselines, three seeds and goals: an hour or two, resumable
	mkdir -p benchmarks/results
	$(BIN)/python benchmarks/jumpstart.py --json benchmarks/results/jumpstart.json --pictures pictures

bench-environments: $(VENV)/.bench ## learning, goals and speed in other people's environments: hours, resumable
	mkdir -p benchmarks/results
	$(BIN)/python benchmarks/environments.py --json benchmarks/results/environments.json

bench-learning: setup ## learning curves of all update rules in all worlds, three seeds: hours, resumable
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

clean:
	rm -rf $(VENV) pictures build *.egg-info .mypy_cache .pytest_cache .ruff_cache
