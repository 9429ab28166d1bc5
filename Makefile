# The commands worth remembering. Tests run in release: one build of the dependencies serves all.
.PHONY: build install run test test-faults test-slurm test-arm lint bench ci cuda-toolkit cuda-libraries cuda cuda-quick cuda-report gpu-test

build:      # the binary, target/release/dsf
	cargo build --release --locked

PREFIX ?= $(HOME)/.local
COMPLETIONS = $(addprefix share/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)
install: build # the binary, its manual pages and completions, below PREFIX (~/.local)
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin $(COMPLETIONS))
	install -m 755 target/release/dsf $(DESTDIR)$(PREFIX)/bin/dsf
	target/release/dsf man --to $(DESTDIR)$(PREFIX)/share/man/man1
	target/release/dsf completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/dsf
	target/release/dsf completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_dsf
	target/release/dsf completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/dsf.fish

run:        # trains the default model: learns within a minute on a laptop
	cargo run --release --locked -- mqar

# Told by nobody, Candle reads the number of cores from a file before each product, and its pool for elementwise ops waits
# by spinning. Some tests wait for other processes, or for a compiler that another test has called: two more than there
# are cores are at work.
CORES := $(shell getconf _NPROCESSORS_ONLN)
test: export RAYON_NUM_THREADS ?= $(CORES)
test: export CANDLE_NUM_THREADS ?= 1
test: export RUST_TEST_THREADS ?= $(shell expr $(CORES) + 2)
# What commands print is only compared; `always` writes it into the files that it is compared with.
test: export INSTA_UPDATE ?= no
test:       # every test; no GPU, no network, no Python
	cargo test --release --locked --workspace

test-faults: # kills, refusals of the system and damage at every place, of which `make test` tries a sample; ten minutes
	DSF_FAULTS=all cargo test --release --locked --workspace --lib --test suite -- faults:: crowd --nocapture

test-slurm: # arrays of shards on a real Slurm of one node, started for it: needs root, and Debian to install Slurm from
	cargo test --release --locked --workspace --no-run # the program as the tests build it: behind them nothing is left to do
	bash src/tests/slurm.sh

test-arm: build # cross-built for 64-bit ARM and run in qemu: every mixer and the tests of the ops; rustup adds the library
	bash src/tests/arm.sh

lint:       # formatting and clippy, as CI asks for them
	cargo fmt --all --check && cargo clippy --release --locked --workspace --all-targets -- -D warnings

bench:      # steps and ops beside their floors, one thread; PYTHON=FILE (with torch): PyTorch by turns
	cargo build --release --locked
	target/release/dsf bench all --threads 1 $(if $(PYTHON),--python $(PYTHON)) $(BENCH)

cuda-toolkit:   # a compiler for the kernels: an installed CUDA toolkit of 12.8 or later, else 105 MB into .cuda/
	bash cuda/toolkit.sh fetch

cuda:       # the binary for NVIDIA GPUs, target/cuda/dsf-cuda; COMPUTE_CAP=75 for GPUs before Ampere
	bash cuda/cargo.sh build --bin dsf

cuda-quick: export DSF_CUDA_ARCHS = 90
cuda-quick: export COMPUTE_CAP = 90
cuda-quick: export DSF_CUDA_QUICK = 1
cuda-quick: cuda # as CI builds it: our kernels for one GPU and in intermediate code, Candle's not to be run, and clippy

cuda-libraries: # cuBLAS and cuRAND for a machine with a driver and no CUDA toolkit: 480 MB into .cuda/
	bash cuda/toolkit.sh libraries

cuda-report:    # registers, stack and spills of the kernels that `make cuda` compiled, the worst first
	@bash cuda/report.sh target/cuda/kernels.csv

gpu-test:   # on a machine with a GPU: what it computes and how fast, results/bench-gpu.csv; PYTHON=FILE, BENCH=FLAGS
	PYTHON="$(PYTHON)" BENCH="$(BENCH)" bash cuda/gpu-test.sh

ci:         # what CI runs
	bash .ci/run
