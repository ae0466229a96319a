# Sourced after common.sh: packages of Debian 12 and 13, unpacked into folders beside this machine's
# own, which stay what they are.

# Where their lists are kept: in "apt" of this folder, an absolute path.
keep_packages_in() {
	packages=$1
	apt_options="-o Dir::Etc::sourcelist=$packages/apt/sources.list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=$packages/apt/lists
	-o Dir::Cache=$packages/apt/cache -o APT::Sandbox::User=root -o APT::Get::List-Cleanup=0"
}

# Downloads the lists, unless they are there.
update_packages() {
	[ -e "$packages/apt/updated" ] && return
	mkdir -p "$packages/apt/lists/partial" "$packages/apt/cache/archives/partial"
	keys=/usr/share/keyrings/debian-archive-keyring.gpg
	for suite in bookworm trixie trixie-backports; do
		say "deb [arch=amd64 signed-by=$keys] http://deb.debian.org/debian $suite main"
	done >"$packages/apt/sources.list"
	for suite in bookworm-security trixie-security; do
		say "deb [arch=amd64 signed-by=$keys] http://deb.debian.org/debian-security $suite main"
	done >>"$packages/apt/sources.list"
	apt-get $apt_options update -qq >&2 || fail "the lists of Debian's packages could not be downloaded"
	: >"$packages/apt/updated"
}

# Unpacks what was downloaded into "packages" of a folder, in that folder.
unpack() {
	for deb in "$1/packages"/*.deb; do
		dpkg -x "$deb" "$1" || exit 1
	done
	rm -r "$1/packages"
}

# Downloads a package of a release with all that it needs, the C library too, and unpacks it into a
# folder: FOLDER RELEASE PACKAGE.
unpack_whole() {
	update_packages
	rm -rf "$1" && mkdir -p "$1/packages/partial" || exit 1
	apt-get $apt_options -o Dir::State::status=/dev/null -o "Dir::Cache::archives=$1/packages" \
		install --download-only --no-install-recommends -y -qq -t "$2" "$3" >&2 ||
		fail "$3 of Debian $2 could not be downloaded"
	unpack "$1"
}

# Downloads the source of a package of a release and unpacks what its authors published into a
# folder: FOLDER RELEASE PACKAGE. These lists are a file of their own, since few need them.
unpack_source() {
	rm -rf "$1" && mkdir -p "$1/lists/partial" "$1/packed" || exit 1
	key=/usr/share/keyrings/debian-archive-keyring.gpg
	say "deb-src [signed-by=$key] http://deb.debian.org/debian $2 main" >"$1/sources.list"
	source_options="$apt_options -o Dir::Etc::sourcelist=$1/sources.list -o Dir::State::lists=$1/lists"
	apt-get $source_options update -qq >&2 &&
		(cd "$1/packed" && apt-get $source_options source --download-only -qq "$3" >&2) &&
		tar -xf "$1/packed/$3"_*.orig.tar.* --strip-components 1 -C "$1" ||
		fail "the source of $3 of Debian $2 could not be downloaded"
	rm -r "$1/packed" "$1/lists" "$1/sources.list"
}
