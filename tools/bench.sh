#!/bin/sh
# Measures the release beside other servers: tools/bench.sh [quick] [SUITE…] Writes a result for each suite
# to target/bench, a page with all results (report.html), and the figures of docs/performance.md and
# README.md. `quick` takes a few of Debian's servers and few rounds, and leaves both documents alone: the
# figures of `quick` only show that the suites run.
#
# A run takes one to two hours on two processors. An interrupted run continues: measured rounds are not
# repeated. With single suites, the page and the figures contain all results in the folder. BENCH_FULL=1
# every scenario of the source documents: hours BENCH_OPTIONS     options for every suite, for example
# `--rounds 3 --seconds 1`; a result contains its command ANTHILL           the server's binary, instead of
# the release built here
set -eu
. "$(dirname "$0")/setup.sh"

all='journal hello handshake protocols dynamic growth proxy page matrix agreement'
mode=usual
suites=$all
if [ "${1:-}" = quick ]; then
    mode=quick
    shift
fi
suites=${*:-$suites}

setup build release bench
[ "$mode" = quick ] || [ -n "${ANTHILL:-}" ] || sh tools/peers.sh
if [ -z "${ANTHILL:-}" ]; then
    sh tools/release.sh
    ANTHILL=$PWD/target/$(uname -m)-unknown-linux-musl/release/anthill
fi
export ANTHILL
# The kit is built alone: in one build with the server, the server would get the features that only the kit
# uses.
cargo build --locked --release -p anthill-bench

bench=target/release/anthill-bench
folder=target/bench
[ "$mode" != quick ] || folder=target/bench/quick
mkdir -p "$folder"

# suite NAME [OPTIONS]: runs a suite. The result contains the reason of a failed server, and the other
# servers continue.
suite() {
    name=$1
    shift
    say "suite $name"
    "$bench" run "$name" "$@" -o "$folder/$name.json" || [ $? = 1 ] || fail "suite $name: stopped"
}

# quick_options NAME: prints the options of a suite with `quick`.
quick_options() {
    case $1 in
        journal | handshake) echo '--with anthill,nginx' ;;
        protocols) echo '--with anthill,nginx,caddy' ;;
        hello) echo '--with anthill,nginx,lighttpd' ;;
        matrix) echo '--with anthill,nginx --rounds 2' ;;
        dynamic) echo '--with anthill --rounds 1' ;;
        growth) echo '--with anthill,haproxy --rounds 1' ;;
        proxy) echo '--with anthill,nginx --rounds 1' ;;
        page) echo '--with anthill --rounds 1' ;;
        agreement) echo '--with apache' ;;
    esac
}

# has_browser: succeeds if Chromium is installed under a name that the kit knows.
has_browser() {
    for program in chromium chromium-browser google-chrome google-chrome-stable; do
        ! command -v "$program" >/dev/null || return 0
    done
    return 1
}

for name in $suites; do
    if [ "$name" = page ] && ! has_browser; then
        say 'suite page: left out, since Chromium is not installed'
        continue
    fi
    # shellcheck disable=SC2046,SC2086
    case $mode in
        quick) suite "$name" --quick $(quick_options "$name") ;;
        *) suite "$name" --resume ${BENCH_FULL:+--full} ${BENCH_OPTIONS:-} ;;
    esac
done

# All results in the order of the documents, including results of earlier runs.
results=
for name in $all; do
    [ ! -e "$folder/$name.json" ] || results="$results $folder/$name.json"
done
into=
[ "$mode" = quick ] || into='--figures docs/performance.md --summary README.md'
# shellcheck disable=SC2086
"$bench" report --published $results $into -o "$folder/report.html"
say "$folder/report.html"
