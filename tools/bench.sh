#!/bin/sh
# Measures the release beside the peers: tools/bench.sh [quick] [SUITE…]
# It leaves a result for each suite in target/bench, a page of them all (report.html), and writes the
# figures of docs/performance.md and README.md. `quick` takes only some peers that Debian has and few
# rounds, and leaves those two alone: its figures only show that all works.
#
# About an hour on two processors. What an interrupted run has measured isn't measured again, and the
# suites may be run one by one: the page and the figures are of all that are there.
#   BENCH_FULL=1      every scenario of the source documents: hours
#   BENCH_OPTIONS     for every suite, as `--rounds 3 --seconds 1`; each command is in its result
#   ANTHILL           the server's binary, instead of the release that is built here
set -eu
. "$(dirname "$0")/setup.sh"

all='journal hello handshake protocols dynamic growth page matrix agreement'
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
# On its own: built together, the server would get the features that only the kit wants.
cargo build --locked --release -p anthill-bench

bench=target/release/anthill-bench
folder=target/bench
[ "$mode" != quick ] || folder=target/bench/quick
mkdir -p "$folder"

# suite NAME [OPTIONS]: a peer that fails is in the result with its reason, and the rest goes on.
suite() {
    name=$1
    shift
    say "suite $name"
    "$bench" run "$name" "$@" -o "$folder/$name.json" || [ $? = 1 ] || fail "suite $name: stopped"
}

# quick_options NAME: the options of a quick suite.
quick_options() {
    case $1 in
        journal | handshake) echo '--with anthill,nginx' ;;
        protocols) echo '--with anthill,nginx,caddy' ;;
        hello) echo '--with anthill,nginx,lighttpd' ;;
        matrix) echo '--with anthill,nginx --rounds 2' ;;
        dynamic) echo '--with anthill --rounds 1' ;;
        growth) echo '--with haproxy --rounds 1' ;;
        page) echo '--with anthill --rounds 1' ;;
        agreement) echo '--with apache' ;;
    esac
}

# has_browser: whether a Chromium is here, by any of the names that the kit knows.
has_browser() {
    for program in chromium chromium-browser google-chrome google-chrome-stable; do
        ! command -v "$program" >/dev/null || return 0
    done
    return 1
}

for name in $suites; do
    if [ "$name" = page ] && ! has_browser; then
        say 'suite page: left out, since no Chromium is here'
        continue
    fi
    # shellcheck disable=SC2046,SC2086
    case $mode in
        quick) suite "$name" --quick $(quick_options "$name") ;;
        *) suite "$name" --resume ${BENCH_FULL:+--full} ${BENCH_OPTIONS:-} ;;
    esac
done

# In the order of the documents, whichever were run now.
results=
for name in $all; do
    [ ! -e "$folder/$name.json" ] || results="$results $folder/$name.json"
done
into=
[ "$mode" = quick ] || into='--figures docs/performance.md --summary README.md'
# shellcheck disable=SC2086
"$bench" report --published $results $into -o "$folder/report.html"
say "$folder/report.html"
