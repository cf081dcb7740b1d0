#!/bin/sh
# Runs all checks and tests: prose, format, lints, unit tests and end-to-end tests, and last the count of instructions
# against the budget in tools/instructions.txt.
set -eu
. "$(dirname "$0")/setup.sh"

setup build test
setup_h2spec
setup_pebble
setup_toxiproxy
setup_oauth2_proxy
setup_python
setup_recipes
setup_debian
setup_services

# Limits of tools/prose.py for the whole repository: a fence against a landslide, and no goal.
prose_limits='--max-pro-forms 7 --max-people-words 0.5 --max-openings 10'

say 'prose'
# shellcheck disable=SC2086 # The limits are several words.
python3 tools/prose.py --files 5 --lines 5 $prose_limits

say 'format'
cargo fmt --all --check

say 'lints'
if rust_is_pinned; then
    cargo clippy --locked --workspace --all-targets -- -D warnings
else
    # Another compiler version has other lints: print its warnings, but fail only with the pinned version.
    cargo clippy --locked --workspace --all-targets
fi

# `make tiny` builds without the default features.
cargo check --locked -p anthill --bin anthill --no-default-features

say 'tests'
# End-to-end tests mostly wait, so more tests than processors run at the same time.
: "${RUST_TEST_THREADS:=$((3 * $(nproc)))}"
export RUST_TEST_THREADS
TMPDIR=$(test_folder) cargo test --locked --workspace --no-fail-fast

# The instructions of a request, of the program as shipped. Other compilers and processors print the figures only.
say 'instructions'
sh tools/release.sh
if rust_is_pinned && [ "$(uname -m)" = x86_64 ]; then
    python3 tools/instructions.py --budget tools/instructions.txt
else
    python3 tools/instructions.py
fi
