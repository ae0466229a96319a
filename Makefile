# Every target installs what it needs on Debian or Ubuntu first (as root or through sudo), and nothing if it is there.

BACKEND ?= embedded
FUZZ_SECONDS ?= 60
ARGS ?=
SUDO := $(shell [ "$$(id -u)" -eq 0 ] || echo sudo)

.PHONY: help build test lint demo bench fuzz clean

help:
	@echo 'make build   the program, target/release/shortstop'
	@echo 'make demo    a rack of key-value servers behind one switch, without and with its cache'
	@echo '             [BACKEND=embedded|redis|memcached]'
	@echo 'make test    every test; ends with "N passed, N failed"  [ARGS="-p wire"]'
	@echo 'make lint    formatting and warnings, Rust and C'
	@echo 'make bench   speed of the parts'
	@echo 'make fuzz    feed the packet and cluster-file parsers with noise  [FUZZ_SECONDS=60 each]'
	@echo 'make clean   remove what was built'
	@echo
	@echo 'Needed: Rust (at least the rust-version of Cargo.toml), clang 15 or newer (we use 19), gcc, make, pkg-config, libelf'
	@echo 'and zlib with headers; for the tests and the demo iproute2, ethtool, ping, redis-server, memcached. What is'
	@echo 'missing is installed where apt-get is there.'

build:
	@tools/setup build
	tools/cargo build --release

test:
	@tools/setup build lab redis memcached
	@tools/test $(ARGS)

lint:
	@tools/setup build lint
	@tools/lint

demo:
	@tools/setup build lab $(BACKEND)
	tools/cargo build --release
	$(SUDO) target/release/shortstop lab run demo --backend $(BACKEND) --out target/demo

bench:
	@tools/setup build redis memcached
	tools/cargo test --release -p store --test speed -- --ignored --nocapture --test-threads=1

fuzz:
	@tools/setup build fuzz
	cd fuzz && for target in decode cluster; do \
		cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

clean:
	rm -rf target fuzz/target lab-out
