# Ottla: `make serve` runs a broker, `make test` shows that it works. Everything is installed into .venv.
# Prefers the Python of the distribution to another one on the PATH: its build has profile-guided optimisation, which saves a tenth of a
# broker's time. But without Python's headers the hot path cannot be compiled, which costs more.
PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, os, sys, sysconfig, venv; sys.exit(sys.version_info < (3, 11) or not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null && echo /usr/bin/python3 || echo python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
DATA ?= ./data
BROKERS ?= 3
CLUSTER ?= ./cluster
# Two processes more than processors, because tests of brokers, Java and Spark wait for a third of their time.
WORKERS ?= $(shell echo $$(($$(nproc) + 2)))
# Overrides PYTHONDONTWRITEBYTECODE: with it each process of pytest would rewrite the assertions of all tests, which takes 8 s each.
PYTEST_ALONE = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(PYTEST_ARGS)
PYTEST = $(PYTEST_ALONE) -n $(WORKERS)
# Unit tests do not wait: another process would only collect them once more.
UNIT_PYTEST = $(PYTEST_ALONE) -n $(shell nproc) --timeout 60
FLOORS := broker coordination controller replication storage protocol config ottla
PACKAGES := $(FLOORS) benchmarks tests

# What takes longer, or needs more of the machine: tests/suites.py has the steps of each, and describes them.
SUITES := test-medium test-pure sanitize validate bench-quick bench-long judge neighbours apache-suite soak dist dist-test package-test

.PHONY: help compile compiled install kerberos serve cluster demo prepare test test-fast lint format docs vendor bench clean $(SUITES)

help:
	@echo "make serve      run a broker on 127.0.0.1:9092, data under $(DATA); PORT= names another port"
	@echo "make serve SECURE=1  the same over TLS, for users of its own; prints the settings of their clients"
	@echo "make cluster    $(BROKERS) brokers on 127.0.0.1:9092 and the ports after it, data under $(CLUSTER); Ctrl-C stops them"
	@echo "make demo       a cluster at work while brokers are killed, with Spark where it is installed; Ctrl-C ends it (DEMO_ARGS=)"
	@echo "make test       install what the tests need and run all but the longest (15 to 25 minutes on two cores)"
	@echo "make test-fast  the quick ones of the unit, wire and contract tests, with fewer examples of each property (about a minute)"
	@echo "make lint       ruff, mypy --strict, import-linter"
	@echo "make format     format the code with ruff"
	@echo "make docs       write the generated reference pages"
	@echo "make vendor     bundle the libraries of the console's page anew, as npm's lock pins them (needs Node.js)"
	@echo "make bench      Apache Kafka 3.9.1 and Ottla side by side (needs Java 17, Maven, a C compiler; BENCH_ARGS=)"
	@echo "make install    only what a broker needs, into $(VENV); make clean removes that again"
	@echo "Longer checks, which $(VENV)/bin/python -m tests.suites describes: make $(SUITES)"

# A virtual environment needs Python >= 3.11 with ensurepip (Debian: python3-venv). Tests need its setuptools, too: PySpark comes as sources.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else f"Ottla needs Python >= 3.11, {sys.executable} is {sys.version.split()[0]}; set PYTHON=")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv module is missing; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Compiled modules are kept below $$XDG_CACHE_HOME/ottla by what they are made of, for all clones; without a C compiler, or without Python's
# headers (Debian: python3-dev), the hot path runs as Python. With --jobs it is compiled while pip fetches the packages.
compiled: | $(BIN)/python
	-@$(PYTHON) start.py --venv $(VENV) compile

$(VENV)/.packages: pyproject.toml constraints.txt | $(BIN)/python
	@$(PYTHON) start.py --venv $(VENV) install && touch $@

# PySpark comes as sources, of which pip makes a wheel. To compress that takes a third of the time of all packages, so it is stored as it is.
# Bytecode is written when a module is imported. For all modules it takes half a minute, and most of PySpark, matplotlib and mypy never is.
# OTTLA_PURE_PYTHON: pip neither compiles the modules once more nor removes them.
$(VENV)/.packages-test: pyproject.toml constraints.txt | $(VENV)/.packages
	$(PIP) install --constraint constraints.txt --no-compile --no-deps --config-settings=--build-option=--compression=stored pyspark
	OTTLA_PURE_PYTHON=1 $(PIP) install --constraint constraints.txt --no-compile --editable '.[test,dev,spark]'
	@touch $@

$(VENV)/.installed: $(VENV)/.packages | compiled
$(VENV)/.installed-test: $(VENV)/.packages-test | compiled
$(VENV)/.installed $(VENV)/.installed-test:
	@touch $@

# Overrides PYTHONDONTWRITEBYTECODE, with which every start would compile everything.
compile: | $(BIN)/python
	@$(BIN)/python -m compileall -q $(PACKAGES)

install: $(VENV)/.installed
	@$(BIN)/python -m compileall -q $(FLOORS)

# Nothing is needed before: start.py installs what is missing, and compiles beside the broker. SECURE=1: a certificate, users, ACLs and their
# clients' settings are made beside the data.
serve:
	@exec $(PYTHON) start.py --venv $(VENV) serve --data $(DATA) $(if $(PORT),--port $(PORT)) $(if $(SECURE),--secure)

cluster:
	@exec $(PYTHON) start.py --venv $(VENV) cluster --brokers $(BROKERS) --dir $(CLUSTER) $(if $(PORT),--port $(PORT)) $(CLUSTER_ARGS)

# The console of the demonstration needs packages that no broker needs.
demo: $(VENV)/.installed
	@$(PYTHON) start.py --venv $(VENV) install --extra console
	@exec $(BIN)/python -m benchmarks.demo $(DEMO_ARGS)

# The package gssapi has no wheel for Linux: it is compiled against the Kerberos library of the host (Debian: libkrb5-dev). Without it, tests
# of Kerberos are skipped. Not optimised: to compile it takes longer than all that the tests do with it. Cython is there already.
kerberos: $(VENV)/.installed-test
	@$(BIN)/python -c 'import gssapi' 2>/dev/null || CFLAGS='-O0 -g0 -Wno-all' $(PIP) install --no-build-isolation --constraint constraints.txt gssapi >$(VENV)/gssapi.log 2>&1 \
	    || echo "missing: the package gssapi, for tests of Kerberos: it needs gcc, python3-dev and libkrb5-dev ($(VENV)/gssapi.log)" >&2

# What `make test` installs, fetches and writes before the tests, if it is not there yet: programs, jars, archives of classes.
prepare: $(VENV)/.installed-test
	@$(BIN)/python -m tests.support.prerequisites
	@$(MAKE) --no-print-directory kerberos

test: compile prepare
	$(PYTEST) tests

test-fast: $(VENV)/.installed-test compile
	OTTLA_FEW_EXAMPLES=1 $(UNIT_PYTEST) -m "not java and not slow" tests/unit tests/wire tests/contract

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed-test
	$(BIN)/python -m ottla.config.docs
	$(BIN)/python -m ottla.broker.handlers.docs
	$(BIN)/python -m ottla.broker.metrics.docs
	$(BIN)/python -m ottla.dashboards

# npm takes its registry from its own configuration, and checks each package by the digest in the lock.
vendor:
	cd ottla/console/libraries && npm ci --ignore-scripts --no-audit --no-fund && node vendor.mjs

bench: $(VENV)/.installed-test compile
	$(BIN)/python -m benchmarks.bench $(BENCH_ARGS)

clean:
	find $(PACKAGES) -name '*.so' -delete -o -name 'compiled.*.digest' -delete
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(SUITES): $(VENV)/.installed-test compile
	@$(BIN)/python -m tests.suites $@
