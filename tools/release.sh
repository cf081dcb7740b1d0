#!/bin/sh
# One static binary on musl: tools/release.sh [tiny]
# `tiny` takes the small build of the cryptographic library: a third off the size, the same speed
# per page, about a third more CPU for a full TLS handshake. It is without HTTP/3.
set -eu
. "$(dirname "$0")/setup.sh"

setup build release
target=$(uname -m)-unknown-linux-musl
target_dir=target
features=
if [ "${1:-}" = tiny ]; then
    AWS_LC_SYS_SMALL=1
    export AWS_LC_SYS_SMALL
    target_dir=target/tiny
    features=--no-default-features
fi
export "CC_$(echo "$target" | tr - _)=musl-gcc"

if have rustup; then
    rustup target list --installed | grep -qx "$target" || rustup target add "$target"
    cargo build --locked --release -p anthill --target "$target" --target-dir "$target_dir" $features
else
    . tools/musl_std.sh
    build_with_own_std
fi

binary=$target_dir/$target/release/anthill
say "$binary, $(wc -c <"$binary") bytes"
