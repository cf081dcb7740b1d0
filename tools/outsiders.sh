#!/bin/sh
# Runs test suites of other projects against the server: tools/outsiders.sh [SUITE…], by default all suites. A
# suite is a script in tools/outsiders/; docs/src/outsiders.md lists the suites, the required checkouts and
# the results.
#
# OUTSIDERS   folder with a checkout of each suite (default: target/outsiders)
# ANTHILL     the binary to test (default: the static release; a debug build also works)
set -eu
. "$(dirname "$0")/setup.sh"

OUTSIDERS=${OUTSIDERS:-$PWD/target/outsiders}
ANTHILL=${ANTHILL:-$PWD/target/$(uname -m)-unknown-linux-musl/release/anthill}
export OUTSIDERS ANTHILL
[ -x "$ANTHILL" ] || fail "$ANTHILL is missing - \`make release\` builds it, or ANTHILL=… names another binary"

results=$PWD/target/outsiders-results
# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- $(cd tools/outsiders && ls ./*.sh | sed 's#^\./##; s#\.sh$##')
failed=
for suite; do
    script=tools/outsiders/$suite.sh
    [ -f "$script" ] || fail "there is no suite $suite - see tools/outsiders/"
    OUT=$results/$suite
    export OUT
    rm -rf "$OUT"
    mkdir -p "$OUT"
    say "$suite"
    sh "$script" || failed="$failed $suite"
done
say "details are in $results"
[ -z "$failed" ] || fail "failed suites:$failed"
