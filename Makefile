# The two commands of the README are `make demo` and `make test`; `make install` is their common first half.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: install demo test test-all lint benchmark clean

install: $(STAMP)

# A torch that is already in the environment is kept. Triton is optional: without it, Triton candidates are not judged.
$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade "pip>=25"
	@$(BIN)/python -c "import torch" 2>/dev/null || { echo "installing $(TORCH)"; $(PIP) install "$(TORCH)"; }
	$(PIP) install --editable ".[dev,llm,postgres]"
	@$(BIN)/python -c "import triton" 2>/dev/null || $(PIP) install "triton>=3.6,<4" \
		|| echo "note: no triton for this machine; Triton candidates will not be judged"
	@touch $(STAMP)

demo: install
	$(BIN)/kernelwright optimize examples/tanh_residual.py --run-dir kernelwright-runs/demo --fresh

test: install
	$(BIN)/python -m pytest -m "not slow and not gpu"

test-all: install
	$(BIN)/python -m pytest

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

benchmark: install
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/demo.py
	$(BIN)/python benchmarks/judge_verdict.py
	$(BIN)/python benchmarks/cpu_ops.py
	$(BIN)/python benchmarks/check.py

clean:
	rm -rf $(VENV) kernelwright-runs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
