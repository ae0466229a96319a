# Sourced by run: the suites, and what each needs.

# Installs what the chosen suites need and is not there.
prepare_suites() {
	for suite in $suites; do
		case $suite in
		redis-py) need_python && need_source redis 8.1.0 ;;
		dogpile) need_python && need_source dogpile.cache 1.5.0 ;;
		django-redis) need_python && need_source django-redis 7.0.0 ;;
		programs | commands) ;;
		*) fail "suite $suite: expected some of: redis-py dogpile django-redis ioredis node-redis go-redis rueidis jedis lettuce programs commands" ;;
		esac || exit 1
	done
}

need_python() {
	cmp -s "$here/requirements" "$home/python/requirements" && return
	say "installing: what $here/requirements lists, into $home/python" >&2
	rm -rf "$home/python"
	python3 -m venv "$home/python" && "$home/python/bin/pip" install -q -r "$here/requirements" >&2 ||
		fail "the Python packages could not be installed: 'apt-get install python3-venv', and 'pip download redis' must work"
	cp "$here/requirements" "$home/python/requirements"
}

# The source distribution of a Python package, for its tests.
need_source() {
	[ -e "$home/sources/$1/PKG-INFO" ] && return
	say "downloading: the source distribution of $1 $2, into $home/sources" >&2
	rm -rf "$home/sources/$1" "$home/sources/packed"
	mkdir -p "$home/sources/$1" || exit 1
	"$home/python/bin/pip" download -q --no-deps --no-binary :all: -d "$home/sources/packed" "$1==$2" >&2 &&
		tar -xzf "$home"/sources/packed/*.tar.gz --strip-components 1 -C "$home/sources/$1" ||
		fail "the source distribution of $1 $2 could not be downloaded"
}

pytest() {
	timeout -k 10 "$SUITE_SECONDS" "$python" -m pytest -p record -p no:cacheprovider -q --tb native --timeout 60 "$@"
}

# Runs $suite against $port, and in $ONLY, if there is one, the tests that it names.
run_suite() {
	case $suite in
	redis-py)
		cd "$home/sources/redis" || exit 2
		files=
		for name in commands pipeline pubsub scripting lock encoding connection_pool monitor; do
			files="$files tests/test_$name.py tests/test_asyncio/test_$name.py"
		done
		pytest -m 'not onlycluster and not redismod' --redis-url "redis://127.0.0.1:$port/0" --protocol "$protocol" \
			$files
		;;
	dogpile)
		cd "$home/sources/dogpile.cache" || exit 2
		export DOGPILE_REDIS_PORT="$port" DOGPILE_VALKEY_PORT="$port"
		pytest tests/cache/test_redis_backend.py tests/cache/test_valkey_backend.py
		;;
	django-redis)
		# Its settings name the port. Sentinels and sockets, which some of them ask for, are not here.
		mkdir "$RECORD.tests" && cd "$RECORD.tests" && cp -r "$home/sources/django-redis/tests" . &&
			sed -i "s/127\.0\.0\.1:6379/127.0.0.1:$port/g" tests/settings/*.py || exit 2
		pytest -k 'not usock and not sentinel' tests
		;;
	esac
}
