# Every target installs what it needs on Debian or Ubuntu first (as root or through sudo), and nothing if it is there.

BACKEND ?= embedded
FUZZ_SECONDS ?= 60
SEED ?= 1
ARGS ?=
SUDO := $(shell [ "$$(id -u)" -eq 0 ] || echo sudo)

ONLY ?=
FULL ?=
AGAIN ?=
MINUTES ?=
SEEDS ?=
CHANGED ?=
ROUNDS ?= 10
NAMES ?=

.PHONY: help build test stress conformance kernels drivers lint demo bench figures figures-check fuzz hunt clean

help:
	@echo 'make build   the programs, target/release/shortstop and shortstop-lab'
	@echo 'make demo    a rack of key-value servers behind one switch, without and with its cache'
	@echo '             [BACKEND=embedded|redis|memcached]'
	@echo 'make test    every test; ends with "N passed, N failed"  [ARGS="-p wire"] [CHANGED=REV: what changed since, and what depends on it]'
	@echo 'make stress  every test again and again beside busy neighbours, and what failed how often  [ROUNDS=10]'
	@echo 'make conformance  public clients and their own tests, on Redis and through store and gateway, and what differs'
	@echo '             [ARGS="--servers redis-8.0 --suites redis-py --protocols 3 --json"]'
	@echo 'make kernels what other kernels make of it, from 6.1 on: each in a virtual machine  [NAMES="6.1 6.12-rt newest"]'
	@echo 'make drivers what a switch does on cards and interfaces of each kind  [KINDS="virtio vmxnet3/bond"] [KERNEL=6.1]'
	@echo 'make lint    formatting and warnings of Rust and C, names, pages and their links'
	@echo 'make bench   what hits and misses cost, as a table and target/bench.json'
	@echo 'make figures  measure what is stale of the figures of README and docs, and write it there: the quick runs and the bench'
	@echo '             [MINUTES=10: begin no run that ends later; again, and it goes on] [FULL=1: whole runs too, hours]'
	@echo '             [ONLY=netcache, or one by its name] [AGAIN=1: also what is not stale]'
	@echo '             [SEEDS=5: the quick runs in the simulator with so many seeds each; shown are median and range]'
	@echo 'make figures-check  list what of them is stale, for its code changed, with the minutes that it takes'
	@echo 'make fuzz    feed the data plane and every parser with noise  [FUZZ_SECONDS=60 each]'
	@echo 'make hunt    whole systems under every fault in the simulator, on all cores, until stopped  [SEED=1]'
	@echo 'make clean   remove what was built'
	@echo
	@echo 'Needed: Rust (at least the rust-version of Cargo.toml), clang 15 or newer (we use 19), gcc, make, pkg-config, libelf'
	@echo 'and zlib with headers, protoc with its standard .proto files (for the etcd client); for the tests and the demo'
	@echo 'iproute2, ethtool, ping, openssl, curl, redis-server, memcached, etcd. What is missing is installed where apt-get is there.'

build:
	@tools/setup build
	tools/cargo build --release

stress:
	@tools/setup build lab redis memcached etcd twemproxy fuzz
	@tools/stress $(ROUNDS)

test:
	@tools/setup build lab redis memcached etcd twemproxy fuzz
	@tools/test $(if $(CHANGED),--changed $(CHANGED),$(ARGS))

conformance:
	@tools/setup build redis conformance
	tools/cargo build --release
	tools/conformance/run $(ARGS)

kernels:
	@tools/setup build lab redis memcached etcd twemproxy fuzz kernels
	@tools/kernels $(NAMES)

drivers:
	@tools/setup build lab kernels
	@tools/drivers $(KINDS)

lint:
	@tools/setup build lint
	@tools/lint

demo:
	@tools/demo $(BACKEND)

bench:
	@tools/setup build lab redis memcached
	SHORTSTOP_COMMIT=$$(git describe --always --abbrev=12 --dirty) tools/cargo build --release
	$(SUDO) target/release/shortstop-lab bench --json target/bench.json

figures:
	@tools/setup build lab redis memcached etcd
	tools/cargo build --release
	$(SUDO) target/release/shortstop-lab figures run $(if $(ONLY),--only '$(ONLY)') $(if $(FULL),--full) $(if $(AGAIN),--again) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEEDS),--seeds $(SEEDS))

figures-check:
	@tools/setup build
	tools/cargo run --quiet -p shortstop-lab -- figures check

hunt:
	@tools/setup build
	tools/cargo build --release
	target/release/shortstop-lab hunt --seed $(SEED)

fuzz:
	@tools/setup build fuzz
	fuzz/run $(FUZZ_SECONDS)

clean:
	rm -rf target fuzz/target lab-out
