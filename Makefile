# Every target sets up what it needs (a virtual environment in .venv) and reuses it the next time.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-flower test check bench chaos long coverage versions reference screenshots docs wheel clean

help: ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# One that works is kept as it is: made again by another Python, it would be half of each.
$(STAMP): pyproject.toml
	@$(BIN)/python -c 'import ssl' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[plot,web,flower,docs,dev]'
	@touch $(STAMP)

setup: $(STAMP) ## make the virtual environment

demo: $(STAMP) ## the product's main job, in under two minutes
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh

demo-flower: $(STAMP) ## a Flower fleet on this machine: FedAvg against SFL in wall-clock seconds, in under 3 minutes
	@$(BIN)/cutwater fleet examples/fleet.toml --planner fedavg --planner exact --rounds 1

check: $(STAMP) ## ruff, mypy --strict and the layering test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layering.py

test: check ## everything that must hold
	@bash scripts/browser.sh
	@$(BIN)/python -m pytest -q -n 3 --dist worksteal || { echo; \
	echo "== once more, each by itself: one that passes now depends on what ran beside it, and wants mending"; \
	$(BIN)/python -m pytest -q --last-failed --last-failed-no-failures none; }

bench: $(STAMP) ## the benchmarks, as ratios against peers and limits
	@missed=0; for f in benchmarks/*.py; do echo "== $$f"; $(BIN)/python $$f || missed=1; done; exit $$missed

chaos: $(STAMP) ## thirty ways to hurt a deployment at full size, with a table at the end
	$(BIN)/python scripts/chaos.py

# An environment of its own: some of these libraries do not go together with others that the tests use.
coverage: ## take models of other libraries apart, check each, and write docs/coverage.md; an hour or so
	$(PYTHON) -m venv .coverage
	.coverage/bin/pip install --quiet --disable-pip-version-check '.[coverage]'
	.coverage/bin/cutwater coverage --page docs/coverage.md

long: $(STAMP) ## tests that take long by their nature: all rounds that are pinned, 100,000 clients on the page, a 7 B model
	@bash scripts/browser.sh
	$(BIN)/python -m pytest -q -m long

versions: $(STAMP) ## test with the lowest and the highest versions of the dependencies
	$(BIN)/python scripts/versions.py

reference: $(STAMP) ## the tables of keys and names in docs/, from their descriptions
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/api_page.py

screenshots: $(STAMP) ## the pictures in docs/screenshots
	@bash scripts/browser.sh
	$(BIN)/python scripts/screenshots.py

docs: $(STAMP) ## the documentation site, into out/site, without a network; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open out/site/index.html"

wheel: $(STAMP) ## build the wheel, install it into an empty environment, plan and run the demo from it
	$(BIN)/python scripts/wheel.py

clean: ## remove the environment and caches
	rm -rf $(VENV) .versions .coverage .mypy_cache .ruff_cache .pytest_cache
