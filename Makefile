# The commands of a checkout. `make env` first; everything else uses the environment it makes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0

VERL := .venv-verl

WORKERS ?= 2
# what happens to a fast test that takes more than two seconds: fail or tell
FAST ?= fail
GPU ?= cuda:0

.PHONY: env test test-unit test-slow test-verl test-gpu lint quickstart docs outputs release matrix clean

env: $(VENV)/.done

# torch is installed first and by itself: a plain `pip install torch` may pull in gigabytes of CUDA libraries.
$(VENV)/.done: pyproject.toml executor/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt "$(TORCH)"
	$(BIN)/pip install -q -c constraints.txt -e executor -e ".[train,serve,solve,data,mcp,docs,test]"
	touch $@

# the fast tests; WORKERS=1 for one at a time
test: env
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --fast=$(FAST) $(PYTEST)

# those that start no process, in under a minute
test-unit: env
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --fast=$(FAST) tests/unit $(PYTEST)

test-slow: env
	$(BIN)/python -m pytest -m "slow and not gpu and not verl"

# on a machine with a GPU: certify it, then the tests that need one (GPU=cuda:1 for another)
test-gpu: env
	$(BIN)/drkernel doctor --gpu $(GPU) --out gpu-report.txt
	$(BIN)/python -m pytest -m gpu

# verl pins other versions than ours: it has an environment of its own.
$(VERL)/.done: pyproject.toml executor/pyproject.toml constraints-verl.txt
	$(PYTHON) -m venv $(VERL)
	$(VERL)/bin/pip install -q -c constraints-verl.txt "$(TORCH)"
	$(VERL)/bin/pip install -q -c constraints-verl.txt -e executor -e ".[verl]" pytest pytest-timeout pytest-asyncio
	touch $@

test-verl: $(VERL)/.done
	$(VERL)/bin/python -m pytest tests/unit/engines tests/e2e/engines -m verl --timeout 1800

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/vulture

quickstart: env
	$(BIN)/drkernel train recipes/quickstart.yaml

# the documents as a site, in site/
docs: env
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# outputs of commands and pictures on the pages, made anew (pictures need a Chromium)
outputs: env
	$(BIN)/python scripts/docs_outputs.py

# sdists and wheels of both packages into dist/, checked in a clean environment outside of the checkout
release:
	TORCH="$(TORCH)" $(PYTHON) scripts/release.py

# the fast tests over the Python and Triton versions that this machine has
matrix:
	TORCH="$(TORCH)" $(PYTHON) scripts/matrix.py

clean:
	rm -rf $(VENV) $(VERL) .matrix build dist .pytest_cache .mypy_cache .ruff_cache
