# Ottla: `make serve` runs a broker, `make test` shows that it works. Everything is installed into .venv.
# Prefers the Python of the distribution to another one on the PATH: its build has profile-guided optimisation, which saves a tenth of a
# broker's time. But without Python's headers the hot path cannot be compiled, which costs more.
PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, os, sys, sysconfig, venv; sys.exit(sys.version_info < (3, 11) or not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null && echo /usr/bin/python3 || echo python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
DATA ?= ./data
SIMULATED ?= 10
BROKERS ?= 3
CLUSTER ?= ./cluster
# Two processes more than processors, because tests of brokers, Java and Spark wait for a third of their time.
WORKERS ?= $(shell echo $$(($$(nproc) + 2)))
# Overrides PYTHONDONTWRITEBYTECODE: with it each process of pytest would rewrite the assertions of all tests, which takes 8 s each.
PYTEST_ALONE = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(PYTEST_ARGS)
PYTEST = $(PYTEST_ALONE) -n $(WORKERS)
# Unit tests do not wait: another process would only collect them once more.
UNIT_PYTEST = $(PYTEST_ALONE) -n $(shell nproc) --timeout 60
ROWS ?= 10000000
RECORD_BYTES ?= 100
# The base address of the sources of this version, for the links in the descriptions of the wheels.
SOURCE_URL ?=
SANITIZED := build/sanitize
SANITIZED_TESTS := $(addprefix tests/, wire/test_hostile_bytes.py wire/test_golden_bad_lengths.py wire/test_message_sets.py unit/network \
    $(addprefix wire/test_, produce_cursor.py fetch_cursor.py fetch_answer_reader.py offset_commit_cursor.py txn_offset_commit_cursor.py) \
    $(addprefix unit/groups/test_, commit_requests.py txn_commit_requests.py) \
    $(addprefix unit/broker/test_, fetch_handler.py follower_fetch.py produce_handler.py produce_splits.py produce_together.py) \
    $(addprefix unit/storage/test_, append.py follower_append.py indexes.py log_append.py log_read.py validation.py))
WITH_SANITIZERS = PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:log_path=$(CURDIR)/$(SANITIZED)/report UBSAN_OPTIONS=print_stacktrace=1:log_path=$(CURDIR)/$(SANITIZED)/report \
    LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)"
# Tests of texts, which are the same with and without compiled modules.
OF_TEXTS := $(addprefix tests/unit/test_, house.py prose.py docs.py deploy.py)
DIST_TESTS ?= tests/wire $(addprefix tests/unit/, broker controller coordination groups network quotas replication security storage supervisor transactions)
FLOORS := broker controller replication storage protocol config ottla
PACKAGES := $(FLOORS) benchmarks tests

.PHONY: help compile compiled install kerberos serve cluster dist dist-test prepare test test-fast test-medium test-pure package-test sanitize lint format docs bench bench-quick bench-long validate judge neighbours apache-suite soak clean

help:
	@echo "make serve      run a broker on 127.0.0.1:9092, data under $(DATA); PORT= names another port"
	@echo "make serve SECURE=1  the same over TLS, for users of its own; prints the settings of their clients"
	@echo "make cluster    $(BROKERS) brokers on 127.0.0.1:9092 and the ports after it, data under $(CLUSTER); Ctrl-C stops them"
	@echo "make test       install what the tests need and run all but the longest (10 to 20 minutes on two cores)"
	@echo "make test-fast  the quick ones of the unit, wire and contract tests, with fewer examples of each property (about a minute)"
	@echo "make test-medium  one broker and real clients, without Java (minutes)"
	@echo "make test-pure  the unit and wire tests without compiled modules, with fewer examples of each property"
	@echo "make sanitize   tests of hostile bytes, frames and appends, compiled with ASan and UBSan (minutes)"
	@echo "make lint       ruff, mypy --strict, import-linter"
	@echo "make bench      Apache Kafka 3.9.1 and Ottla side by side (needs Java 17, Maven, a C compiler; BENCH_ARGS=)"
	@echo "make bench-quick, bench-long   the same in a few minutes, as a check that it works; with more turns"
	@echo "make validate   Spark through Apache Kafka 3.9.1 and Ottla in turns, with a check of every record (ROWS=, RECORD_BYTES=)"
	@echo "make judge      the tests of transactions and of the console against Apache Kafka 3.9.1 instead of Ottla (minutes)"
	@echo "make neighbours  Kafka Connect, MirrorMaker 2, Kafka Streams 4, a schema registry, Flink, Debezium, faust, Go; minutes each"
	@echo "make apache-suite  Apache Kafka's own integration tests with Ottla as their server (CLASSES=); an hour for all"
	@echo "make soak       random work with kill -9 against a model, simulated clusters, the whole fault matrix, long tests; hours"
	@echo "make dist       wheels for the Pythons at hand and those of aarch64, a pure one, pytest-ottla, and an archive of the sources (SOURCE_URL=);"
	@echo "                make dist-test tests them as installed"
	@echo "make package-test  the Debian package, the Dockerfile and the compose file, tried in chroots, as root (some minutes)"
	@echo "make format     format the code with ruff"
	@echo "make docs       write the generated reference pages"
	@echo "make kerberos   compile the package gssapi against the host's Kerberos library, for tests of Kerberos"
	@echo "make install    only what a broker needs, into $(VENV); make clean removes that again"

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

test-medium: $(VENV)/.installed-test compile
	@$(BIN)/python -m tests.support.prerequisites cc kcat
	$(PYTEST) -m "not java and not cluster" tests/integration

test-pure: $(VENV)/.installed-test compile
	OTTLA_PURE_PYTHON=1 OTTLA_FEW_EXAMPLES=1 $(UNIT_PYTEST) $(addprefix --ignore=,$(OF_TEXTS)) tests/simulation/test_planted_faults.py tests/integration/test_fetch_frames.py tests/unit tests/wire

# -fwrapv, with which Debian builds Python, hides overflows from UBSan. Python's own allocator hides what is freed from ASan.
sanitize: $(VENV)/.installed-test
	rm -rf $(SANITIZED)
	mkdir -p $(SANITIZED)
	cp -r $(PACKAGES) pyproject.toml setup.py README.md LICENSE $(SANITIZED)
	find $(SANITIZED) -name '*.so' -delete -o -name 'compiled.*.digest' -delete
	cd $(SANITIZED) && CFLAGS='-O1 -g -fno-wrapv -fsanitize=address,undefined -fno-sanitize-recover=undefined' \
	    LDFLAGS='-fsanitize=address,undefined' $(CURDIR)/$(BIN)/python setup.py --quiet build_ext --inplace
	cd $(SANITIZED) && $(WITH_SANITIZERS) $(CURDIR)/$(BIN)/python -c 'from ottla.protocol.compiled import IS_COMPILED; assert IS_COMPILED'
	cd $(SANITIZED) && $(WITH_SANITIZERS) $(CURDIR)/$(BIN)/python -m pytest -n $(WORKERS) -p no:cacheprovider $(PYTEST_ARGS) $(SANITIZED_TESTS) \
	    || { cat report.*; exit 1; }

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

bench: $(VENV)/.installed-test compile
	$(BIN)/python -m benchmarks.bench $(BENCH_ARGS)

bench-quick: $(VENV)/.installed-test compile
	$(BIN)/python -m benchmarks.bench --quick $(BENCH_ARGS)

bench-long: $(VENV)/.installed-test compile
	$(BIN)/python -m benchmarks.bench --long $(BENCH_ARGS)

validate: $(VENV)/.installed-test compile
	$(BIN)/python -m benchmarks.comparisons.spark_validation --rows $(ROWS) --record-bytes $(RECORD_BYTES) $(VALIDATE_ARGS)
	OTTLA_VALIDATE_DEEP=1 $(BIN)/python -m pytest --timeout 900 tests/integration/spark

judge: $(VENV)/.installed-test compile
	OTTLA_JUDGE=1 $(PYTEST) tests/integration/transactions $(addprefix tests/integration/test_, console.py console_browser.py)
	OTTLA_JUDGE=1 OTTLA_SOAK=1 $(BIN)/python -m pytest $(addprefix tests/cluster/transactions/test_, copiers.py streams.py) \
	    tests/integration/transactions/test_franz_go.py -k "copiers or short or franz"
	OTTLA_JUDGE=1 $(BIN)/python -m pytest tests/integration/test_odd_batches.py tests/integration/apache_kafka/one_pair/test_mutated_batches.py

neighbours: $(VENV)/.installed-test compile
	@$(BIN)/python -m tests.support.prerequisites
	OTTLA_NEIGHBOURS=1 $(BIN)/python -m pytest --durations=20 $(PYTEST_ARGS) tests/neighbours

apache-suite: $(VENV)/.installed-test compile
	@$(BIN)/python -m tests.support.prerequisites java mvn
	$(BIN)/python -m tests.apache_suite $(CLASSES)

soak: $(VENV)/.installed-test compile
	$(BIN)/python -m tests.soak $(SOAK_ARGS)
	$(BIN)/python -m tests.simulation --minutes $(SIMULATED)
	$(BIN)/python -m tests.chaos.fault_matrix
	$(BIN)/python -m tests.soak.attacks
	OTTLA_SOAK=1 $(BIN)/python -m pytest -m soak tests
	OTTLA_SOAK=1 $(BIN)/python -m pytest tests/unit tests/wire tests/chaos/test_idempotent_producers.py
	OTTLA_SOAK=1 $(BIN)/python -m pytest tests/simulation/test_transaction_faults.py tests/simulation/test_lost_decisions.py
	OTTLA_SOAK=1000000 $(BIN)/python -m pytest --timeout 3600 tests/integration/test_hostile_clients.py

# A C compiler for wheels of aarch64; without it there are none.
$(VENV)/.installed-ziglang: | $(VENV)/.installed-test
	$(PIP) install --constraint constraints.txt ziglang && touch $@ || echo "missing: the package ziglang, for wheels of aarch64" >&2

# The same sources and SOURCE_DATE_EPOCH give the same files.
dist: $(VENV)/.installed-test $(VENV)/.installed-ziglang
	OTTLA_SOURCE_URL=$(SOURCE_URL) $(BIN)/python -m tests.distributions

# Each wheel in an environment of its own, without a compiler: the fast tests, with the installed packages instead of the checkout's.
dist-test: $(VENV)/.installed-test $(VENV)/.installed-ziglang
	OTTLA_SOURCE_URL=$(SOURCE_URL) $(BIN)/python -m tests.distributions $(DIST_TESTS)

# In build/packages: a Debian by debootstrap, in which the package is built, and the image. Both are made anew after a change of the sources.
package-test: $(VENV)/.installed-test
	@$(BIN)/python -m tests.support.prerequisites debootstrap ip java
	OTTLA_PACKAGES=1 $(BIN)/python -m pytest $(PYTEST_ARGS) tests/packages

clean:
	find $(PACKAGES) -name '*.so' -delete -o -name 'compiled.*.digest' -delete
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
