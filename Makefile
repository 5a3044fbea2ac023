# All commands for a developer. They need GNU make and Python 3.11 or later; `make test-oracle` a JDK 17 and Maven too.
#
# House rule: a target first installs the packages that it needs, from the locks alone. If they are there, that costs
# nothing.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# The first interpreter that is new enough; PYTHON=... chooses another. The system's Python comes first: distributions
# build it with profile-guided optimisation, which pyenv leaves out, and the server then needs a fifth less CPU.
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

BIN := .venv/bin
INSTALL := @$(BIN)/python requirements/install.py

# Five test processes for each core: two thirds of the time, tests wait for clients and for processes that they started,
# and with three a core had nothing to do for a quarter of it. Those of Apache Kafka use much memory, so they have three.
# AT_ONCE=1 runs one test after the other. Compiled tests that are kept save 7 s of CPU.
CORES := $(shell getconf _NPROCESSORS_ONLN)
AT_ONCE ?= $(shell expr 5 '*' $(CORES))
AT_ONCE_WITH_KAFKA ?= $(shell expr 3 '*' $(CORES))
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --at-once

# Markers of tests that have targets of their own.
OTHERS := oracle or compose or spark or suites or toolchain or dist or cluster or kubernetes or nightly

# ARGS: more arguments for the command of a target: make run ARGS="--listen 127.0.0.1:0", make test ARGS="tests/group
# -x".
ARGS ?=

.PHONY: help
help: ## this list
	@echo 'make TARGET [ARGS="..."]'
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 16

.PHONY: run
run: .venv/.run ## install and start the server on 127.0.0.1:9092, data in ./data
	@exec $(BIN)/tenure serve $(ARGS)

.PHONY: demo
demo: .venv/.dev ## a rolling restart that moves nothing, with real clients
	@exec $(BIN)/python -m examples.demo $(ARGS)

.PHONY: programs
programs: # what tests need beside Python
	@for program in etcd prometheus chromium; do $(MAKE) $$program || \
		echo "make: the tests with $$program are left out, for the reason above" >&2; done

.PHONY: test
test: .venv/.audit programs ## install and pass the tests that each change needs, real clients included
	$(PYTEST) $(AT_ONCE) -m 'not (long or tidy or $(OTHERS))' $(ARGS)

# CI plays the random tests of `make test` in their long form, so that it needs LONG=long alone.
LONG ?= long or rounds or hypothesis
.PHONY: test-long
test-long: .venv/.audit programs ## what is too long for `make test`, more rounds of real clients, and more examples of its random tests
	HYPOTHESIS_PROFILE=long $(PYTEST) $(AT_ONCE) -m '($(LONG)) and not ($(OTHERS))' $(ARGS)

.PHONY: test-cluster
test-cluster: .venv/.audit ## three nodes on three members of etcd, with faults and real clients (etcd; Java for one client)
	$(PYTEST) $(CORES) -m cluster tests/cluster $(ARGS)

.PHONY: test-spark
test-spark: .venv/.spark ## the audit on Spark (JDK 17)
	@command -v java >/dev/null || \
		{ echo 'make test-spark: install a JDK 17 (Debian: apt-get install openjdk-17-jdk-headless)' >&2; exit 1; }
	$(BIN)/pytest -m 'spark and not oracle' $(ARGS)

.PHONY: test-oracle
test-oracle: .venv/.spark ## the same requests to Apache Kafka and to Tenure (JDK 17, Maven)
	@command -v java >/dev/null && command -v mvn >/dev/null || \
		{ echo 'make test-oracle: install a JDK 17 and Maven (Debian: apt-get install openjdk-17-jdk-headless maven)' >&2; exit 1; }
	$(PYTEST) $(AT_ONCE_WITH_KAFKA) -m 'oracle and not (suites or toolchain or nightly)' $(ARGS)

.PHONY: test-interop
test-interop: .venv/.audit ## every client there is a toolchain for, on Tenure and Apache Kafka; docs/start/clients.md gets the table
	$(BIN)/python -m tests.interop.table $(ARGS)

# $(call unpack,PROGRAM,FILE,PACKAGES,FURTHER) unpacks Debian's packages into build/PROGRAM, unless PROGRAM is installed
# or FILE was unpacked. FURTHER may ask apt-get for names of packages; "$$@" are the options for its lists.
define unpack
@if command -v $(1) >/dev/null || test -x build/$(1)/$(2); then exit 0; fi; \
hint='make $@: install $(1) (Debian: apt-get install $(3))'; \
command -v apt-get >/dev/null && command -v dpkg >/dev/null || { echo "$$hint" >&2; exit 1; }; \
rm -rf build/$(1) && mkdir -p build/$(1)/apt/lists/partial build/$(1)/apt/archives/partial && cd build/$(1) || exit 1; \
fetch() { apt-get -qq "$$@" download $(3) $(4); }; \
own="-o Dir::State::Lists=$$PWD/apt/lists -o Dir::Cache=$$PWD/apt"; \
{ fetch || { apt-get -qq $$own update && fetch $$own; }; } >apt/log 2>&1 || { tail -n 3 apt/log >&2; echo "$$hint" >&2; exit 1; }; \
for package in *.deb; do dpkg -x "$$package" . || exit 1; done; rm -rf apt *.deb
endef

.PHONY: etcd
etcd: ## an etcd for tests where none is installed: Debian's, unpacked into build/etcd
	$(call unpack,etcd,usr/bin/etcd,etcd-server etcd-client)

.PHONY: prometheus
prometheus: ## a Prometheus for tests where none is installed: Debian's, unpacked into build/prometheus
	$(call unpack,prometheus,usr/bin/prometheus,prometheus)

.PHONY: chromium
chromium: ## a Chromium for tests where none is installed: Debian's with the libraries that it lacks, unpacked into build/chromium
	$(call unpack,chromium,usr/lib/chromium/chromium-headless-shell,chromium-headless-shell chromium-common,\
		$$(apt-get -qq "$$@" --simulate --no-install-recommends install chromium-headless-shell | awk '/^Inst/ && $$3 !~ /^\[/ {print $$2}'))

.PHONY: check-dashboard
check-dashboard: ## check the dashboard by the schemas that Grafana publishes (Go; the first time a minute)
	@command -v go >/dev/null || { echo 'make check-dashboard: install Go (https://go.dev/dl)' >&2; exit 1; }
	cd tests/server/telemetry/dashboard && go run . $(CURDIR)/examples/monitoring/grafana-dashboard.json

# The server has replace directives, so `go install` refuses it; a module that requires it doesn't.
ETCD_NEW ?= v3.7.3

.PHONY: etcd-new
etcd-new: ## build a newer etcd into build/etcd-new (Go; 75 s), for ETCD=build/etcd-new/etcd make test-cluster
	@command -v go >/dev/null || { echo 'make etcd-new: install Go (https://go.dev/dl)' >&2; exit 1; }
	@mkdir -p build/etcd-new
	@cd build/etcd-new && printf 'module etcd\n\ngo 1.26\n\nrequire (\n' >go.mod && \
		for part in server etcdctl etcdutl; do printf '\tgo.etcd.io/etcd/%s/v3 $(ETCD_NEW)\n' $$part >>go.mod; done && \
		echo ')' >>go.mod
	cd build/etcd-new && GOFLAGS=-mod=mod go build -o etcd go.etcd.io/etcd/server/v3 && \
		GOFLAGS=-mod=mod go build -o etcdctl go.etcd.io/etcd/etcdctl/v3 && \
		GOFLAGS=-mod=mod go build -o etcdutl go.etcd.io/etcd/etcdutl/v3

.PHONY: kubernetes
kubernetes: .venv/.dev ## build a control plane of Kubernetes and Helm for `make test-kubernetes` (Go; once, 20 minutes, 4 GB of build cache)
	@$(BIN)/python -m tests.kubernetes.build

.PHONY: test-kubernetes
test-kubernetes: .venv/.audit ## `tenure seats` beside a real control plane of Kubernetes, with real clients (make kubernetes; Java for Apache Kafka)
	$(BIN)/pytest -m 'kubernetes and not nightly' tests/kubernetes $(ARGS)

.PHONY: nightly-kubernetes
nightly-kubernetes: .venv/.audit ## the long forms of `make test-kubernetes`, and 1,000 races (half an hour)
	HYPOTHESIS_PROFILE=nightly $(BIN)/pytest -m kubernetes tests/kubernetes $(ARGS)

.PHONY: test-suites
test-suites: .venv/.audit ## other projects' own tests of groups, as far as their tools are installed
	$(BIN)/pytest -m 'suites and not oracle' tests/suites $(ARGS)

.PHONY: test-compose
test-compose: .venv/.dev ## the images, and restarts and kills in docker-compose (Docker)
	@docker info >/dev/null || { echo 'make test-compose: no Docker engine answers' >&2; exit 1; }
	@docker compose version >/dev/null 2>&1 || docker-compose version >/dev/null || \
		{ echo 'make test-compose: install Docker Compose (Debian: apt-get install docker-compose)' >&2; exit 1; }
	$(BIN)/pytest tests/compose $(ARGS)

.PHONY: dist
dist: .venv/.dev ## build the wheel and the sdist into dist/, try them in new environments; check the examples for Kubernetes
	$(BIN)/python requirements/dist.py
	$(BIN)/pytest -m dist tests/requirements $(ARGS)

.PHONY: bench
bench: .venv/.dev ## requests, restarts and growth in turns with kfake, Apache Kafka, an echo and a bare write: 15 minutes; draws docs/images/bench.svg
	$(BIN)/python -m benchmarks.turns $(or $(ARGS),--page benchmarks/results/turns.md --image docs/images/bench.svg)

.PHONY: bench-requests
bench-requests: .venv/.dev ## each work by itself, beside a bare echo and Apache Kafka; without ARGS, benchmarks/results/requests.md gets the table
	$(BIN)/python -m benchmarks $(or $(ARGS),--page benchmarks/results/requests.md)

.PHONY: bench-security
bench-security: .venv/.dev ## what TLS and logins cost; without ARGS, benchmarks/results/security.md gets the table
	$(BIN)/python -m benchmarks security $(or $(ARGS),--page benchmarks/results/security.md)

.PHONY: bench-cluster
bench-cluster: .venv/.audit ## three nodes on etcd beside three of Apache Kafka: faults and load; without ARGS, benchmarks/results/cluster.md gets the tables
	$(BIN)/python -m benchmarks.cluster $(or $(ARGS),--page benchmarks/results/cluster.md)

.PHONY: bench-worst
bench-worst: .venv/.dev ## what the worst request of each API costs the other clients; ARGS="DescribeGroups --sizes 1024"
	$(BIN)/python -m benchmarks.worst $(ARGS)

.PHONY: profile
profile: .venv/.dev ## where the time of heartbeats and restarts goes; ARGS="commit groups" for others
	$(BIN)/python -m benchmarks.profile $(ARGS)

.PHONY: check
check: .venv/.spark ## format, lint, types (pyspark's too), imports, tidy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -q tests/test_tidy.py tests/protocol/test_stub.py

.PHONY: docs
docs: .venv/.docs ## the documentation as a site in build/site; a dead link or anchor fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

.PHONY: stubs
stubs: .venv/.dev ## write the types of messages and the keys of APIs, after a change of a schema
	@mkdir -p build
	$(BIN)/python -m tests.protocol.stub keys >build/api_keys.py && mv build/api_keys.py schemas/api_keys.py
	$(BIN)/python -m tests.protocol.stub >build/messages.pyi && mv build/messages.pyi protocol/messages.pyi

.PHONY: format
format: .venv/.dev ## format the code, and rewrite docs/ask-why/audit-checks.md
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python -m tests.audit.section

.PHONY: bench-audit
bench-audit: .venv/.spark ## the audit's cost, beside Kafka's own tool (a log of 1 GB, made once in build/)
	$(BIN)/python -m tests.audit.bench $(ARGS)

# The longest part comes first. A part that fails doesn't end the others, so that one night shows all failures.
NIGHTLY := nightly-rounds nightly-cluster nightly-clients test-suites nightly-kubernetes

.PHONY: nightly
nightly: .venv/.audit programs ## all rare and long rounds, two parts at a time: each nightly-* and test-suites (2 to 3 hours)
	@rm -rf build/nightly && mkdir -p build/nightly && $(MAKE) -k -j2 $(NIGHTLY:%=night-of-%)

# Each part has a log of its own in build/nightly.
night-of-%:
	@began=$$(date +%s); log=build/nightly/$*.log; \
	if $(MAKE) $* >$$log 2>&1; then ends=passed; else ends=FAILED; tail -n 40 $$log; fi; \
	echo "==== $*: $$ends in $$(($$(date +%s) - began)) s, $$log"; test $$ends = passed

.PHONY: nightly-rounds
nightly-rounds: .venv/.audit programs ## all of test and test-long with the longest rounds
	HYPOTHESIS_PROFILE=nightly $(PYTEST) $(AT_ONCE) -m 'not (tidy or oracle or compose or spark or toolchain or dist or cluster or kubernetes or suites)' $(ARGS)

CLIENTS := clients-dashboard clients-tenure clients-takeover clients-rounds clients-stuck clients-observe

# One step at a time; one that fails doesn't end the others.
.PHONY: nightly-clients $(CLIENTS)
nightly-clients: .venv/.audit ## each real client in each of its rounds, on Tenure and Apache Kafka, as far as their tools are installed
	@$(MAKE) -k -j1 $(CLIENTS)

clients-dashboard:
	@if command -v go >/dev/null; then $(MAKE) check-dashboard; fi

clients-tenure:
	$(MAKE) test-interop ARGS='--server tenure'

# Clients that need more than Python and have long rounds. A client without its tools is left out.
clients-takeover:
	HYPOTHESIS_PROFILE=nightly $(BIN)/pytest -m toolchain tests/interop/test_takeover.py

# The rounds of real clients that `make test-oracle` leaves out.
clients-rounds:
	@if command -v java >/dev/null && command -v mvn >/dev/null; then \
		$(BIN)/pytest -m 'oracle and nightly and not toolchain' tests/interop tests/oracle; fi

clients-stuck:
	@if command -v java >/dev/null && command -v mvn >/dev/null && command -v go >/dev/null; then \
		$(BIN)/pytest -m 'oracle and toolchain' tests/oracle; fi

clients-observe:
	$(BIN)/python -m tests.oracle.observe_cluster

.PHONY: nightly-cluster
nightly-cluster: .venv/.audit ## the long forms of `make test-cluster`, and 20 minutes of random faults (an hour); if Go is here, on a newer etcd
	if [ -z "$$ETCD" ] && command -v go >/dev/null; then $(MAKE) etcd-new && export ETCD=build/etcd-new/etcd; fi && \
		HYPOTHESIS_PROFILE=nightly $(BIN)/pytest -m cluster tests/cluster $(ARGS) && \
		$(BIN)/python -m tests.cluster.long_history --minutes 20 --seed $$(date +%j)

.PHONY: fuzz
fuzz: .venv/.audit ## damaged requests of every API, and large ones up to 100 MB, to a real server
	HYPOTHESIS_PROFILE=fuzz $(BIN)/pytest tests/server/test_bad_input.py tests/server/test_large_requests.py $(ARGS)

.PHONY: install
install: .venv/.spark ## make .venv as locked, Spark included, and nothing else

.PHONY: install-audit
install-audit: .venv/.audit ## the same without Spark: what `tenure audit` and the tests need

.PHONY: install-etcd
install-etcd: .venv/.etcd ## what `tenure serve --store` needs, and no more: the server and a client for etcd

.PHONY: install-kubernetes
install-kubernetes: .venv/.kubernetes ## what `tenure seats` needs, and no more: a client for the API server of Kubernetes

.PHONY: lock
lock: | .venv/bin/python ## resolve the dependencies again into requirements/*.txt and tests/*/*.txt (with Python 3.11, the oldest); UPGRADE= adds only
	$(BIN)/python -m venv build/lock
	build/lock/bin/python -m pip install --quiet 'pip-tools==7.6.2'
	CUSTOM_COMPILE_COMMAND='make lock' $(COMPILE) --all-build-deps --output-file requirements/run.txt pyproject.toml
	CUSTOM_COMPILE_COMMAND='make lock' $(COMPILE) --extra etcd \
		--constraint requirements/run.txt --output-file requirements/etcd.txt pyproject.toml
	CUSTOM_COMPILE_COMMAND='make lock' $(COMPILE) --extra kubernetes \
		--constraint requirements/run.txt --constraint requirements/etcd.txt --output-file requirements/kubernetes.txt pyproject.toml
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"], sep="\n")' \
		| CUSTOM_COMPILE_COMMAND='make lock' $(COMPILE) --constraint requirements/etcd.txt \
		--constraint requirements/kubernetes.txt --output-file requirements/dev.txt -
	CUSTOM_COMPILE_COMMAND='make lock' $(COMPILE) --extra audit \
		--constraint requirements/run.txt --constraint requirements/dev.txt --output-file requirements/audit.txt pyproject.toml
	printf '%s\n' $(SPARK_PINS) | CUSTOM_COMPILE_COMMAND='make lock' $(COMPILE) --extra audit --extra spark \
		--constraint requirements/dev.txt --constraint requirements/audit.txt --constraint requirements/kubernetes.txt \
		--output-file requirements/spark.txt pyproject.toml -
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["docs"], sep="\n")' \
		| CUSTOM_COMPILE_COMMAND='make lock' $(COMPILE) \
		--constraint requirements/dev.txt --constraint requirements/spark.txt --output-file requirements/docs.txt -
	for lock in suites/faststream suites/quixstreams requirements/kubernetes; do CUSTOM_COMPILE_COMMAND='make lock' \
		$(COMPILE) --output-file tests/$$lock.txt tests/$$lock.in || exit 1; done

# See pyproject.toml; pyspark 4.0.0 is older than pandas 3.
SPARK_PINS := 'pyspark==4.0.0' 'pandas<3'

# UPGRADE= keeps the locked versions and adds missing packages.
UPGRADE ?= --upgrade

# The locks have names, versions and hashes only: each machine chooses its own package source.
COMPILE = build/lock/bin/pip-compile --quiet $(UPGRADE) --no-config --generate-hashes --strip-extras --allow-unsafe \
	--no-emit-options --no-emit-index-url --no-emit-trusted-host --no-emit-find-links

.PHONY: clean
clean: ## remove all made files except ./data
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- The virtual environment. A stamp that is younger than its lock means: installed.

.venv/bin/python:
	@test -n '$(PYTHON)' || { echo 'make: no Python 3.11 or later with a venv module is found; install it (Debian: apt-get install python3 python3-venv), or name it: make install PYTHON=/path/to/python3' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo 'make: $(PYTHON) has no venv module; install it (Debian: apt-get install python3-venv)' >&2; exit 1; }
	@echo 'making .venv with $(PYTHON)'
	@$(PYTHON) -m venv .venv

# The lock has the build backend too, so that pip fetches nothing to build this project.
.venv/.run: requirements/run.txt pyproject.toml | .venv/bin/python
	@echo 'installing into .venv: requirements/run.txt and this project'
	$(INSTALL) requirements/run.txt --only-binary :all:
	@$(BIN)/python -m pip --disable-pip-version-check --no-input install --quiet --no-deps --no-build-isolation --editable .
	@# With PYTHONDONTWRITEBYTECODE set, every start would compile all modules again.
	@$(BIN)/python -m compileall -q coordinator protocol schemas
	@touch $@

# The extra `etcd`: a client for the store of a cluster.
.venv/.etcd: requirements/etcd.txt .venv/.run
	@echo 'installing into .venv: requirements/etcd.txt, for `tenure serve --store etcd://...`'
	$(INSTALL) requirements/etcd.txt --only-binary :all:
	@touch $@

# The extra `kubernetes`: a client for its API server.
.venv/.kubernetes: requirements/kubernetes.txt .venv/.run
	@echo 'installing into .venv: requirements/kubernetes.txt, for `tenure seats`'
	$(INSTALL) requirements/kubernetes.txt --only-binary :all:
	@touch $@

.venv/.dev: requirements/dev.txt .venv/.etcd .venv/.kubernetes
	@echo 'installing into .venv: requirements/dev.txt, for tests and the demo'
	$(INSTALL) requirements/dev.txt --no-build-isolation --use-pep517
	@touch $@

# The extra `audit`: tables in memory and on disk.
.venv/.audit: requirements/audit.txt .venv/.dev
	@echo 'installing into .venv: requirements/audit.txt, for `tenure audit`'
	$(INSTALL) requirements/audit.txt --no-build-isolation --use-pep517
	@touch $@

# The extra `spark`: half a gigabyte.
.venv/.spark: requirements/spark.txt .venv/.audit
	@echo 'installing into .venv: requirements/spark.txt, for `tenure audit --spark`'
	$(INSTALL) requirements/spark.txt --no-build-isolation --use-pep517
	@touch $@

.venv/.docs: requirements/docs.txt | .venv/bin/python
	@echo 'installing into .venv: requirements/docs.txt, for `make docs`'
	$(INSTALL) requirements/docs.txt --only-binary :all:
	@touch $@
