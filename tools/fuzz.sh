#!/bin/sh
# Runs every fuzz target: FUZZ_SECONDS each (default: 60), or FUZZ_RUNS inputs each. With a nightly compiler
# the address sanitizer is on; without a nightly compiler the targets run without the sanitizer, since the
# decoders contain no `unsafe`. `make test` runs the same decoders as bounded property tests.
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
    # Without a nightly compiler $toolchain is unset, and the argument is omitted instead of empty.
    # shellcheck disable=SC2086
    cargo $toolchain fuzz run --sanitizer "$sanitizer" "$name" -- "$limit"
done
