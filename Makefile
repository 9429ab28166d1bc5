# The commands worth remembering. Tests run in release: one build of the dependencies serves all.
.PHONY: build run test lint bench bench-ops ci

build:      # the binary, target/release/dsf
	cargo build --release --locked

run:        # trains the default model: learns within a minute on a laptop
	cargo run --release --locked -- mqar

test:       # every test; no GPU, no network, no Python
	cargo test --release --locked

lint:       # formatting and clippy, as CI asks for them
	cargo fmt --check && cargo clippy --release --locked --all-targets -- -D warnings

bench:      # steps and ops beside their floors, one thread; PYTHON=FILE (with torch): PyTorch by turns
	cargo build --release --locked
	target/release/dsf bench all --threads 1 $(if $(PYTHON),--python $(PYTHON)) $(BENCH)

bench-ops:  # the fused ops inside the tests: time a call and elements a second, on one thread
	RAYON_NUM_THREADS=1 cargo test --release --locked --lib ops:: -- speed --ignored --nocapture --test-threads=1

ci:         # what CI runs
	bash .ci/run
