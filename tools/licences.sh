#!/bin/sh
# Checks licences and sources of all dependencies against deny.toml.
set -eu
. "$(dirname "$0")/setup.sh"

setup_rust
cargo deny --version >/dev/null 2>&1 || fail 'missing: cargo-deny - cargo install --locked cargo-deny'
cargo deny --all-features check bans licenses sources
