# Every target sets up what it needs on a machine with Python 3.11, make and pip (`make test`: and apt-get).

PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
DOCS := .venv-docs
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
STAMP := $(VENV)/.current
BENCH_STAMP := $(BENCH)/.current
DOCS_STAMP := $(DOCS)/.current
JOBS ?= 4
# Packages come from requirements/*.txt alone, with hashes: nothing is resolved or built in isolation at install time.
PIP := -m pip install --quiet --disable-pip-version-check
LOCKED := $(PIP) --require-hashes -r
EDITABLE := $(PIP) --no-deps --no-build-isolation -e .
EXTRAS := --extra crypto --extra redis --extra postgres --extra s3
PIP_COMPILE := $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --annotation-style line \
	--no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host
COMPILE := $(PIP_COMPILE) pyproject.toml requirements/package.in
# SERVERS=none: run only the tests that need no server and no strace, and install nothing on the system.
ifeq ($(SERVERS),none)
SYSTEM := left-out
RUN := HOLDFAST_SERVERS=none $(BIN)/python
MARKS := -m "not slow and not servers"
else
SYSTEM := servers
RUN := $(BIN)/python
MARKS :=
endif
# The tests start many processes: with compiled modules each of them starts several times faster.
export PYTHONDONTWRITEBYTECODE :=
POSTGRES := /usr/lib/postgresql/*/bin/postgres
NODE := $(VENV)/servers
RESTATE := $(NODE)/node_modules/@restatedev/*/bin/restate-server
CORE := src/holdfast/records/*,src/holdfast/codec/*,src/holdfast/history/*,src/holdfast/stores/*,src/holdfast/runs/*

.PHONY: help servers left-out demo test test-quick lint format cover faults soak bench bench-quick docs package lock clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## ?/\1\t/' | expand -t 14

$(INSTALLED): pyproject.toml requirements/package.txt
	@echo "setting up $(VENV), once: installs the packages of requirements/package.txt there"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(LOCKED) requirements/package.txt
	@$(BIN)/python $(EDITABLE)
	@touch $@

$(STAMP): $(INSTALLED) requirements/dev.txt
	@echo "installing the packages of requirements/dev.txt into $(VENV)"
	@$(BIN)/python $(LOCKED) requirements/dev.txt
	@touch $@

$(BENCH_STAMP): pyproject.toml requirements/bench.txt
	@echo "setting up $(BENCH), once: installs the packages of requirements/bench.txt there"
	@test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	@$(BENCH)/bin/python $(LOCKED) requirements/bench.txt
	@$(BENCH)/bin/python $(EDITABLE)
	@touch $@

$(DOCS_STAMP): requirements/docs.txt
	@echo "setting up $(DOCS), once: installs the packages of requirements/docs.txt there"
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python $(LOCKED) requirements/docs.txt
	@touch $@

servers:
	@missing=; \
	command -v strace >/dev/null || missing="$$missing strace"; \
	command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	command -v pgbouncer >/dev/null || missing="$$missing pgbouncer"; \
	ls $(POSTGRES) >/dev/null 2>&1 || missing="$$missing postgresql"; \
	ls $(RESTATE) >/dev/null 2>&1 || command -v npm >/dev/null || missing="$$missing npm"; \
	test -z "$$missing" && exit; \
	echo "the tests of the server stores need these programs:$$missing"; \
	echo "(to run only the tests that need none of them, and install nothing: make test SERVERS=none)"; \
	command -v apt-get >/dev/null || { echo "there is no apt-get here: install them yourself"; exit 1; }; \
	echo "installing them with apt-get"; \
	apt-get -qq update && apt-get -qq install -y $$missing \
		|| { echo "could not install$$missing: install them yourself, as root"; exit 1; }
	@ls $(RESTATE) >/dev/null 2>&1 && exit; \
	echo "installing the packages of requirements/restate into $(NODE), with npm"; \
	mkdir -p $(NODE) && cp requirements/restate/package*.json $(NODE)/ \
		&& npm ci --prefix $(NODE) --silent --ignore-scripts --no-audit --no-fund && ls $(RESTATE) >/dev/null

left-out: $(STAMP)
	@echo "SERVERS=none leaves out these tests, which need a server or strace, and installs nothing on the system:"
	@$(BIN)/python -m pytest --collect-only -qq -m "servers and not slow"

demo: $(INSTALLED)  ## kill an agent after its payment and resume it: one refund (holdfast demo crash)
	@$(BIN)/holdfast demo crash

test: $(STAMP) $(SYSTEM)  ## run the whole test suite; with SERVERS=none, what needs no server
	$(RUN) -m pytest -n $(JOBS) --dist worksteal $(MARKS)

test-quick: $(STAMP)  ## run the quick tests, which need no server: for the inner loop
	HOLDFAST_SERVERS=none HOLDFAST_EXAMPLES=6 $(BIN)/python -m pytest -n 2 --dist worksteal \
		--ignore=tests/stores/postgres --ignore=tests/stores/redis --ignore=tests/stores/s3 \
		-m "not (again or faults or large or processes or servers or slow)"

cover: $(STAMP) servers  ## run the test suite under coverage: at least 95 % of the branches of the core
	@rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run -m pytest -n $(JOBS) --dist worksteal
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report --include='$(CORE)' --fail-under=95

lint: $(STAMP)  ## run ruff, mypy, the import contracts, and both type checkers on the programs of a user
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --strict --config-file= --cache-dir=.mypy_cache/programs tests/programs/*.py
	cd tests/programs && $(CURDIR)/$(BIN)/pyright --pythonpath $(CURDIR)/$(BIN)/python *.py
	$(BIN)/lint-imports
	$(BIN)/python -m tests.wording

format: $(STAMP)  ## format the code and apply the safe fixes of ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

faults: $(STAMP) servers  ## run the fault tests and the slow tests with 20 times the rounds
	HOLDFAST_ROUNDS=20 $(BIN)/python -m pytest -n $(JOBS) -m "faults or slow" --timeout=14400

soak: $(STAMP)  ## let many processes write to one store, on SQLite and on files, and kill 2,000 of each
	$(BIN)/python -m tests.soak --kills 2000 --store sqlite
	$(BIN)/python -m tests.soak --kills 2000 --store file

bench: $(BENCH_STAMP)  ## measure all figures, against other libraries and the raw limits
	$(BENCH)/bin/python -m benchmarks --write-results

bench-quick: $(BENCH_STAMP)  ## measure with fewer samples, in a few minutes
	$(BENCH)/bin/python -m benchmarks --quick

docs: $(DOCS_STAMP)  ## build the documentation into build/docs, with warnings as errors; it needs no network to read
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --config-file website/mkdocs.yml
	@echo "open build/docs/index.html"

package: $(STAMP)  ## build the wheel and the source distribution into dist; with TAG=v1.2.3, only if that is the version
	@version=v$$($(BIN)/python -c "import holdfast; print(holdfast.__version__)"); \
	test "$${TAG:-$$version}" = "$$version" || { echo "the tag is $$TAG, and the version $$version"; exit 1; }
	rm -rf dist
	$(BIN)/pyproject-build --no-isolation

lock: $(STAMP)  ## renew requirements/*.txt: the newest versions that requirements/*.in and pyproject.toml allow
	$(COMPILE) --upgrade --output-file requirements/package.txt
	$(COMPILE) --upgrade $(EXTRAS) --extra yaml --extra cron --extra temporal --extra restate requirements/dev.in \
		--output-file requirements/dev.txt
	$(COMPILE) --upgrade $(EXTRAS) --extra temporal --extra restate requirements/bench.in --output-file requirements/bench.txt
	$(PIP_COMPILE) --upgrade requirements/docs.in --output-file requirements/docs.txt

clean:  ## remove the virtual environments, the built site and packages, and all caches
	rm -rf $(VENV) $(BENCH) $(DOCS) .venv-alone build dist .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
