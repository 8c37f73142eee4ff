# Every target sets up what it needs on a machine with Python 3.11, make, pip and apt.

PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
STAMP := $(VENV)/.current
BENCH_STAMP := $(BENCH)/.current
JOBS ?= 4
# The tests start many processes: with compiled modules each of them starts several times faster.
export PYTHONDONTWRITEBYTECODE :=
CORE := src/holdfast/records/*,src/holdfast/codec/*,src/holdfast/history/*,src/holdfast/stores/*,src/holdfast/runs/*

.PHONY: help strace redis postgres demo test test-quick lint format cover faults soak bench bench-quick clean

help:  ## list the targets
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
		|| { echo "the tests that interrupt a save at its system calls need strace: install it, then run make test"; exit 1; }

redis:
	@command -v redis-server >/dev/null || { echo "installing redis-server"; apt-get -qq update && apt-get -qq install -y redis-server; } \
		|| { echo "the tests of the Redis store need redis-server: install it, then run make test"; exit 1; }

postgres:
	@{ ls /usr/lib/postgresql/*/bin/postgres && command -v pgbouncer; } >/dev/null 2>&1 \
		|| { echo "installing PostgreSQL"; apt-get -qq update && apt-get -qq install -y postgresql pgbouncer; } \
		|| { echo "the tests of the PostgreSQL store need postgresql and pgbouncer: install them, then run make test"; exit 1; }

demo: $(INSTALLED)  ## kill an agent after its payment and resume it: one refund (holdfast demo crash)
	@$(BIN)/holdfast demo crash

test: $(STAMP) strace redis postgres  ## run the whole test suite
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-quick: $(STAMP)  ## run the quick tests, which need no server: for the inner loop
	HOLDFAST_SERVERS=none HOLDFAST_EXAMPLES=10 $(BIN)/python -m pytest -n 3 --dist worksteal -m "not (again or faults or processes or servers or slow)" --ignore=tests/codec/test_sdk_objects.py

cover: $(STAMP) strace redis postgres  ## run the test suite under coverage: at least 95 % of the branches of the core
	@rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run -m pytest -n $(JOBS) --dist worksteal
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report --include='$(CORE)' --fail-under=95

lint: $(STAMP)  ## run ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## format the code and apply the safe fixes of ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

faults: $(STAMP) strace redis postgres  ## run the fault tests and the slow tests with 20 times the rounds
	HOLDFAST_ROUNDS=20 $(BIN)/python -m pytest -n $(JOBS) -m "faults or slow" --timeout=14400

soak: $(STAMP)  ## let many processes write to one file for ten minutes, and kill them
	$(BIN)/python -m tests.soak --minutes 10

bench: $(BENCH_STAMP)  ## measure all figures, against other libraries and the raw limits
	$(BENCH)/bin/python -m benchmarks --write-results

bench-quick: $(BENCH_STAMP)  ## measure with fewer samples, in a few minutes
	$(BENCH)/bin/python -m benchmarks --quick

clean:  ## remove the virtual environments and all caches
	rm -rf $(VENV) $(BENCH) .venv-alone .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
