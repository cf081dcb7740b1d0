#!/bin/sh
# Serves examples/journal from the release build.
set -eu
. "$(dirname "$0")/setup.sh"

setup build
cargo build --locked --release -p anthill
say 'examples/journal on https://localhost:8443 and http://localhost:8080 (Ctrl-C stops)'
say 'the certificate is self-signed, so the browser warns once'
exec target/release/anthill serve examples/journal/anthill.toml
