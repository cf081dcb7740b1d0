#!/bin/sh
# Runs the end-to-end tests with the program that is shipped: tools/test_release.sh [tiny] [FILTER…].
# `tiny` tests the program of `make tiny`. FILTER is a part of the name of a test, as for `cargo test`.
set -eu
. "$(dirname "$0")/setup.sh"
. tools/shipped_tests.sh

setup build test release
setup_h2spec
setup_pebble
setup_toxiproxy
setup_oauth2_proxy
setup_python
setup_recipes
setup_debian
setup_services

profile=release
if [ "${1:-}" = tiny ]; then
    shift
    profile=tiny
    skipped="$skipped $left_out"
    sh tools/release.sh tiny
else
    sh tools/release.sh
fi
# The server looks for `anthill-publish` beside itself. The publisher comes from the tests' own build.
cargo build --locked -p anthill-publish
shipped=$PWD/target/shipped-$profile
mkdir -p "$shipped"
cp "target/$(uname -m)-unknown-linux-musl/$profile/anthill" target/debug/anthill-publish "$shipped/"
test_shipped "$shipped/anthill" "$@"
