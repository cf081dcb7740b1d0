#!/bin/sh
# Builds one static binary on musl: [TARGET=…] tools/release.sh [tiny]. TARGET is a Rust target for another processor
# (cross.sh); the default is the processor of the machine. With rustup, the binary is the one of
#
#     cargo build --locked --release --target x86_64-unknown-linux-musl -p anthill
#
# byte for byte: Cargo.toml has the levels of optimisation, and .cargo/config.toml the flags.
#
# `tiny` uses the small build of the cryptographic library and optimises for size: three fifths of the size, two fifths
# more instructions for a page, and 2.4 times as many for a full TLS handshake. It leaves out what
# docs/src/installation.md lists.
# AVX512=1 adds the code of the cryptographic library for AVX-512: 680 KB, for servers that send large files over TLS on
# processors with these instructions.
set -eu
. "$(dirname "$0")/setup.sh"

own_target=$(uname -m)-unknown-linux-musl
target=${TARGET:-$own_target}
profile=release
features=
if [ "${1:-}" = tiny ]; then
    AWS_LC_SYS_SMALL=1
    export AWS_LC_SYS_SMALL
    profile=tiny
    features=--no-default-features
    # Functions with frame pointers need shorter tables for unwinding: 160 KB. LLVM's linker comes with Rust and merges
    # functions with the same machine code, and equal constants: 140 KB. No code compares addresses of constants.
    flags='-Cforce-frame-pointers=yes -Clink-arg=-Wl,-z,pack-relative-relocs'
    own_linker=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/gcc-ld
    if [ -x "$own_linker/ld.lld" ]; then
        flags="$flags -Clink-arg=-fuse-ld=lld -Clink-arg=-B$own_linker -Clink-arg=-Wl,--icf=all -Clink-arg=-Wl,--ignore-data-address-equality"
    fi
    export "CARGO_TARGET_$(echo "$target" | tr 'a-z-' 'A-Z_')_RUSTFLAGS=$flags"
fi
if [ -n "${AVX512:-}" ]; then
    c_flags="CFLAGS_$(echo "$target" | tr - _)"
    export "$c_flags=$(toml_string .cargo/config.toml "$c_flags" | sed 's/-DMY_ASSEMBLER_IS_TOO_OLD_FOR_512AVX//')"
fi

# Where no ready standard library exists, it is built with the program. Cargo requires RUSTC_BOOTSTRAP for the unstable
# option.
own_std=
with_own_std() {
    RUSTC_BOOTSTRAP=1
    export RUSTC_BOOTSTRAP
    own_std=-Zbuild-std=std,panic_unwind
}

# has_std_source: succeeds if the source of Rust's library is installed, or installs the source.
has_std_source() { rustup component list --installed | grep -qx rust-src || rustup component add rust-src; }

# build_for_target: builds the program for $target, with the arguments in $own_std.
build_for_target() {
    # shellcheck disable=SC2086
    cargo build --locked --profile "$profile" -p anthill --bin anthill --target "$target" $features $own_std
}

if [ "$target" != "$own_target" ]; then
    . tools/cross.sh
    build_for_other
else
    setup build release
    if have rustup; then
        rustup target list --installed | grep -qx "$target" || rustup target add "$target"
        build_for_target
    else
        . tools/musl_std.sh
        build_with_own_std
    fi
fi

binary=target/$target/$profile/anthill
# Where the dynamic linker of a program is missing, the program does not start.
! readelf -l "$binary" | grep -q INTERP || fail "$binary names a dynamic linker, and must not"
say "$binary, $(wc -c <"$binary") bytes"
