# The commands of a checkout. `make env` first; everything else uses the environment it makes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0

.PHONY: env test test-slow lint quickstart clean

env: $(VENV)/.done

# torch is installed first and by itself: a plain `pip install torch` may pull in gigabytes of CUDA libraries.
$(VENV)/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt "$(TORCH)"
	$(BIN)/pip install -q -c constraints.txt -e ".[train,serve,solve,data,test]"
	touch $@

test: env
	$(BIN)/python -m pytest

test-slow: env
	$(BIN)/python -m pytest -m "slow and not gpu"

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/vulture

quickstart: env
	$(BIN)/drkernel train recipes/quickstart.yaml

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
