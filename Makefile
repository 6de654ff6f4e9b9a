# Each target makes what it needs, so a fresh machine with Python and make is enough.

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
# Twice as many processes as processors: many tests wait for processes that they have started.
PYTEST = $(VENV)/bin/python -m pytest --numprocesses=$$(($$(getconf _NPROCESSORS_ONLN) * 2)) --dist=worksteal \
	--durations=0 --durations-min=2
ON_SQLITE = env -u DATABASE_URL HIPQ_TEST_DATABASE=sqlite $(PYTEST)
ON_POSTGRES = HIPQ_TEST_DATABASE=postgres $(PYTEST)
BENCH_ARGS ?=
SOAK_ARGS ?=
CHAOS_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help venv demo demo-orders demo-shards demo-flow test test-sqlite test-postgres test-orm test-tables \
	test-all lint docs check messages bench bench-states soak chaos clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | \
		while IFS='|' read -r target text; do printf '  %-14s %s\n' "$$target" "$$text"; done

venv: $(VENV)/.lint ## Make the virtual environment .venv, with all that developers need

demo: $(VENV)/.example ## Run the example project: a shop, a worker and a bank that answers later
	@$(VENV)/bin/python manage.py demo

demo-orders: $(VENV)/.example $(VENV)/.kafka ## Run the orders example: requests by HTTP, answers through Kafka
	@$(VENV)/bin/python manage.py demo_orders

demo-shards: $(VENV)/.test ## Run one queue over two databases: a limit of both, and one that is stopped and started
	@$(VENV)/bin/python manage.py demo_shards

demo-flow: $(VENV)/.example ## Run the flows of the example: orders, readings and Fibonacci's numbers, with a killed worker
	@$(VENV)/bin/python manage.py demo_flow

test: test-sqlite test-postgres ## Run the commit suite, first on SQLite; it lists what takes more than 2 s

test-sqlite: $(VENV)/.test ## Run the commit suite on SQLite: all tests but the nightly ones
	$(ON_SQLITE) $(PYTEST_ARGS)

test-postgres: $(VENV)/.test ## Run the tests of conformance on PostgreSQL: its own, or DATABASE_URL
	$(ON_POSTGRES) $(PYTEST_ARGS)

test-orm: $(VENV)/.test ## Run those of engines, scheduler and answers on PostgreSQL with ENGINE "orm"
	HIPQ_TEST_ENGINE=orm $(ON_POSTGRES) $(addprefix tests/integration/,engines scheduler answers) $(PYTEST_ARGS)

test-tables: $(VENV)/.test ## Run the same on PostgreSQL with a table of its own for every second queue
	HIPQ_TEST_TABLES=1 $(ON_POSTGRES) --ignore-glob='*plans.py' $(addprefix tests/integration/,engines scheduler answers) $(PYTEST_ARGS)

test-all: $(VENV)/.test ## Run all tests on both, in a quarter of an hour: each night, and before a release
	$(ON_SQLITE) --all $(PYTEST_ARGS)
	$(ON_POSTGRES) --all --ignore=tests/unit --ignore=tests/typing --ignore=tests/browser $(PYTEST_ARGS)
	HIPQ_TEST_TABLES=1 $(ON_POSTGRES) --ignore-glob='*plans.py' $(addprefix tests/integration/,engines scheduler answers) $(PYTEST_ARGS)

lint: $(VENV)/.lint ## Check style, types, direction of imports and missing migrations
	$(VENV)/bin/python -m ruff check .
	$(VENV)/bin/python -m ruff format --check .
	$(VENV)/bin/python -m mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python -m django makemigrations --check --dry-run --settings=tests.settings

docs: $(VENV)/.docs ## Build the site of the documents into build/docs; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict --quiet
	@echo "Built build/docs/index.html"

check: lint test ## Everything a commit must pass

messages: $(VENV)/.test ## Bring the translations up to date with the code, and compile them: needs gettext
	cd hipq_django && PYTHONPATH=.. $(abspath $(VENV))/bin/python -m django makemessages \
		--locale=de --locale=fr --add-location=file --no-obsolete --settings=tests.settings
	cd hipq_django && PYTHONPATH=.. $(abspath $(VENV))/bin/python -m django compilemessages \
		--settings=tests.settings

bench: $(VENV)/.test ## Measure hipq_django, its peers and the floors: BENCH_ARGS='--quick', '--resume'
	@$(VENV)/bin/python -m benchmarks $(BENCH_ARGS)

bench-states: $(VENV)/.test ## Measure this state beside an earlier one: COMMIT=… BENCH_ARGS='--only W1'
	@$(VENV)/bin/python -m benchmarks.states $(COMMIT) $(BENCH_ARGS)

soak: $(VENV)/.test ## Run a steady load for three quarters of an hour: SOAK_ARGS='--minutes 5'
	@$(VENV)/bin/python -m benchmarks.soak $(SOAK_ARGS)

chaos: $(VENV)/.test ## Put workers under load and faults, an hour and a half: CHAOS_ARGS='--only outage'
	@$(VENV)/bin/python -m chaos $(CHAOS_ARGS)

clean: ## Remove the virtual environments and everything that was built
	rm -rf $(VENV) .bench .chaos build dist *.egg-info .coverage .coverage.* htmlcov .hypothesis \
		.import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each extra of pyproject.toml, so that the second run is quick.
$(VENV)/.%: pyproject.toml | $(VENV)/bin/pip
	@echo "Installing hipq_django and its extra '$*' into $(VENV) …"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

$(VENV)/bin/pip:
	@command -v $(PYTHON) >/dev/null || \
		{ echo "There is no $(PYTHON). On Debian: apt install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
		"hipq_django needs Python 3.11 or newer, and $(PYTHON) is %d.%d. " \
		"Name a newer one: make PYTHON=python3.11" % sys.version_info[:2])'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments. On Debian: apt install python3-venv"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
