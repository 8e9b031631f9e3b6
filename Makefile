# The developer's interface. `make demo` and `make test` need only Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOAK ?= 1
COUNT ?= 300
SEED ?= $(shell date +%Y%m%d)
LIVE := tests/attacks tests/cli tests/client tests/docs tests/engines tests/gpu tests/integrations \
  tests/lab/test_parity.py tests/service tests/serving/live tests/web
# Tests of real processes, which wait more than they compute.

export PYTHONDONTWRITEBYTECODE :=
# The tests start hundreds of processes: no two of them compile the same files.

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types floors soak mutants bench peers pages proto lock clean

help: ## What can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/run: pyproject.toml requirements/run.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Ganger needs Python 3.11 or newer; name it with: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "Python's venv is missing; install it with: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/run.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev: $(VENV)/run requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@touch $@

demo: $(VENV)/run ## Replay the bundled workload under eight schedulers; writes demo.html
	$(BIN)/ganger demo --report demo.html

test: $(VENV)/dev ## Lint, types, import contracts and tests; prints the slowest (LONG=1: the long tests, too)
	@$(MAKE) --no-print-directory lint floors
	@$(BIN)/python tests/compiling.py
	@$(BIN)/python tests/everything.py $(if $(LONG),--long) --live $(LIVE)

check: lint types floors ## Everything but the tests

lint: $(VENV)/dev ## Ruff: errors and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev ## mypy, strict
	$(BIN)/mypy

floors: $(VENV)/dev ## Which room may import which (import-linter)
	$(BIN)/lint-imports

soak: $(VENV)/dev ## The large counts (hours; SOAK=0.1: a tenth of them); prints its seed
	@echo "$(SOAK) of the large counts, Hypothesis' seed $(SEED), all others are fixed"
	GANGER_SOAK=$(SOAK) $(BIN)/python -m pytest -n 2 -m soak --hypothesis-profile=soak --hypothesis-seed=$(SEED)

mutants: $(VENV)/dev ## Do the tests notice what one changed line does? (an hour; COUNT=10: fewer)
	$(BIN)/python benchmarks/mutants.py --count $(COUNT)

bench: $(VENV)/run ## Speed on this machine (minutes)
	$(BIN)/python benchmarks/speed.py

.peers/%/made: benchmarks/peers/%.txt
	$(PYTHON) -m venv .peers/$*
	.peers/$*/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

peers: $(VENV)/run .peers/bentoml/made .peers/ray/made .peers/syne/made .peers/syne14/made ## BentoML, Ray and Syne Tune beside ours (downloads them)
	$(BIN)/python benchmarks/peers
	$(BIN)/python benchmarks/peers/pages.py
	$(BIN)/python benchmarks/searches.py

pages: $(VENV)/run ## Make again what is made from the code: docs/recipes, docs/api.md, the tables in docs/live.md
	$(BIN)/ganger recipes --pages docs/recipes
	$(BIN)/python -m ganger.lab.docs.api_page > docs/api.md.new && mv docs/api.md.new docs/api.md
	$(BIN)/python -m ganger.lab.docs.life_page docs/live.md

proto: $(VENV)/dev ## Make the descriptors of the gRPC protocol again
	$(BIN)/python -m grpc_tools.protoc -I src/ganger/serving/grpc --descriptor_set_out=src/ganger/serving/grpc/open_inference.binpb open_inference.proto

lock: ## Rewrite the lock files (needs uv)
	uv pip compile --no-strip-extras --quiet --python-version 3.11 --universal --generate-hashes --no-header --no-annotate \
	  pyproject.toml requirements/build.in -o requirements/run.lock
	uv pip compile --no-strip-extras --quiet --python-version 3.11 --universal --generate-hashes --no-header --no-annotate \
	  pyproject.toml requirements/build.in --group dev -o requirements/dev.lock

clean: ## Remove what was made
	rm -rf $(VENV) .peers build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
