#!/bin/sh
# git's own tests of HTTP, with Apache and with anthill as the server. anthill runs `git http-backend`
# and the scripts of the tests by `cgi`; git/lib-httpd.sh is its configuration.
#
# The script needs $OUTSIDERS/git, a checkout of https://github.com/git/git at a tag (v2.39.5), and the Debian
# packages apache2-bin, gcc, make, libcurl4-openssl-dev, libexpat1-dev, libssl-dev, zlib1g-dev, perl, curl and
# openssl. The script builds git in the checkout and tests the built git, because only a distribution's own
# tests know the distribution's patches. The build takes some minutes on two cores.
#
# Environment: tools/outsiders.sh sets OUTSIDERS, ANTHILL and OUT. GIT_TESTS ("t5551 t5561") chooses tests,
# and GIT_SERVERS ("anthill") chooses servers. GIT_MAKE holds further arguments of make, for example
# "CURL_CFLAGS=-I/opt/curl/include CURL_LDFLAGS=-l:libcurl.so.4". GIT_TEST_INSTALLED=/usr/bin tests an
# installed git, and only the helper programs of the checkout are built.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
source=$OUTSIDERS/git
account=65534

missing() {
	echo "git: $1" >&2
	exit 1
}

[ -f "$source/t/lib-httpd.sh" ] ||
	missing "$source is missing: git clone -b v2.39.5 https://github.com/git/git $source"
[ -x /usr/sbin/apache2 ] || missing "Apache is missing: apt-get install apache2-bin"
for command in make gcc perl curl openssl iconv; do
	command -v "$command" >/dev/null || missing "$command is missing"
done

# The shell splits GIT_MAKE into words, so GIT_MAKE cannot hold a make variable with spaces.
build() {
	# shellcheck disable=SC2086
	make -s -C "$source" -j2 CFLAGS="-O1 -g0" NO_GETTEXT=1 NO_TCLTK=1 ${GIT_MAKE:-} "$@" \
		>>"$OUT/build.log" 2>&1 || missing "the build failed: $OUT/build.log"
}
if [ -n "${GIT_TEST_INSTALLED:-}" ]; then
	[ -x "$source/t/helper/test-fake-ssh" ] ||
		build t/helper/test-tool t/helper/test-fake-ssh GIT-BUILD-OPTIONS
	[ -d "$source/templates/blt" ] ||
		make -s -C "$source/templates" SHELL_PATH=/bin/sh PERL_PATH=/usr/bin/perl >>"$OUT/build.log"
elif [ ! -x "$source/git-http-push" ] || [ ! -x "$source/t/helper/test-fake-ssh" ]; then
	echo "git: building $source (log: $OUT/build.log)"
	build all
fi

# Each server has a folder of links to the checkout; t/ is a folder of its own, and
# for anthill t/lib-httpd.sh is the replacement from git/.
prepare() {
	build=$OUT/$1
	mkdir -p "$build/t" "$build/results"
	for file in "$source"/* "$source"/.[a-z]*; do
		case ${file##*/} in t | .git) ;; *) ln -s "$file" "$build/" ;; esac
	done
	ln -s "$source"/t/* "$build/t/"
	if [ "$1" = anthill ]; then
		mv "$build/t/lib-httpd.sh" "$build/t/lib-httpd-apache.sh"
		cp "$here/git/lib-httpd.sh" "$build/t/lib-httpd.sh"
		cp "$ANTHILL" "$build/anthill"
		mkdir "$build/scripts"
		cp -p "$here/git"/*-script.sh "$build/scripts/"
	fi
	if [ "$(id -u)" = 0 ]; then
		chown -R -h "$account:$account" "$build"
	fi
}

# The tests refuse to run as root.
unprivileged() {
	if [ "$(id -u)" = 0 ]; then
		setpriv --reuid="$account" --regid="$account" --clear-groups "$@"
	else
		"$@"
	fi
}

free_port() {
	perl -MIO::Socket::INET -e '
		print IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1")->sockport'
}

# Ends servers that are left over from tests that ran into the time limit.
end_servers() {
	for file in "$OUT/$1"/results/*/httpd/httpd.pid; do
		[ -f "$file" ] || continue
		pid=$(cat "$file")
		if grep -q "$OUT/$1" "/proc/$pid/cmdline" 2>/dev/null; then
			kill "$pid"
		fi
	done
}

# Runs one file of tests and counts its subtests by the lines of output: "ok 1 - …", "not ok 2 - …".
run() {
	server=$1 test=$2
	log=$OUT/$server/results/$test
	(
		cd "$OUT/$server/t"
		unprivileged env -i PATH="$PATH" HOME=/nonexistent LANG=C TERM=dumb \
			${GIT_TEST_INSTALLED:+GIT_TEST_INSTALLED="$GIT_TEST_INSTALLED"} GIT_TEST_HTTPD=true \
			LIB_HTTPD_PORT="$(free_port)" TEST_OUTPUT_DIRECTORY="$OUT/$server/results" \
			ANTHILL_FOR_GIT="$OUT/$server" \
			timeout 1200 sh "./$test.sh" --verbose-log --no-color </dev/null >"$log.tap" 2>&1
	) || true
	end_servers "$server"
	passed=$(grep -c '^ok [0-9]' "$log.tap" || true)
	skipped=$(grep -c '^ok [0-9].* # skip' "$log.tap" || true)
	# In git's output `# TODO` marks a test with a known failure, independent of the server.
	known=$(grep -c '^not ok [0-9].* # TODO' "$log.tap" || true)
	failed=$(grep -c '^not ok [0-9]' "$log.tap" || true)
	passed=$((passed - skipped))
	failed=$((failed - known))
	grep -q '^1\.\.[0-9]' "$log.tap" || failed=$((failed + 1))
	why=$(sed -n 's/^1\.\.0 # SKIP //p' "$log.tap")
	printf '%-8s %-38s passed %3s failed %2s skipped %2s %s\n' \
		"$server" "$test" "$passed" "$failed" "$skipped" "$why"
	grep '^not ok [0-9]' "$log.tap" | grep -v '# TODO' | sed "s/^/    /" || true
	echo "$server $test $passed $failed $skipped" >>"$OUT/counts"
}

: >"$OUT/counts"
for server in ${GIT_SERVERS:-apache anthill}; do
	prepare "$server"
	for file in $(cd "$source/t" && grep -l 'lib-httpd\.sh\|t5551-http-fetch-smart\.sh' t[0-8]*.sh); do
		test=${file%.sh}
		number=${test%%-*}
		case " ${GIT_TESTS:-$number} " in *" $number "*) ;; *) continue ;; esac
		run "$server" "$test"
	done
done

sums() {
	awk -v server="$1" '$1 == server { p += $3; f += $4; s += $5 }
		END { printf "passed %d of %d, %d skipped", p, p + f, s }' "$OUT/counts"
}
for server in ${GIT_SERVERS:-apache anthill}; do
	[ "$server" = anthill ] || echo "git with $server: $(sums "$server")"
done
echo "git: $(sums anthill)"
