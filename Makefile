# `make run` makes a virtual environment, installs the package and runs the main job; `make test` runs every check.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
# What to run; for example: make run ARGS="--model shapes-unet --tasks 64"
ARGS ?=

.PHONY: run test install install-dev clean

run: install
	$(BIN)/t2iprobe run $(ARGS)

test: install-dev
	PATH="$(abspath $(BIN)):$$PATH" scripts/check

install: $(VENV)/installed
install-dev: $(VENV)/installed-dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV)
