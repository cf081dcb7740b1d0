#!/bin/sh
# Every fuzz target for a while: FUZZ_SECONDS each (60 if not said), or FUZZ_RUNS inputs each.
# With a nightly compiler the address sanitizer watches; without one the targets run all the same, for
# there is no `unsafe` in what they call. The same decoders run bounded, as property tests, in
# `make test`.
set -eu
. "$(dirname "$0")/setup.sh"

setup build
cargo fuzz --version >/dev/null 2>&1 || fail 'missing: cargo-fuzz - cargo install cargo-fuzz'

if cargo +nightly --version >/dev/null 2>&1; then
    toolchain=+nightly sanitizer=address
else
    toolchain= sanitizer=none
fi
if [ -n "${FUZZ_RUNS:-}" ]; then
    limit="-runs=$FUZZ_RUNS"
else
    limit="-max_total_time=${FUZZ_SECONDS:-60}"
fi

for source in fuzz/fuzz_targets/*.rs; do
    name=$(basename "$source" .rs)
    say "fuzzing $name"
    # Without a nightly compiler there is no word for the toolchain: it is left out, not empty.
    # shellcheck disable=SC2086
    cargo $toolchain fuzz run --sanitizer "$sanitizer" "$name" -- "$limit"
done
