# Every target sets up .venv by itself; a second time that takes a moment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CLIENTS := .venv-clients
AGENT_CLIENTS := .venv-agent-clients

# Where it is set, as in many containers, every process would compile all that it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test browser examples pictures docs wheel test-attacks test-realapps test-webapps test-clients test-gpu
.PHONY: test-docs fuzz soak edge lint clean learn-small grounding judge-kills annotate-kills fleet-kills
.PHONY: replica-kills replica-throughput rl-kills

help: ## what can be made
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

run: $(STAMP) browser ## the bundled policy solves tasks in a real Chromium and leaves a page that shows every step
	@$(BIN)/holotron demo

# Plugins of other packages would be imported, with their assertions rewritten, by every process of the tests.
PYTEST := PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(BIN)/python -m pytest -p xdist.plugin

test: $(STAMP) browser ## all tests that need no GPU, and the import contract
	$(BIN)/lint-imports --no-cache
	$(PYTEST) -n auto --dist worksteal

browser: $(STAMP) ## a Chromium, if this machine has none
	@$(BIN)/python -m holotron.env.browser.install

test-attacks: $(STAMP) ## all attacks on the safety policy in both Chromiums; the result goes to benchmarks/results
	$(BIN)/python -m tests.attacks --out benchmarks/results/attacks.json

# The applications have an environment of their own: what they need must not change ours.
REALAPPS := .venv-realapps
test-realapps: $(STAMP) browser $(REALAPPS)/.installed ## Django's admin and JupyterLab driven end to end; the result goes to benchmarks/results
	$(BIN)/python -m tests.realapps --python $(REALAPPS)/bin/python --out benchmarks/results/realapps.json

test-webapps: $(STAMP) browser ## WebArena-Infinity's applications in ROOT, driven end to end; the result goes to benchmarks/results
	$(BIN)/python -m tests.webapps --root $(ROOT) --out benchmarks/results/webapps.json

test-gpu: $(STAMP) ## the tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu

test-clients: $(CLIENTS)/.installed $(AGENT_CLIENTS)/.installed ## the client libraries, in two environments on top of this one
	CLIENTS_RESULT=benchmarks/results/clients.json $(CLIENTS)/bin/python -m pytest tests/clients -n0
	CLIENTS_RESULT=benchmarks/results/agent-clients.json $(AGENT_CLIENTS)/bin/python -m pytest tests/clients -n0

edge: $(STAMP) ## hostile bodies, screenshots and clients that leave; the result goes to benchmarks/results
	$(BIN)/python -m tests.server.edge --out benchmarks/results/edge.json

fuzz: $(STAMP) ## 20,000 generated and broken requests to every operation; the result goes to benchmarks/results
	$(BIN)/python -m tests.server.campaign --out benchmarks/results/fuzz.json

soak: $(STAMP) ## 200 clients against a server for half an hour; the result goes to benchmarks/results
	$(BIN)/python -m tests.server.soak --think 10 --out benchmarks/results/soak-200.json

learn-small: $(STAMP) browser ## online RL learns a bandit and a page, and is killed ten times; the result goes to benchmarks/results
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.train.rl --out benchmarks/results/grpo-small.json

grounding: $(STAMP) browser ## the bundled policy on generated pages in the layout of every grounding benchmark; the result goes to benchmarks/results
	$(BIN)/python -m tests.eval --out benchmarks/results/nano/grounding-layouts.json

judge-kills: $(STAMP) browser ## 643 tasks played and judged by a command that is killed five times; the result goes to benchmarks/results
	$(BIN)/python -m tests.eval.navigation_kills --out benchmarks/results/navigation-kills.json

replica-kills: $(STAMP) ## 200 sessions on replicas of a Ray cluster that are killed for ten minutes; the result goes to benchmarks/results
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.scale.chaos --out benchmarks/results/replica-kills.json

replica-throughput: $(STAMP) ## what the router in front of replicas carries; the result goes to benchmarks/results
	$(BIN)/python -m tests.scale.throughput --out benchmarks/results/replica-throughput.json

annotate-kills: $(STAMP) browser ## 2,000 screens labelled by a command that is killed three times; the result goes to benchmarks/results
	$(BIN)/python -m tests.eval.annotate_kills --out benchmarks/results/annotate-kills.json

fleet-kills: $(STAMP) browser ## 300 MiniWoB++ episodes on a Ray cluster whose hosts and machines are killed; the result goes to benchmarks/results
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	$(BIN)/python -m tests.scale.fleet_kills --out benchmarks/results/fleet-kills.json

rl-kills: $(STAMP) browser ## online RL on a Ray cluster whose hosts, machines and trainer are killed; the result goes to benchmarks/results
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.scale.rl_kills --out benchmarks/results/rl-kills.json

examples: $(STAMP) browser ## all programs of examples/, against a scripted model
	HOLOTRON_ALL_EXAMPLES=1 $(BIN)/python -m pytest tests/test_examples.py

pictures: $(STAMP) browser ## the pictures of README and docs, anew from a real run of the bundled policy
	$(BIN)/python docs/pictures.py

docs: $(STAMP) ## the documentation as a site, in site/
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test-docs: $(STAMP) browser ## every shell block of README and docs, with the bundled weights; the result goes to benchmarks/results
	$(BIN)/python -m tests.docs_run --out benchmarks/results/docs.json
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	$(BIN)/python -m tests.scale.docs_page --out benchmarks/results/docs-scale.json

wheel: $(STAMP) ## the package as a wheel, in dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

lint: $(STAMP) ## ruff, mypy and the import contract
	$(BIN)/ruff check src tests examples docs
	$(BIN)/ruff format --check src tests examples docs
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) $(CLIENTS) $(REALAPPS) .pytest_cache .mypy_cache .ruff_cache .hypothesis build src/*.egg-info

# On Debian and Ubuntu the venv module is a package of its own.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Holotron needs Python 3.11 or newer; set PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "venv is missing: apt-get install python3-venv" >&2; exit 1; }

$(STAMP): $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "setting up $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(REALAPPS)/.installed: pyproject.toml
	@$(PYTHON) -m venv $(REALAPPS)
	@$(REALAPPS)/bin/python -m pip install --quiet --disable-pip-version-check $$($(BIN)/python -c "import tomllib; \
		print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['realapps'])")
	@touch $@

# What it does not bring itself it takes from the environment below it.
.venv-%/.installed: $(STAMP)
	@$(BIN)/python -m venv $(@D)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	@touch $@
