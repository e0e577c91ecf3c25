# Every target makes the environment that it needs.
PYTHON ?= python3
VENV ?= .venv
TORCH_CPU ?= torch==2.13.0 torchvision==0.28.0

BIN := $(VENV)/bin
READY := $(VENV)/.ready
OLDEST := $(VENV)-oldest

INTEGRATIONS := $(VENV)-integrations

.PHONY: demo test test-all test-browser web test-integrations test-oldest coverage check docs fuzz bench clean

# Without a GPU, a particular build of PyTorch can be asked for, such as
# TORCH_CPU="torch==2.13.0 torchvision==0.28.0 --index-url https://download.pytorch.org/whl/cpu". A torchvision of
# another version, which timm would bring, would bring its own PyTorch: the build with CUDA, of several GB.
# At each editable installation, setuptools warns of folders that are named like packages.
$(READY): setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi >/dev/null 2>&1; then \
		$(BIN)/python -m pip install --quiet "torch>=2.13"; \
	else \
		$(BIN)/python -m pip install --quiet $(TORCH_CPU); \
	fi
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable ".[cpu,ray,train,dev]"
	touch $(READY)

demo: $(READY)
	$(BIN)/python demo/run.py --out out/demo

# insightface and uniface bring another OpenCV, so they are installed apart from what facerts is developed with.
$(INTEGRATIONS)/.ready: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python -m pip install --quiet --upgrade pip
	PYTHONWARNINGS=ignore $(INTEGRATIONS)/bin/python -m pip install --quiet --editable ".[cpu]" "insightface>=2.1" "uniface>=4.2"
	touch $(INTEGRATIONS)/.ready

# Two processes are dealt whole files, whose tests share what is costly to make, in the order of tests/conftest.py.
DEALT := -n 2 --dist loadfile --no-loadscope-reorder --durations 25 --durations-min 5
# Tests start many processes, which would otherwise compile facerts anew each time.
unexport PYTHONDONTWRITEBYTECODE

# The tests to run after every change, in a few minutes: all but those marked slow.
test: $(READY)
	$(BIN)/python -m pytest $(DEALT) -m "not slow"

# All tests.
test-all: export FACERTS_INTEGRATIONS_PYTHON := $(abspath $(INTEGRATIONS))/bin/python
test-all: $(READY) $(INTEGRATIONS)/.ready
	$(BIN)/python -m pytest $(DEALT)

# What ships in facerts/web/static, built with Node.
web:
	cd web && npm ci --no-audit --no-fund && npm run build

# Only those of pages, which need Chromium; with Node, also of their accessibility (cd web && npm ci).
test-browser: export FACERTS_REQUIRE_BROWSER := 1
test-browser: $(READY)
	$(BIN)/python -m pytest -m browser

# Only those against insightface and uniface.
test-integrations: export FACERTS_INTEGRATIONS_PYTHON := $(abspath $(INTEGRATIONS))/bin/python
test-integrations: $(READY) $(INTEGRATIONS)/.ready
	$(BIN)/python -m pytest -m integrations

# Fast tests of what needs no PyTorch, with the oldest versions that setup.cfg allows; on the oldest Python, best.
$(OLDEST)/.ready: setup.cfg
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet uv
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct \
		--editable ".[cpu,dev]"
	touch $(OLDEST)/.ready

test-oldest: $(OLDEST)/.ready
	$(OLDEST)/bin/python -m pytest $(DEALT) -m "not slow" --ignore=tests/training --ignore=tests/losses --ignore=tests/nn

# Which lines tests reach, as a page in out/coverage; TESTS=tests/serving for a part.
TESTS ?= tests
coverage: $(READY)
	rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run -m pytest $(TESTS); status=$$?; \
	$(BIN)/python -m coverage combine --quiet && $(BIN)/python -m coverage html --quiet -d out/coverage && \
	$(BIN)/python -m coverage report && exit $$status

# Hostile files for every reader; MINUTES=600 goes on for ten hours.
MINUTES ?= 10
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/lint.py

# The site, in out/site: tutorials are run as it is built, and every warning is an error.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The demo's model is the one that evaluation is timed with.
out/demo/demo.onnx: $(READY)
	$(MAKE) demo

bench: $(READY) out/demo/demo.onnx
	$(BIN)/python tools/bench_train.py
	$(BIN)/python tools/bench.py reading
	$(BIN)/python tools/bench.py evaluate out/demo/demo.onnx
	$(BIN)/python tools/bench_scale.py metrics

clean:
	rm -rf $(VENV) $(INTEGRATIONS) $(OLDEST) out build *.egg-info .coverage .coverage.*
