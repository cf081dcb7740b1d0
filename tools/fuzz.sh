#!/bin/sh
# Every fuzz target for a while: FUZZ_SECONDS each, 60 if not said. Needs cargo-fuzz and a nightly
# compiler; the same decoders run bounded, as property tests, in `make test`.
set -eu
. "$(dirname "$0")/setup.sh"

setup build
cargo fuzz --version >/dev/null 2>&1 || fail 'missing: cargo-fuzz - cargo install cargo-fuzz'
cargo +nightly --version >/dev/null 2>&1 || fail 'missing: a nightly compiler - rustup toolchain install nightly'

for source in fuzz/fuzz_targets/*.rs; do
    name=$(basename "$source" .rs)
    say "fuzzing $name"
    cargo +nightly fuzz run "$name" -- -max_total_time="${FUZZ_SECONDS:-60}"
done
