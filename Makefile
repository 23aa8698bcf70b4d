# Every target makes the virtual environment it needs; nothing outside this folder is changed.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
# Test files run at a time on two cores; most of a test's time is waiting for a JVM or a broker.
JOBS ?= 3
BIN := $(VENV)/bin
# Every run is in an order of its own; SEED=… repeats one. The torture takes its kills from it too.
ifndef SEED
SEED := $(shell od -An -N2 -tu2 /dev/urandom | tr -d ' ')
endif
# Which share of the torture runs here: PART=3/8 is the third of eight, and the eight together are all of it.
PART ?= 1/1
# AGAIN=1 runs what failed in make test once more, alone: servers share two cores there. What fails twice fails.
AGAIN ?=
PYTEST = $(BIN)/python -m pytest -q --randomly-seed=$(SEED)
# A file's tests share their servers; the files begin in the order that tests/conftest.py gives them.
SPREAD = -n $(JOBS) --dist loadfile --no-loadscope-reorder
# Tests start hundreds of processes, and each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE
STAMP := $(VENV)/.poundlock-stamp

.DEFAULT_GOAL := help
.PHONY: help venv demo unit engine services crash test torture compat lint types format bench bench-flink bench-peers docs lock clean seed

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock requirements-jre.lock pyproject.toml tools/bootstrap.py
	@test -n "$(PYTHON)" || { echo "No Python of 3.11 or later was found."; \
		echo "Next: install one, then type: make PYTHON=/path/to/python3 $(MAKECMDGOALS)"; exit 2; } >&2
	@$(PYTHON) tools/bootstrap.py --venv $(VENV)
	@touch $@

venv: $(STAMP) ## make .venv from the lock file

demo: $(STAMP) ## run the reference job: real Kafka, two kills, an audit (under 5 minutes)
	@$(BIN)/poundlock demo

seed:
	@echo "random order: SEED=$(SEED)"

# They compute more than they wait, so a third worker would only load them once more.
unit: JOBS = 2
unit: $(STAMP) seed ## run the tests that need no JVM and no server (about a minute)
	$(PYTEST) $(SPREAD) --hypothesis-profile=quick -m "not (torture or engine or services or crash or slow)" tests/unit tests/conformance tests/protocol

engine: $(STAMP) seed ## run jobs on a real Spark
	$(PYTEST) $(SPREAD) -m "engine and not (torture or services or crash)"

services: $(STAMP) seed ## run the tests on real brokers, databases and stores
	$(PYTEST) $(SPREAD) -m "services and not (torture or crash)"

crash: $(STAMP) seed ## kill processes at every failpoint, audit what they left
	$(PYTEST) $(SPREAD) -m "crash and not torture"

test: $(STAMP) seed ## run every test, real Kafka broker and crashes included (torture excluded)
	@$(BIN)/poundlock warm || echo "starting without class archives: the tests take longer"
	$(PYTEST) $(SPREAD) || { test $$? -eq 1 && test -n "$(AGAIN)" \
		&& echo "once more, alone, what failed beside the others:" && $(PYTEST) --last-failed --last-failed-no-failures none; }

lint: $(STAMP) ## check format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

types: $(STAMP) ## check types only
	$(BIN)/mypy

format: $(STAMP) ## format the code and sort imports
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: $(STAMP) ## measure against Spark's file sink, write build/bench/report.json
	$(BIN)/python -m benchmarks

bench-flink: $(STAMP) ## install Flink and PyFlink for make bench to measure against
	$(BIN)/python -m benchmarks.flink

bench-peers: $(STAMP) ## install Bytewax, Quix Streams, Pathway and PyFlink, and measure against them
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks peers

torture: $(STAMP) seed ## kill the job at 50 or more random moments, audit the files; S3 on MinIO (PART=3/8, SEED=7)
	POUNDLOCK_TORTURE_SEED=$${POUNDLOCK_TORTURE_SEED:-$(SEED)} $(PYTEST) -o timeout=14400 -o faulthandler_timeout=14300 \
		-m torture --part=$(PART) tests

compat: $(STAMP) ## run a small test list on every Spark that is supported, each in an environment under build/compat
	$(BIN)/python tools/compat.py $(if $(COMPAT_PYTHON),--python $(COMPAT_PYTHON))

docs: $(STAMP) ## run the code of README and docs, check their links, build the site into build/site
	$(BIN)/python -m pytest -q tests/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lock: $(STAMP) ## resolve requirements.lock anew
	$(BIN)/python -m uv pip compile --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url \
		--upgrade --extra dev --constraints tools/lock-constraints.txt pyproject.toml -o requirements.lock

clean: ## remove the environment, builds and caches of this folder
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
