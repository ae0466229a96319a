# Sourced by the other scripts: what they share.

say() { printf '%s\n' "$*"; }

fail() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

# Runs a command as root: directly, or through sudo.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		fail "this needs root and there is no sudo: run it as root ($*)"
	fi
}

# A test program with several switches open has more descriptors than most shells allow at first.
if [ "$(ulimit -Sn)" != unlimited ] && [ "$(ulimit -Sn)" -lt 16384 ]; then
	ulimit -Sn 16384 2>/dev/null || ulimit -Sn "$(ulimit -Hn)"
fi

# rustup installs here; a shell that was open before does not know it yet, and an older cargo may
# stand in its way.
cargo_home=${CARGO_HOME:-${HOME:-/root}/.cargo}
PATH=$cargo_home/bin:$PATH

# Prints the clang that compiles the data plane: $CLANG, clang-19, or else the newest one that is at
# least 15.
find_clang() {
	if [ -n "${CLANG:-}" ]; then
		say "$CLANG"
		return
	fi
	for version in 19 30 29 28 27 26 25 24 23 22 21 20 18 17 16 15; do
		if command -v "clang-$version" >/dev/null; then
			say "clang-$version"
			return
		fi
	done
	major=$(clang -dumpversion 2>/dev/null | cut -d. -f1)
	[ "${major:-0}" -ge 15 ] && say clang
}

# Compiles the programs and these packages' tests (`--workspace`: all); cargo's messages go into the
# file. All of it in one go: one after the other, both would have what they share with other
# features, and compile it twice.
#     build_tests FILE --workspace
build_tests() {
	messages=$1
	shift
	[ "$*" = --workspace ] || tools/cargo build || return 1
	tools/cargo test --no-run --message-format json "$@" >"$messages"
}

# Of what `cargo test --no-run --message-format json` wrote into this file: each test program's
# folder, which it runs in, and where it is.
test_programs() {
	sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"overflow_checks":[a-z]*,"test":true}.*"executable":"\([^"]*\)".*/\1 \2/p' "$1"
}
