#!/bin/sh
# Measures the release beside the peers that are installed: tools/bench.sh [quick]
# The results stay in target/bench, one for each suite, with a page of them all (report.html).
set -eu
. "$(dirname "$0")/setup.sh"

setup build release bench
sh tools/release.sh
# On its own: built together, the server would get the features that only the kit wants.
cargo build --locked --release -p anthill-bench

ANTHILL=$PWD/target/$(uname -m)-unknown-linux-musl/release/anthill
export ANTHILL
bench=target/release/anthill-bench
results=target/bench
mkdir -p "$results"

# suite NAME [OPTIONS]: a peer that fails is in the result with its reason, and the rest goes on.
suite() {
    name=$1
    shift
    say "suite $name"
    "$bench" run "$name" "$@" -o "$results/$name.json" || [ $? = 1 ] || fail "suite $name: stopped"
}

if [ "${1:-}" = quick ]; then
    suite journal --quick --with anthill,nginx
    suite hello --quick --with anthill,nginx,lighttpd
    suite matrix --quick --with anthill,nginx --rounds 2
    suite handshake --quick --with anthill,nginx
    suite protocols --quick --with anthill,nginx
    suite growth --quick --with haproxy --rounds 1
    suite agreement --quick --with apache
else
    suite journal
    suite hello
    suite handshake
    suite protocols
    suite dynamic
    suite growth
    suite page
    suite matrix --csv "$results/matrix.csv"
    suite agreement
fi
"$bench" report --published "$results"/*.json -o "$results/report.html"
say "$results/report.html"
