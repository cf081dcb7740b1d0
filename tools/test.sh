#!/bin/sh
# All tests: format, lints, then unit and end to end, whose counts come last.
set -eu
. "$(dirname "$0")/setup.sh"

setup build test
setup_h2spec
setup_pebble
setup_python

say 'format'
cargo fmt --all --check

say 'lints'
if rust_is_pinned; then
    cargo clippy --locked --workspace --all-targets -- -D warnings
else
    # Another compiler knows other lints; they are shown, but only the pinned one's are the law.
    cargo clippy --locked --workspace --all-targets
fi

say 'tests'
# End to end they wait more than they work, so there may be more of them than processors.
: "${RUST_TEST_THREADS:=$((3 * $(nproc)))}"
export RUST_TEST_THREADS
cargo test --locked --workspace --no-fail-fast
