# Needs python3 (3.11 or newer, with venv), gcc or clang, and make. CMake, Ninja and the rest come through pip into .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BUILD ?= build
VENV ?= .venv
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PYTEST_ARGS ?=
OPINFO_ARGS ?=
PROGRAMS_ARGS ?= --count 5000
TPU_ARGS ?=
CYCLES_ARGS ?=
BENCH_ARGS ?=
# A folder with env.sh and an environment that has the peer, for bench.
PEER_ENV ?=

BIN := $(abspath $(VENV))/bin
PY := $(BIN)/python
PIP := $(PY) -m pip --disable-pip-version-check -qq
# The virtual environment's cmake and ninja come first.
export PATH := $(BIN):$(PATH)
CONFIGURE := -DPython_EXECUTABLE=$(PY)
DEPS := $(VENV)/.deps
TPU := $(VENV)/.tpu
INSTALLED := $(VENV)/.installed
PLUGINS := TT_TEST_FAKE_PLUGIN=$(abspath $(BUILD))/release/lib/fake_pjrt.so \
           TT_TEST_COUNT_PLUGIN=$(abspath $(BUILD))/release/lib/count_pjrt.so

.PHONY: all setup setup-hf setup-tpu setup-jax build test test-c test-asan test-tsan test-py test-tpu test-wheel opinfo \
        programs check-tpu tpu-cycles demo bench wheel lint format clean distclean help

all: build

help:
	@echo "make demo      train a small GPT on device \"tpu\""
	@echo "make test      everything: C tests under the sanitizers, then the Python tests"
	@echo "make build     the library, the shim, and an editable install in $(VENV)"
	@echo "make test-c | test-py | test-wheel | wheel | lint | format | clean | distclean"
	@echo "make opinfo    every operator, module and optimizer against the CPU, with a table; goes on where it stopped"
	@echo "make programs  random programs of views and writes against the CPU, with new seeds (PROGRAMS_ARGS)"
	@echo "make bench     what operators, training steps, decoding and starting cost, with bars (BENCH_ARGS=--quick)"
	@echo "make check-tpu every rule with the compiler of real TPUs (no TPU needed); goes on where it stopped (TPU_ARGS)"
	@echo "make tpu-cycles what training steps cost by the TPU compiler's estimate, strict and fused (CYCLES_ARGS)"
	@echo "make setup-hf | setup-tpu | setup-jax    optional packages"

# --- Environment ----------------------------------------------------------------------------------------------------
setup: $(DEPS)

$(DEPS): requirements/torch.txt requirements/plugins.txt requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, PYTHON=... chooses it")'
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PIP) install -r requirements/torch.txt
	$(PIP) install --no-deps --require-hashes -r requirements/plugins.txt
	$(PIP) install -r requirements/torch.txt -r requirements/dev.txt
	touch $@

setup-hf setup-jax: setup-%: $(DEPS)
	$(PIP) install -r requirements/torch.txt -r requirements/$*.txt

# 137 MB. Part of the tests, which compile for TPUs that need not be there.
setup-tpu: $(TPU)

$(TPU): requirements/tpu.txt $(DEPS)
	$(PIP) install -r requirements/torch.txt -r requirements/tpu.txt
	touch $@

# --- Build -----------------------------------------------------------------------------------------------------------
$(BUILD)/%/build.ninja: CMakePresets.json $(DEPS)
	cmake --preset $* -B $(BUILD)/$* $(CONFIGURE)
	touch $@

# The libraries go into torch_tpu/lib, where the editable install finds them.
build: $(BUILD)/release/build.ninja $(INSTALLED)
	cmake --build $(BUILD)/release --parallel $(JOBS)
	@cmake --install $(BUILD)/release --component torch_tpu --prefix . >/dev/null

# Only the metadata and a path: CMake is run by `build`.
$(INSTALLED): pyproject.toml $(DEPS)
	$(PIP) install --no-build-isolation --no-deps --config-settings=wheel.cmake=false --config-settings=editable.mode=inplace -e .
	touch $@

wheel: $(DEPS)
	rm -rf dist
	$(PIP) wheel --no-build-isolation --no-deps --config-settings=cmake.define.TORCHTPU_SHIM=ON -w dist .

# --- Tests -----------------------------------------------------------------------------------------------------------
# Pytest comes last: its summary closes the output.
test: test-c
	@$(MAKE) --no-print-directory test-tpu
	@$(MAKE) --no-print-directory test-py

test-c: test-asan test-tsan

test-asan test-tsan: test-%: $(BUILD)/%/build.ninja
	cmake --build $(BUILD)/$* --parallel $(JOBS)
	ctest --test-dir $(BUILD)/$* --output-on-failure --parallel $(JOBS)

test-py: build
	@$(PLUGINS) $(PY) -m pytest $(PYTEST_ARGS)

# Every rule with the compiler of real TPUs; goes on where it stopped. Results: build/tpu, docs/reference/tpu.md.
check-tpu: build $(TPU)
	@$(PY) tests/tpu/check.py --report $(TPU_ARGS)

# Of the same, what three minutes allow, other rules each day. Where libtpu can't be had, it says so.
test-tpu: build
	@$(MAKE) --no-print-directory $(TPU) || echo "test-tpu: libtpu could not be installed"
	@$(PY) tests/tpu/check.py --slice 180

# Strict, fused and compiled by the TPU compiler's estimate. Results: build/bench/tpu_cycles.json, docs/reference/tpu_cycles.md.
tpu-cycles: build
	@$(MAKE) --no-print-directory $(TPU) || echo "tpu-cycles: libtpu could not be installed"
	@$(PY) bench/tpu_cycles/run.py --report $(CYCLES_ARGS)

# PyTorch's databases of operators, modules and optimizers against the CPU: all of it; `test-py` has a part. Goes on where
# it stopped. Results: build/opinfo; the table: docs/reference/operators.md. OPINFO_ARGS=--default-options runs it with
# the compiler's own options, --mode debug with each operator waited for: results of their own, no table.
opinfo: build
	@$(PY) tests/opinfo/run.py --table $(OPINFO_ARGS)

# Random programs of views and writes with new seeds (tests/python/programs.py); results: build/programs.
programs: build
	@$(PY) tests/python/programs.py $(PROGRAMS_ARGS)

# --- The rest --------------------------------------------------------------------------------------------------------
# The wheel by itself, first with its own shim, then with one that is built at import.
test-wheel: wheel
	rm -rf $(BUILD)/unpacked
	$(PIP) install --no-deps --target $(BUILD)/unpacked dist/torchtpu-*.whl
	$(PY) tools/check_wheel.py $(BUILD)/unpacked
	$(PY) tools/check_wheel.py $(BUILD)/unpacked --build-shim

demo: build
	@$(PY) examples/train_gpt.py

# Against plain CPU PyTorch, against the peer with PEER_ENV=DIR, against JAX with BENCH_ARGS=--jax-env (make setup-jax).
# BENCH_ARGS=--quick takes a few minutes. Results: build/bench; what they mean: docs/reference/benchmarks.md.
bench: build
	@plugin=$$($(PY) -c 'from torch_tpu import _plugins; print(_plugins.candidates()[1])') && \
	for program in $(BUILD)/release/bin/*_bench; do echo "== $$program"; $$program $$plugin || exit; done
	@$(PY) bench/run.py $(if $(PEER_ENV),--peer-env $(PEER_ENV)) $(BENCH_ARGS)

C_FILES = $(shell find src include tests -name '*.[ch]' -o -name '*.cpp')

lint: $(DEPS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run --Werror $(C_FILES)

format: $(DEPS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(C_FILES)

clean:
	rm -rf $(BUILD) dist torch_tpu/lib torch_tpu/share

distclean: clean
	rm -rf $(VENV)
