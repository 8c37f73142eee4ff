# The front door. Every target does its own set-up on a machine with nothing but Python 3.11, make, pip and apt.

PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
STAMP := $(VENV)/.current
BENCH_STAMP := $(BENCH)/.current
JOBS ?= 4
CORE := src/holdfast/records/*,src/holdfast/codec/*,src/holdfast/history/*,src/holdfast/stores/*,src/holdfast/runs/*

.PHONY: help strace redis postgres demo test lint format cover faults soak bench bench-quick clean

help:  ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## ?/\1\t/' | expand -t 14

$(INSTALLED): pyproject.toml
	@echo "setting up $(VENV), once"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(STAMP): $(INSTALLED) requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt -e '.[crypto,redis,postgres,s3,yaml]'
	@touch $@

$(BENCH_STAMP): pyproject.toml requirements/bench.txt
	@test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	@$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/bench.txt -e '.[crypto,redis,postgres,s3]'
	@touch $@

strace:
	@command -v strace >/dev/null || { echo "installing strace"; apt-get -qq update && apt-get -qq install -y strace; } \
		|| { echo "the tests that strike a save at its system calls need strace: install it, then make test"; exit 1; }

redis:
	@command -v redis-server >/dev/null || { echo "installing redis-server"; apt-get -qq update && apt-get -qq install -y redis-server; } \
		|| { echo "the tests of the Redis store need redis-server: install it, then make test"; exit 1; }

postgres:
	@{ ls /usr/lib/postgresql/*/bin/postgres && command -v pgbouncer; } >/dev/null 2>&1 \
		|| { echo "installing PostgreSQL"; apt-get -qq update && apt-get -qq install -y postgresql pgbouncer; } \
		|| { echo "the tests of the PostgreSQL store need postgresql and pgbouncer: install them, then make test"; exit 1; }

demo: $(INSTALLED)  ## an agent is killed after its payment went out, and goes on: one refund (holdfast demo crash)
	@$(BIN)/holdfast demo crash

test: $(STAMP) strace redis postgres  ## the whole test suite
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

cover: $(STAMP) strace redis postgres  ## the same under coverage: branches of the core, at least 95 %
	@rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run -m pytest -n $(JOBS) --dist worksteal
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report --include='$(CORE)' --fail-under=95

lint: $(STAMP)  ## ruff, mypy, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

faults: $(STAMP) redis postgres  ## the fault tests, many more rounds
	HOLDFAST_ROUNDS=20 $(BIN)/python -m pytest -n $(JOBS) -m "faults or slow" --timeout=3600

soak: $(STAMP)  ## many processes on one file for ten minutes
	$(BIN)/python -m tests.soak --minutes 10

bench: $(BENCH_STAMP)  ## all figures, against the peers and the raw limits, interleaved in one run
	$(BENCH)/bin/python -m benchmarks --write-results

bench-quick: $(BENCH_STAMP)  ## the same with fewer samples, in a few minutes
	$(BENCH)/bin/python -m benchmarks --quick

clean:  ## everything that was made
	rm -rf $(VENV) $(BENCH) .venv-alone .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
