# `make demo` and `make test` need Python 3.11+ and a package index, nothing else.
PYTHON ?= python3
VENV   ?= .venv
PIP    := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
TORCH  := $(shell grep '^torch==' constraints.txt)

.PHONY: demo test lint types check docs package campaign clean

demo: $(VENV)/.demo
	$(VENV)/bin/ssdg demo

test: $(VENV)/.dev lint types check

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(VENV)/bin/zizmor --offline --persona pedantic --quiet .github

types: $(VENV)/.dev
	$(VENV)/bin/mypy

# TESTS=path for a part of them.
check: $(VENV)/.dev
	$(VENV)/bin/pytest -n 2 --dist worksteal $(TESTS)

# The site of README.md and docs/, in build/site. Built anew, so that -W sees the warnings of every page.
docs: $(VENV)/.docs
	rm -rf build/site build/site-cache
	$(VENV)/bin/python -m sphinx -W --keep-going --quiet -c docs/site -d build/site-cache . build/site

# The wheel and the sdist, in dist/, and the wheel tried in clean environments: the tutorial, then one extra of the
# package, a different one every day or EXTRA=name. Needs a package index; not a part of `make test`.
package: $(VENV)/.dev
	$(VENV)/bin/python -m release $(if $(EXTRA),--extra $(EXTRA))

# Kills, faults and hostile inputs; not a part of `make test`, which runs a slice of it. See docs/reliability.md.
MINUTES ?= 60
campaign: $(VENV)/.dev
	$(VENV)/bin/python -m campaign --minutes $(MINUTES)

$(VENV)/.torch: constraints.txt
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH) setuptools
	touch $@

# The package's own build environment must not pull another torch: --no-build-isolation.
$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	$(PIP) --no-build-isolation -e '.[train,demo]'
	touch $@

$(VENV)/.docs: $(VENV)/.torch pyproject.toml
	$(PIP) --no-build-isolation -e '.[train,docs]'
	touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml
	$(PIP) --no-build-isolation -e '.[train,demo,export,figures,hf,onnx,parquet,pretrained,ray,tensorboard,web,dev]'
	touch $@ $(VENV)/.demo $(VENV)/.docs

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
