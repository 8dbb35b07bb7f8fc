# Every target makes what it needs in .venv: Python 3.11 or newer and make are all a fresh machine must have.

VENV := .venv
BIN := $(VENV)/bin
DEMO := demo-lakehouse
JOBS ?= 2
UV_VERSION := 0.13.9

# The first Python that is new enough and can make an environment (a shim that does not run is passed over).
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3 python; do \
	$$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)

JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
JAVA_MAJOR := $(shell $(JAVA) -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')
JAVA_FITS := $(filter 17 21,$(JAVA_MAJOR))
DEV := $(if $(JAVA_FITS),dev-spark,dev)

PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo ui test test-long bench bench-small lint lock clean jars

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F '|' '{printf "make %-12s %s\n", $$1, $$2}'

demo: $(VENV)/.base ## build a sick lakehouse in demo-lakehouse/ and see it get well
	@$(BIN)/lakehouse-maintenance demo --into $(DEMO)

ui: $(VENV)/.ui $(DEMO)/lakehouse.yaml ## open Dagster on the demo lakehouse (Ctrl-C ends it)
	@mkdir -p $(DEMO)/.dagster
	@DAGSTER_HOME="$(CURDIR)/$(DEMO)/.dagster" LAKEHOUSE_MAINTENANCE_CONFIG="$(CURDIR)/$(DEMO)/lakehouse.yaml" \
		$(BIN)/dagster dev -w workspace.yaml

test: $(VENV)/.$(DEV) jars ## every test that this machine can run, but the long ones; writes build/junit.xml
	@$(PYTEST) --junitxml=build/junit.xml

test-long: $(VENV)/.$(DEV) jars ## long tests, and properties with many more examples; writes build/junit-long.xml
	@HYPOTHESIS_PROFILE=long $(PYTEST) -m "long or hypothesis" --timeout 1800 --junitxml=build/junit-long.xml

bench: $(VENV)/.$(DEV) ## side-by-side benchmarks
	@$(BIN)/python -m benchmarks

bench-small: $(VENV)/.$(DEV) ## the same on small data, as a check that they run
	@$(BIN)/python -m benchmarks --small

lint: $(VENV)/.$(DEV) ## style, types and the layers of the packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --cache-dir build/import-linter

# The largest lock is resolved first and binds the others, so that a smaller environment grows without reinstalling.
lock: build/uv/bin/uv ## write requirements/*.txt from pyproject.toml, known versions kept (newest: UPGRADE=--upgrade)
	@for lock in dev-spark dev ui base; do \
		case $$lock in dev-spark) extras="--extra dev --extra spark";; base) extras="";; *) extras="--extra $$lock";; esac; \
		case $$lock in dev-spark) bound="";; *) bound="--constraint requirements/dev-spark.txt";; esac; \
		echo "Resolving requirements/$$lock.txt"; \
		build/uv/bin/uv pip compile pyproject.toml $$extras --group build $$bound --universal --python-version 3.11 \
			--generate-hashes --no-emit-index-url --no-header --no-strip-extras --quiet $(UPGRADE) \
			--output-file requirements/$$lock.txt || exit 1; \
	done

clean: ## remove what the other targets wrote, except .venv
	rm -rf build dist .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis benchmarks/work $(DEMO)
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

jars:
ifneq ($(JAVA_FITS),)
	@if command -v mvn >/dev/null; then for part in spark iceberg_rest; do \
		$(BIN)/python -m lakehouse_maintenance_tests.services.$$part.jars >/dev/null || exit 1; done; \
	else echo "No Maven here: without the jars in build/, tests that need Spark or Iceberg's REST catalog are skipped"; fi
else
	@echo "No Java 17 or 21 here: tests that need Spark or Iceberg's REST catalog are skipped"
endif

$(DEMO)/lakehouse.yaml:
	@$(BIN)/lakehouse-maintenance demo --into $(DEMO)

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "Python 3.11 or newer with venv is needed, and none was found on PATH; name one: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; \
		exit 1; \
	fi
	@"$(PYTHON)" -c 'import sys; sys.exit(f"Python 3.11 or newer is needed; {sys.executable} is {sys.version.split()[0]}" if sys.version_info < (3, 11) else 0)'
	@echo "Making $(VENV) with $(PYTHON)"
	@"$(PYTHON)" -m venv $(VENV)

# One stamp a lock. A lock holds all of the smaller ones in the same versions, so installing it makes their stamps too.
# The product itself is installed as a link to this folder, by the build tools that each lock holds.
$(VENV)/.%: requirements/%.txt pyproject.toml | $(BIN)/python
	@echo "Installing requirements/$*.txt into $(VENV) (once, a minute or a few)"
	@$(PIP) install --require-hashes --no-deps -r requirements/$*.txt
	@$(PIP) install --no-deps --no-build-isolation --no-index -e .
	@for lock in base ui dev dev-spark; do touch $(VENV)/.$$lock; if [ $$lock = $* ]; then break; fi; done

build/uv/bin/uv: | $(BIN)/python
	@echo "Installing uv $(UV_VERSION) into build/uv"
	@$(BIN)/python -m venv build/uv
	@build/uv/bin/python -m pip --disable-pip-version-check --quiet install uv==$(UV_VERSION)
