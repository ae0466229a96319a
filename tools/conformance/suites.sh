# Sourced by run: the suites, and what each needs.

# Whether the clients of $suite are in cluster mode.
is_of_cluster() {
	case $suite in *-cluster) return 0 ;; *) return 1 ;; esac
}

# Installs what the chosen suites need and is not there.
prepare_suites() {
	for suite in $suites; do
		case $suite in
		redis-py*) need_python && need_source redis 8.1.0 ;;
		dogpile) need_python && need_source dogpile.cache 1.5.0 ;;
		django-redis) need_python && need_source django-redis 7.0.0 ;;
		ioredis* | node-redis) need_node ;;
		go-redis* | rueidis*) need_go ;;
		jedis | lettuce) need_java ;;
		redis-tcl) need_redis_tests ;;
		programs | commands) ;;
		*) fail "suite $suite: expected some of: $every_suite" ;;
		esac
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

# Redis's own tests, in Tcl.
need_redis_tests() {
	command -v tclsh >/dev/null || fail "suite redis-tcl: 'apt-get install tcl'"
	[ -e "$home/sources/redis-tcl/tests/test_helper.tcl" ] && return
	say "downloading: the source of Redis 7.0, into $home/sources" >&2
	unpack_source "$home/sources/redis-tcl" bookworm redis
}

# Says that something is made in a folder, and makes the folder, unless what it is made from
# ($2...) is as it was the last time; made() says that it is done.
is_made() {
	into=$1
	shift
	sum=$(cat "$@" | sha256sum)
	[ "$sum" != "$(cat "$into/made" 2>/dev/null)" ] || return 0
	say "installing: $into" >&2
	rm -rf "$into" && mkdir -p "$into" || exit 1
	return 1
}
made() { say "$sum" >"$into/made"; }

need_node() {
	is_made "$home/node" "$here"/smoke/*.mjs "$here/smoke/package.json" && return
	cp "$here"/smoke/*.mjs "$here/smoke/package.json" "$into" &&
		(cd "$into" && npm install --silent --no-audit --no-fund >&2) ||
		fail "ioredis and node-redis could not be installed: 'npm install ioredis' must work, with Node 20 or newer"
	made
}

need_go() {
	is_made "$home/go" $(find "$here/smoke/go" -type f) && return
	(cd "$here/smoke/go" && go build -o "$into/" ./goredis ./rueidis >&2) ||
		fail "go-redis and rueidis could not be built: 'go build' of Go 1.21 or newer must reach the module proxy"
	made
}

need_java() {
	is_made "$home/java" "$here"/smoke/java/pom.xml "$here"/smoke/java/src/* && return
	mvn -q -B -f "$here/smoke/java/pom.xml" dependency:copy-dependencies -DoutputDirectory="$into/libraries" >&2 &&
		javac -d "$into/classes" -cp "$into/libraries/*" "$here"/smoke/java/src/*.java >&2 ||
		fail "Jedis and Lettuce could not be installed: Maven must reach its central repository, with Java 17 or newer"
	made
}

pytest() {
	timeout -k 10 "$SUITE_SECONDS" "$python" -m pytest -p record -p no:cacheprovider -q --tb native --timeout 60 "$@"
}

# Runs $suite against $PORT; where there is a file $ONLY, the tests that it names.
run_suite() {
	case $suite in
	redis-py)
		cd "$home/sources/redis" || exit 2
		files=
		for name in commands pipeline pubsub scripting lock encoding connection_pool monitor; do
			files="$files tests/test_$name.py tests/test_asyncio/test_$name.py"
		done
		pytest -m 'not onlycluster and not redismod' --redis-url "redis://127.0.0.1:$PORT/0" --protocol "$PROTOCOL" \
			$files
		;;
	redis-py-cluster)
		cd "$home/sources/redis" || exit 2
		pytest -m 'not onlynoncluster and not redismod' --redis-url "redis://127.0.0.1:$PORT/0" --protocol "$PROTOCOL" \
			--redis-cluster-nodes 3 tests/test_commands.py tests/test_pipeline.py tests/test_scripting.py tests/test_pubsub.py \
			tests/test_cluster_transaction.py tests/test_asyncio/test_commands.py
		;;
	dogpile)
		cd "$home/sources/dogpile.cache" || exit 2
		export DOGPILE_REDIS_PORT="$PORT" DOGPILE_VALKEY_PORT="$PORT"
		pytest tests/cache/test_redis_backend.py tests/cache/test_valkey_backend.py
		;;
	django-redis)
		# Its settings name the port. Sentinels and sockets are not here.
		mkdir "$RECORD.tests" && cd "$RECORD.tests" && cp -r "$home/sources/django-redis/tests" . &&
			sed -i "s/127\.0\.0\.1:6379/127.0.0.1:$PORT/g" tests/settings/*.py || exit 2
		# Each has a database of its own, and a Redis Cluster has one.
		[ -z "$cluster" ] || sed -i -E "s/db=[0-9]+/db=0/g; s/(127\.0\.0\.1:$PORT):[0-9]+/\1:0/g" tests/settings/*.py || exit 2
		pytest -k 'not usock and not sentinel' tests
		;;
	ioredis* | node-redis) timeout "$SUITE_SECONDS" node "$home/node/${suite%-cluster}.mjs" ;;
	go-redis*) timeout "$SUITE_SECONDS" "$home/go/goredis" ;;
	rueidis*) timeout "$SUITE_SECONDS" "$home/go/rueidis" ;;
	jedis) timeout "$SUITE_SECONDS" java -cp "$home/java/classes:$home/java/libraries/*" JedisSmoke ;;
	lettuce) timeout "$SUITE_SECONDS" java -cp "$home/java/classes:$home/java/libraries/*" LettuceSmoke ;;
	redis-tcl) TESTS=$home/sources/redis-tcl timeout "$SUITE_SECONDS" python3 "$here/redis_tcl.py" ;;
	programs) timeout "$SUITE_SECONDS" python3 "$here/programs.py" ;;
	commands) timeout "$SUITE_SECONDS" python3 "$here/commands.py" ;;
	esac
}
