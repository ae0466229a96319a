# Sourced by run: the servers on both sides, each in a folder and on ports of its own.

# Sets `program`, the command that starts a server, and `tools`, the folder of its own programs; an
# empty program where it is the same as another of the list. Downloads what is missing.
prepare_server() {
	case $1 in
	machine)
		program=redis-server tools=$(dirname "$(command -v redis-server)")
		version=$(redis-server --version | sed 's/.*v=\([0-9]*\.[0-9]*\)\..*/\1/')
		case " $servers " in *" redis-$version "*)
			say "this machine's Redis is $version, which is tried anyway" >&2
			program=
			;;
		esac
		return
		;;
	redis-7.0) release=bookworm package=redis-server ;;
	redis-8.0) release=trixie package=redis-server ;;
	valkey-8.1) release=trixie package=valkey-server ;;
	*) fail "server $1: expected machine, redis-7.0, redis-8.0 or valkey-8.1" ;;
	esac
	[ "$(uname -m)" = x86_64 ] || fail "server $1: its package is for x86_64, this machine is $(uname -m): --servers machine"
	tree=$home/servers/$1
	if [ ! -e "$tree/programs/$package" ]; then
		say "installing: $package of Debian $release, into $tree" >&2
		unpack_whole "$tree" "$release" "$package"
		mkdir "$tree/programs" || exit 1
		for binary in "$tree"/usr/bin/redis-* "$tree"/usr/bin/valkey-*; do
			[ -x "$binary" ] || continue
			# With the loader and the libraries that came with it.
			cat >"$tree/programs/$(basename "$binary")" <<-END
				#!/bin/sh
				lib=\$(ls -d $tree/usr/lib/x86_64-linux-gnu $tree/lib/x86_64-linux-gnu 2>/dev/null | paste -sd :)
				loader=\$(ls $tree/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 $tree/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 2>/dev/null | head -1)
				exec "\$loader" --library-path "\$lib" $binary "\$@"
			END
			chmod +x "$tree/programs/$(basename "$binary")"
		done
	fi
	program=$tree/programs/$package tools=$tree/programs
	found=$("$program" --version) || fail "$package of Debian $release does not run here: $program"
	case $found in *"v=${1#*-}."*) ;; *) fail "$package of Debian $release is not ${1#*-}: $found" ;; esac
}

# Prints ports that nobody listens on, below those that the system gives to connections.
free_ports() {
	python3 - "$1" <<-'END'
		import random, socket, sys
		found = []
		while len(found) < int(sys.argv[1]):
		    port = random.randrange(20000, 32000)
		    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
		        try:
		            tcp.bind(("127.0.0.1", port))
		            udp.bind(("127.0.0.1", port))
		            found.append(str(port))
		        except OSError:
		            pass
		print(*found)
	END
}

# Starts a process in a folder: FOLDER NAME COMMAND...
running=
start() {
	mkdir -p "$1" || exit 1
	log=$1/$2.log
	(cd "$1" && shift 2 && exec "$@") >"$log" 2>&1 </dev/null &
	running="$running $2=$!"
}

# Returns when a server answers as it should: PORT NAME COMMAND...
await() {
	port=$1 name=$2
	shift 2
	left=300
	until redis-cli -h 127.0.0.1 -p "$port" "$@" 2>/dev/null | grep -qE '^(PONG|0)$'; do
		left=$((left - 1))
		[ $left -gt 0 ] || fail "$name does not answer $* within 30 s: ${log%/*}"
		sleep 0.1
	done
}

# Everything that a suite needs of a server's own options; nothing is kept on disk.
start_server() {
	start "$1" "$2" "$program" --port "$3" --bind 127.0.0.1 --save '' --appendonly no --enable-debug-command yes \
		--enable-protected-configs yes
	await "$3" "$2" ping
}

# A Redis Cluster of three masters: FOLDER NAME PORT PORT PORT, and ports for their own talk.
start_cluster() {
	folder_of=$1 name=$2
	for place in 1 2 3; do
		eval "port=\$$((place + 2)) bus=\$$((place + 5))"
		start "$folder_of/$name-$place" "$name-$place" "$program" --port "$port" --cluster-port "$bus" --bind 127.0.0.1 --save '' \
			--appendonly no --enable-debug-command yes --cluster-enabled yes
		await "$port" "$name-$place" ping
	done
	redis-cli --cluster create "127.0.0.1:$3" "127.0.0.1:$4" "127.0.0.1:$5" --cluster-yes >"$folder_of/$name.log" 2>&1 </dev/null ||
		fail "redis-cli --cluster create: $folder_of/$name.log"
	for port in "$3" "$4" "$5"; do
		left=300
		until redis-cli -h 127.0.0.1 -p "$port" cluster info | grep -q '^cluster_state:ok' &&
			[ "$(redis-cli -h 127.0.0.1 -p "$port" cluster nodes | grep -c 'master.*-')" = 3 ]; do
			left=$((left - 1))
			[ $left -gt 0 ] || fail "a Redis Cluster is not whole within 30 s: $folder_of"
			sleep 0.1
		done
	done
}

# A Redis Cluster of one node, which has all slots: FOLDER NAME PORT, and a port for its own talk.
start_lone_node() {
	start "$1" "$2" "$program" --port "$3" --cluster-port "$4" --bind 127.0.0.1 --save '' --appendonly no \
		--enable-debug-command yes --enable-protected-configs yes --cluster-enabled yes
	await "$3" "$2" ping
	redis-cli -h 127.0.0.1 -p "$3" cluster addslotsrange 0 16383 >/dev/null || fail "CLUSTER ADDSLOTSRANGE: $1"
	left=300
	until redis-cli -h 127.0.0.1 -p "$3" cluster info | grep -q '^cluster_state:ok'; do
		left=$((left - 1))
		[ $left -gt 0 ] || fail "a Redis Cluster of one node is not whole within 30 s: $1"
		sleep 0.1
	done
}

# The sides before a Redis Cluster: FOLDER. The plain side has one as well, for what a cluster does
# not do is not asked here: of one node where clients do not know that it is one. Where they do, as
# many gateways as it has masters look like nodes.
start_cluster_sides() {
	into=$1
	set -- $(free_ports 21)
	plain_port=$1
	if is_of_cluster; then
		start_cluster "$into" plain "$1" "$2" "$3" "$4" "$5" "$6"
	else
		start_lone_node "$into/plain" plain "$1" "$4"
	fi
	shift 6
	behind_port=$1
	start_cluster "$into" behind "$1" "$2" "$3" "$4" "$5" "$6"
	shift 6
	through_port=$7
	mkdir "$into/through" || exit 1
	"$SHORTSTOP" cluster import "redis://127.0.0.1:$behind_port" --store "127.0.0.1:$1,127.0.0.1:$2,127.0.0.1:$3" |
		sed "s/:6390/:$4/g; s/:6391/:$5/g; s/:6392/:$6/g" >"$into/through/cluster.toml"
	sed -n 's/^#   shortstop //p' "$into/through/cluster.toml" >"$into/stores"
	[ "$(wc -l <"$into/stores")" = 3 ] || fail "shortstop cluster import: $into/through/cluster.toml"
	while read -r words; do
		start "$into/through" "store-${words##*:}" "$SHORTSTOP" $words
	done <"$into/stores"
	gateways=$through_port nodes=
	if is_of_cluster; then
		gateways="$7 $8 $9" nodes="--node 127.0.0.1:$7 --node 127.0.0.1:$8 --node 127.0.0.1:$9"
	fi
	for port in $gateways; do
		start "$into/through" "gateway-$port" "$SHORTSTOP" gateway --cluster cluster.toml --network "$network" $nodes --listen "127.0.0.1:$port"
	done
	# Of each store a key: it takes writes.
	for key in a b c; do
		await "$through_port" "gateway-$through_port" del "$key"
	done
	for port in $gateways; do
		await "$port" "gateway-$port" ping
	done
}

# Sets plain_port, through_port, and behind_port: of the Redis behind what is tried.
start_sides() {
	if [ -n "$cluster" ]; then
		start_cluster_sides "$2"
		return
	fi
	set -- "$2" $(free_ports 5)
	plain_port=$2 behind_port=$3
	start_server "$1/plain" plain "$2"
	if [ "$through" = redis ]; then
		through_port=$3
		start_server "$1/through" behind "$3"
		return
	fi
	start_server "$1/through" behind "$3"
	case $through in
	store | gateway)
		through_port=$5
		start "$1/store" store "$SHORTSTOP" store --listen "127.0.0.1:$4" --backend "redis://127.0.0.1:$3" \
			--status-socket "$1/store.sock" --resp "127.0.0.1:$5"
		if [ "$through" = gateway ]; then
			await "$5" store exists no-such-key
			through_port=$6
			start "$1/gateway" gateway "$SHORTSTOP" gateway --server "127.0.0.1:$4" --resp "redis://127.0.0.1:$5" \
				--network "$network" --listen "127.0.0.1:$6"
		fi
		;;
	*)
		through_port=$6
		start "$1/through" through $through "$6" "$3"
		;;
	esac
	await "$through_port" "$through" exists no-such-key
}

# What ended although nobody ended it: the run has failed, whatever its tests say. One that has
# ended and that nobody waited for is still there for signals.
check_servers() {
	for process in $running; do
		grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/${process#*=}/status" && continue
		say "error: ${process%=*} ended during $suite: its log is in $folder" >&2
		broken=yes
	done
}

stop_servers() {
	for process in $running; do
		kill "${process#*=}" 2>/dev/null
	done
	for process in $running; do
		wait "${process#*=}" 2>/dev/null
	done
	running=
}
