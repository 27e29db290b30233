# Two commands matter: `make serve` and `make test`. Both do all their own set-up.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
# Start-up is half as long with compiled sources, whatever the environment says about writing them.
COMPILE := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m compileall -q src
PYTEST_ARGS ?=
LOAD_ARGS ?=
PEERS_ARGS ?=

.PHONY: help serve test check docs crash long-chat canaries schemathesis lifecycle fuzz mutants rotation format bench bench-web bench-knowledge bench-peers load web mcp-servers lock clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

serve: $(VENV)/.serve ## Set up what is missing and serve on PARLEY_HOST:PARLEY_PORT
	@exec $(BIN)/parley serve

# Three runs: the browser's driver and the egress witness each need an event loop of their own kind.
# All three are played whatever the first finds, so that one run names every fault.
test: $(VENV)/.dev ## Set up what is missing and run every test
	@failed=0; \
	$(BIN)/pytest -n 2 --dist loadfile --ignore tests/web --ignore tests/egress $(PYTEST_ARGS) || failed=1; \
	$(BIN)/pytest -n 2 --dist loadfile tests/egress $(PYTEST_ARGS) || failed=1; \
	$(BIN)/pytest -n 2 --dist loadfile tests/web $(PYTEST_ARGS) || failed=1; \
	exit $$failed

check: $(VENV)/.dev ## Lint, types, import contracts, sizes
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/pytest -q -p no:cacheprovider tests/architecture

format: $(VENV)/.dev ## Rewrite the sources in the house format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

crash: $(VENV)/.dev ## Kill a server 1,040 times and play every race 200 times
	@PARLEY_CRASH_SEEDS=12 PARLEY_BILLED_KILLS=40 PARLEY_TRIALS=200 $(BIN)/pytest -n 2 --timeout 600 tests/durability/test_crashes.py tests/durability/test_billed.py tests/contract/test_races.py

long-chat: $(VENV)/.dev ## Play a chat of 2,000 messages, every turn of it, on both stores
	@PARLEY_LONG_TURNS=1000 $(BIN)/pytest -n 2 --timeout 1200 tests/contract/test_two_thousand_messages.py

mcp-servers: $(VENV)/.dev ## Install published MCP servers that the tests then talk to (needs npm)
	@npm install --silent --no-audit --no-fund --prefix .mcp-servers $$(cat requirements/mcp-servers.npm)
	@$(UV) venv -q --clear .mcp-servers/python --python $(BIN)/python
	@$(UV) pip install -q --python .mcp-servers/python/bin/python -r requirements/mcp-servers.txt

canaries: $(VENV)/.dev ## Drive every action with canaries for secrets and poison for arguments
	@PARLEY_CANARIES=all $(BIN)/pytest -n 2 --timeout 900 tests/trust

schemathesis: $(VENV)/.dev ## Ask every route 100 times what fits its schema and what does not, on both stores
	@PARLEY_SCHEMA_EXAMPLES=100 $(BIN)/pytest --timeout 7200 tests/contract/test_own_openapi.py

lifecycle: $(VENV)/.dev ## Play 200 random orders of start, answer, cancel, kill, restart and the rest, on both stores
	@PARLEY_LIFECYCLE_EXAMPLES=200 PARLEY_LIFECYCLE_STEPS=40 $(BIN)/pytest --timeout 7200 tests/durability/test_lifecycle.py

fuzz: $(VENV)/.dev ## Spoil 5,000 model streams of each wire format, and 1,000 requests of each kind
	@PARLEY_FUZZ_EXAMPLES=5000 $(BIN)/pytest --timeout 3600 tests/llm/test_fuzz.py
	@PARLEY_FUZZ_EXAMPLES=1000 $(BIN)/pytest --timeout 3600 tests/contract/test_fuzzed_requests.py

mutants: $(VENV)/.dev ## Break ledger, gates, egress guard, vault and runs in small ways, and count what the tests notice
	@$(BIN)/python -m tests.mutants $(PARTS)

rotation: $(VENV)/.dev ## Rotate the master key over 10,000 rows, killed 20 times
	@PARLEY_ROTATION=full $(BIN)/pytest -n 2 --timeout 900 tests/cli/test_rotation.py

bench: $(VENV)/.dev ## Measure CPU and memory per turn against the floor and LangChain
	@$(BIN)/python -m bench

bench-web: $(VENV)/.dev ## Measure what the web app costs a browser, and hold its budgets
	@$(BIN)/python -m bench.web

bench-knowledge: $(VENV)/.dev ## Measure how well and how fast documents are found
	@$(BIN)/python -m bench.knowledge

bench-peers: $(VENV)/.dev ## Measure Parley beside LangChain and pydantic-ai: cost, times, store, crashes
	@$(BIN)/python -m bench.peers $(PEERS_ARGS)

load: $(VENV)/.dev ## Play 20 turns a second for 10 minutes on PostgreSQL; none may fail, and memory stays flat
	@$(BIN)/python -m bench.load $(LOAD_ARGS)

docs: $(VENV)/.dev ## Build the documentation into dist/docs
	@$(BIN)/mkdocs build --strict --quiet

web: ## Build the web app anew from web/ (needs node)
	@cd web && npm ci --no-audit --no-fund && npm run build

lock: $(UV) ## Pin every dependency anew
	@$(UV) pip compile pyproject.toml --universal --python-version 3.12 --generate-hashes --no-header --no-annotate -q -o requirements/serve.lock
	@$(UV) pip compile pyproject.toml --group dev --universal --python-version 3.12 --generate-hashes --no-header --no-annotate -q -o requirements/dev.lock
	@for peer in langchain pydantic-ai; do \
	$(UV) pip compile requirements/peers-$$peer.in --universal --python-version 3.12 --generate-hashes --no-header --no-annotate -q -o requirements/peers-$$peer.lock || exit 1; done
	@echo hatchling | $(UV) pip compile - -c requirements/dev.lock --universal --python-version 3.12 --generate-hashes --no-header --no-annotate -q -o requirements/build.lock

clean: ## Remove the environment and caches
	@rm -rf $(VENV) .pytest_cache .ruff_cache

$(UV):
	@python=$$(./.ci/find-python) || exit 1; \
	echo "Making the environment with $$python"; \
	"$$python" -m venv $(VENV) && $(BIN)/python -m pip install -q --disable-pip-version-check uv==0.13.9

$(VENV)/.serve: $(UV) requirements/serve.lock pyproject.toml
	@echo "Installing Parley and the drivers its integrations need (once; about a minute)"
	@if [ -e $(VENV)/.dev ]; then lock=dev; else lock=serve; fi; \
	$(UV) pip sync -q --compile-bytecode --python $(BIN)/python requirements/$$lock.lock
	@$(UV) pip install -q --python $(BIN)/python uv==0.13.9
	@$(UV) pip install -q --python $(BIN)/python --no-deps -e .
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: $(UV) requirements/dev.lock pyproject.toml
	@echo "Installing Parley and its test tools (once; about a minute)"
	@$(UV) pip sync -q --compile-bytecode --python $(BIN)/python requirements/dev.lock
	@$(UV) pip install -q --python $(BIN)/python uv==0.13.9
	@$(UV) pip install -q --python $(BIN)/python --no-deps -e .
	@$(COMPILE)
	@touch $@ $(VENV)/.serve
