# The most useful commands. Tests run in release mode, so that the dependencies are built once for all of them.
.PHONY: build install run test test-faults test-slurm test-arm test-python test-cuda wheel dist dist-cuda version notes deny docs lint bench ci cuda-toolkit cuda-libraries cuda cuda-quick cuda-report cuda-loops gpu-test

build:      # builds the binary, target/release/dsf
	cargo build --release --locked

PREFIX ?= $(HOME)/.local
COMPLETIONS = $(addprefix share/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)
install: build # installs the binary, its manual pages and completions below PREFIX (~/.local)
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin $(COMPLETIONS))
	install -m 755 target/release/dsf $(DESTDIR)$(PREFIX)/bin/dsf
	target/release/dsf man --to $(DESTDIR)$(PREFIX)/share/man/man1
	target/release/dsf completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/dsf
	target/release/dsf completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_dsf
	target/release/dsf completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/dsf.fish

run:        # trains the default model, in less than a minute on a laptop
	cargo run --release --locked -- mqar

# Unless RAYON_NUM_THREADS is set, Candle reads the number of cores from a file before each matrix product; its thread
# pool for elementwise ops waits by spinning. Two more tests than cores run at a time, since some tests wait for other
# processes, or for a compiler that another test has started.
CORES := $(shell getconf _NPROCESSORS_ONLN)
test: export RAYON_NUM_THREADS ?= $(CORES)
test: export CANDLE_NUM_THREADS ?= 1
test: export RUST_TEST_THREADS ?= $(shell expr $(CORES) + 2)
# The output of commands is only compared to snapshot files; INSTA_UPDATE=always rewrites them.
test: export INSTA_UPDATE ?= no
test:       # runs every test; no GPU, no network, no Python
	cargo test --release --locked --workspace

test-faults: # kills, failing system calls and damaged files, each at every place; `make test` tries a sample; ten minutes
	DSF_FAULTS=all cargo test --release --locked --workspace --lib --test suite -- faults:: crowd --nocapture

test-slurm: # runs arrays of shards on a real Slurm of one node: needs root, and Debian to install Slurm from
	cargo test --release --locked --workspace --no-run # the program as the tests build it: nothing to do after `make test`
	bash src/tests/slurm.sh

test-arm: build # runs every mixer and the tests of the ops in qemu, cross-built for 64-bit ARM; rustup adds the target
	bash src/tests/arm.sh

VENV = target/python
$(VENV)/bin/%:
	python3 -m venv $(VENV) && $(VENV)/bin/pip install -q $*

wheel: $(VENV)/bin/maturin # builds the Python package for this machine in dist/, the binary and the module; installs maturin
	cd src/python && $(CURDIR)/$(VENV)/bin/maturin build --release --strip --locked --compatibility off --out $(CURDIR)/dist

TARGETS ?= x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu aarch64-apple-darwin
dist: $(VENV)/bin/maturin # builds archives and Python packages for Linux and macOS in dist/; TARGETS=aarch64-apple-darwin for one
	$(VENV)/bin/pip install -q 'ziglang==0.17.*' 'macholib==1.16.*'
	.ci/dist.sh $(TARGETS)

CUDA_NAME = dsf-cuda-$$($(MAKE) -s version)-x86_64-unknown-linux-gnu
dist-cuda: export DSF_CUDA_PROFILE = dist-cuda
dist-cuda: cuda build # packs dsf-cuda for Linux on x86-64 in dist/; it needs the glibc of this machine or a later one
	.ci/archive.sh $(CUDA_NAME) target/cuda/dsf-cuda target/release/dsf
	cd dist && find . -name 'dsf-*' -printf '%P\n' | sort | xargs sha256sum > SHA256SUMS

version:    # prints the version
	@sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1

notes:      # prints what the changelog says about the version
	@awk -v version="$$($(MAKE) -s version)" '/^## / { shown = index($$2, version) == 1; next } shown' .github/CHANGELOG.md

# Tools of development, which the program does not contain.
TOOLS = target/tools/bin
$(TOOLS)/cargo-deny:
	cargo install cargo-deny@0.20.2 --locked --root target/tools
$(TOOLS)/mdbook:
	cargo install mdbook@0.5.4 --locked --no-default-features --features search --root target/tools

DENY ?= advisories bans licenses sources
deny: $(TOOLS)/cargo-deny # checks licences, sources and known faults of all crates; DENY="bans licenses sources" needs no network
	$(TOOLS)/cargo-deny --locked check --config .github/deny.toml $(DENY)

docs: $(TOOLS)/mdbook # writes README and the guide as a site with a search, target/docs/site/index.html
	.ci/docs.sh $(TOOLS)/mdbook

test-python: build $(VENV)/bin/pytest # tests the Python module; installs pytest, numpy, pandas and polars in target/python
	$(VENV)/bin/pip install -q numpy pandas polars
	DSF_BIN=$(CURDIR)/target/release/dsf PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=src/python $(VENV)/bin/pytest -q -p no:cacheprovider src/python/tests

lint:       # checks formatting and runs clippy, as CI does
	cargo fmt --all --check && cargo clippy --release --locked --workspace --all-targets -- -D warnings

bench:      # times steps and ops on one thread, beside their floors; PYTHON=FILE (with torch) alternates with PyTorch
	cargo build --release --locked
	target/release/dsf bench all --threads 1 $(if $(PYTHON),--python $(PYTHON)) $(BENCH)

cuda-toolkit:   # finds an installed CUDA toolkit (12.8 or later), else downloads a compiler (105 MB) into .cuda/
	bash cuda/toolkit.sh fetch

cuda:       # builds the binary for NVIDIA GPUs, target/cuda/dsf-cuda; COMPUTE_CAP=75 adds Turing
	bash cuda/cargo.sh build --bin dsf

cuda-quick: export DSF_CUDA_ARCHS = 90
cuda-quick: export COMPUTE_CAP = 90
cuda-quick: export DSF_CUDA_QUICK = 1
cuda-quick: cuda # builds as CI does: our kernels for one GPU and as PTX, Candle's compiled but not runnable; clippy

test-cuda: export DSF_CUDA = $(CURDIR)/target/cuda/dsf-cuda
test-cuda: cuda-quick # runs the binary for GPUs on a mock driver; needs no GPU. DSF_MOCK_CUDA_ALL=1 tries all precisions
	cargo test --release --locked --workspace --test mock_cuda

cuda-libraries: # downloads cuBLAS and cuRAND (480 MB) into .cuda/, for a machine with a driver but no CUDA toolkit
	bash cuda/toolkit.sh libraries

cuda-report:    # lists registers, stack and spills of the kernels that `make cuda` compiled, the worst first
	@bash cuda/report.sh target/cuda/kernels.csv

cuda-loops:     # holds the inner loops of these kernels to cuda/loops.csv; WRITE=--write records them
	CUOBJDUMP=$$(bash cuda/toolkit.sh disassembler) && export CUOBJDUMP && python3 cuda/loops.py $(WRITE)

gpu-test:   # checks and times the kernels on a GPU, into target/cuda/lease; PYTHON=FILE, LIMIT=SECONDS
	[ -x target/cuda/dsf-cuda ] || make cuda
	PYTHON="$(PYTHON)" LIMIT="$(or $(LIMIT),3600)" bash cuda/lease.sh

ci:         # runs everything that CI runs
	bash .ci/run
