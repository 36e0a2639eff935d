PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUF_VERSION := 1.75.0
TYPESCRIPT_VERSION := 5.9.3
ARGS ?=
WORKERS ?= 3
SHARD ?=
BURNERS ?= 4
KEY ?=
SITE := build/site
BUILD_SITE = $(BIN)/sphinx-build -E -W -n --keep-going -q -c docs/site -d build/doctrees . $(SITE)

# Tests start hundreds of processes; each would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-full test-busy test-fast chaos lint format proto docs bench release screenshots clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | awk -F '\t' '{printf "  %-11s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	  || { echo "fedplcc needs Python 3.11 to 3.13; name one with: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml
	@echo "Installing into $(VENV) (once; torch is large, a minute or more)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	@echo "Installing into $(VENV) (once; torch is large, a minute or more)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.demo

setup: $(VENV)/.dev ## Create .venv with everything that development needs

demo: $(VENV)/.demo ## Train FedPLCC with six processes on this machine; ARGS="--rounds 2 --method fedavg --json", ARGS="--stream"
	@$(BIN)/fedplcc demo $(ARGS)

test: $(VENV)/.dev ## Prove every guarantee, three files at a time; ARGS="-k words" for some, WORKERS=0 for one at a time
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-full: $(VENV)/.dev ## Run the tests that `make test` leaves out: every feature in every surrounding; SHARD=2 for a fifth
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --part rest $(if $(SHARD),--shard $(SHARD)) $(ARGS)

test-busy: $(VENV)/.dev ## Run every test beside four processes that burn the cores; ARGS as for test, BURNERS=8 for more
	@$(BIN)/python -m tests.busy --burners $(BURNERS) -- -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-fast: $(VENV)/.dev ## Run the unit, contract and property tests that take less than a few seconds each
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow" tests/unit tests/contract tests/property $(ARGS)

chaos: $(VENV)/.dev ## Inject every fault at full size; ARGS="sweep fuzz" for some parts
	@$(BIN)/python -m tests.chaos $(ARGS)

lint: $(VENV)/.dev ## Check format, style, types, imports, documents and that what is generated is current
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy .
	@$(BIN)/lint-imports
	@$(BIN)/bandit --quiet --configfile pyproject.toml --recursive aggregator fedplcc gateway shared trainer && echo "bandit: clean"
	@$(BIN)/python protos/generate.py --check
	@$(BIN)/python -m docs.site.store --check
	@$(BIN)/python -m docs.site.configuration --check
	@$(BIN)/python -m docs.site.metrics --check
	@$(BIN)/python -m docs.site.gateway_client --check
	@$(BIN)/python -m docs.site.citations
	@$(BIN)/python -m release.locks --check
	@$(BIN)/python -m release.licences --check
	@$(BUILD_SITE) && echo "docs: clean"
	@$(BIN)/hadolint Dockerfile.aggregator Dockerfile.trainer && echo "hadolint: clean"
	@if command -v npx >/dev/null; then cd protos && npx --yes @bufbuild/buf@$(BUF_VERSION) lint && echo "buf lint: clean" \
	  && npx --yes @bufbuild/buf@$(BUF_VERSION) breaking --against $$(ls *.binpb | sort -V | tail -1) && echo "buf breaking: clean"; \
	  else echo "buf lint and breaking: skipped, npx is not installed"; fi
	@if command -v npx >/dev/null; then npx --yes --package typescript@$(TYPESCRIPT_VERSION) tsc --project gateway/console/jsconfig.json \
	  && echo "the console's types: clean"; else echo "the console's types: skipped, npx is not installed"; fi

format: $(VENV)/.dev ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

proto: $(VENV)/.dev ## Generate shared/gen from protos/, the picture of the store's tables, the pages of configuration and metrics
	@$(BIN)/python protos/generate.py
	@$(BIN)/python -m docs.site.store
	@$(BIN)/python -m docs.site.configuration
	@$(BIN)/python -m docs.site.metrics
	@$(BIN)/python -m docs.site.gateway_client

docs: $(VENV)/.dev ## Build the documents as a searchable site, strict: build/site/index.html
	@$(BUILD_SITE) && echo "open $(SITE)/index.html"

bench: $(VENV)/.dev ## Measure rounds, fold, FINCH and transfers against peers and limits; ARGS="--quick"
	@$(BIN)/python -m benchmarks $(ARGS)

release: docs ## Build, list, bundle and sign a release of this commit in dist/; KEY=~/.ssh/id_ed25519
	@$(BIN)/python -m release --key "$(KEY)" --site $(SITE) $(ARGS)

screenshots: $(VENV)/.dev ## Take the README's pictures anew: minutes, needs Chromium
	@FEDPLCC_SCREENSHOTS=docs/pictures $(BIN)/python -m pytest tests/browser/test_pictures.py

clean: ## Remove the environment and caches
	rm -rf $(VENV) build dist tests-output *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
