#!/bin/sh
# Runs examples/publish: two hosts on the loopback interface, a publication by ssh, a refused one and a rollback.
set -eu
. "$(dirname "$0")/setup.sh"

setup build publish
cargo build --locked --release -p anthill -p anthill-publish
rm -rf target/publish
exec sh examples/publish/demo.sh "$PWD/target/release/anthill" target/publish
