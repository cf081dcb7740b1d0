#!/bin/sh
# Measures the release beside the peers: tools/bench.sh [quick]
# It leaves a result for each suite in target/bench, a page of them all (report.html), and writes the
# figures of docs/performance.md and README.md. `quick` takes only some peers that Debian has, and
# leaves those two alone: its figures only show that all works.
set -eu
. "$(dirname "$0")/setup.sh"

setup build release bench
if [ "${1:-}" != quick ]; then
    sh tools/peers.sh
fi
sh tools/release.sh
# On its own: built together, the server would get the features that only the kit wants.
cargo build --locked --release -p anthill-bench

ANTHILL=$PWD/target/$(uname -m)-unknown-linux-musl/release/anthill
export ANTHILL
bench=target/release/anthill-bench
folder=target/bench${1:+/$1}
mkdir -p "$folder"
results=

# suite NAME [OPTIONS]: a peer that fails is in the result with its reason, and the rest goes on.
suite() {
    name=$1
    shift
    say "suite $name"
    "$bench" run "$name" "$@" -o "$folder/$name.json" || [ $? = 1 ] || fail "suite $name: stopped"
    results="$results $folder/$name.json"
}

if [ "${1:-}" = quick ]; then
    suite journal --quick --with anthill,nginx
    suite hello --quick --with anthill,nginx,lighttpd
    suite matrix --quick --with anthill,nginx --rounds 2
    suite handshake --quick --with anthill,nginx
    suite protocols --quick --with anthill,nginx
    suite growth --quick --with haproxy --rounds 1
    suite agreement --quick --with apache
    into=
else
    suite journal
    suite hello
    suite handshake
    suite protocols
    suite dynamic
    suite growth
    suite page
    suite matrix --csv "$folder/matrix.csv"
    suite agreement
    into='--figures docs/performance.md --summary README.md'
fi
# shellcheck disable=SC2086
"$bench" report --published $results $into -o "$folder/report.html"
say "$folder/report.html"
