#!/bin/sh
# Builds one static binary on musl: [TARGET=…] tools/release.sh [tiny] TARGET is a Rust target for another
# processor (cross.sh); the default is the processor of the machine. `tiny` uses the small build of the
# cryptographic library and optimises for size: two thirds of the size, and about a third more instructions for a page
# and for a full TLS handshake. It leaves out what docs/src/installation.md lists. AVX512=1 adds the code of the
# cryptographic library for AVX-512: 700 KB, for servers that send large files over TLS on processors with these
# instructions.
set -eu
. "$(dirname "$0")/setup.sh"

own_target=$(uname -m)-unknown-linux-musl
target=${TARGET:-$own_target}
target_dir=target
# The features of a release; tests/release.rs checks the list.
features='--no-default-features --features backup,http3,markdown,manager,releases,repository-pages'
if [ "${1:-}" = tiny ]; then
    AWS_LC_SYS_SMALL=1
    export AWS_LC_SYS_SMALL
    target_dir=target/tiny
    # The tiny build optimises all code for size, the C of AWS-LC included (40 KB), and unrolls less of tokio.
    features='--no-default-features --config profile.release.package."*".opt-level="z" --config profile.release.package.anthill-base.opt-level="z" --config profile.release.package.anthill-data-plane.opt-level="z" --config profile.release.package.tokio.opt-level=2 --config profile.release.package.aws-lc-sys.opt-level="s"'
fi

# The standard library is built with the program: for size, and without the line names of backtraces, since
# the stripped binary has none. `optimize_for_size` chooses short algorithms for sorting and for numbers as text, which
# saves 60 KB. Cargo requires RUSTC_BOOTSTRAP for this unstable option.
RUSTC_BOOTSTRAP=1
export RUSTC_BOOTSTRAP
own_std='-Zbuild-std=std,panic_unwind -Zbuild-std-features=panic-unwind,optimize_for_size'

# A panic doesn't name its line: the names and numbers of all lines that may panic take about 120 KB, and those of the
# libraries would show the folders of the machine that built the program. A debug build names the lines.
# `{:?}` of a derived type prints the name of the type or variant without its fields, which saves 40 KB.
#
# Functions that never panic need no tables for unwinding: without `force-unwind-tables`, the other functions have them.
# Functions with frame pointers need shorter tables, which saves 160 KB in the tiny build. In a release
# they would cost the data plane 3 % of its instructions, so only the control plane and some libraries have them.

# set_flags PROFILE FLAG...: prints cargo's arguments that set the compiler flags of a profile or of a package in it.
set_flags() {
    profile=$1 list=
    shift
    for flag in "$@"; do list="$list${list:+,}\"$flag\""; done
    printf -- '--config %s.rustflags=[%s] ' "$profile" "$list"
}
lean='-Zlocation-detail=none -Zfmt-debug=shallow -Cforce-unwind-tables=no'
framed=-Cforce-frame-pointers=yes
flags="$(set_flags profile.release $framed $lean)"
if [ "${1:-}" = tiny ]; then
    flags="$flags$(set_flags 'profile.release.package."*"' $framed $lean)"
else
    flags="$flags$(set_flags 'profile.release.package."*"' $lean)$(set_flags profile.release.package.anthill-base $lean)$(set_flags profile.release.package.anthill-data-plane $lean)"
    for cold in pulldown-cmark quinn quinn-proto rustls rustls-webpki toml toml_parser; do
        flags="$flags$(set_flags profile.release.package.$cold $framed $lean)"
    done
fi
flags="-Zprofile-rustflags $flags"

# Flags for the C of AWS-LC. Panics never unwind through C, so C needs no tables for unwinding, which take 80 KB. No
# certificate of TLS is signed by ML-DSA so far, so its assembly never runs, and takes 40 KB.
#
# The kernels of AES-GCM for AVX-512 take 700 KB. Without them, a file of 512 KB over TLS takes 24 % more CPU time on a
# processor with AVX-512 (205 instead of 165 µs, 7 interleaved rounds), which is still less than with other servers, and
# pages and handshakes take the same time. All other processors never run the kernels.
c_flags='-fno-asynchronous-unwind-tables -fno-unwind-tables -fno-exceptions -DMLD_CONFIG_NO_ASM'
[ -n "${AVX512:-}" ] || c_flags="$c_flags -DMY_ASSEMBLER_IS_TOO_OLD_FOR_512AVX"
export "CFLAGS_$(echo "$target" | tr - _)=$c_flags"

# has_std_source: succeeds if the source of Rust's library is installed, or installs the source.
has_std_source() { rustup component list --installed | grep -qx rust-src || rustup component add rust-src; }

# LLVM's linker comes with Rust and merges functions with the same machine code, which saves 45 KB, and equal
# constants, which saves 97 KB: AWS-LC has two copies of each table of Curve25519. No code compares addresses of
# constants. If LLVM's linker is missing, the script uses the system's linker.
own_linker=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/gcc-ld
link=
[ ! -x "$own_linker/ld.lld" ] || link="-Clink-arg=-fuse-ld=lld -Clink-arg=-B$own_linker -Clink-arg=-Wl,--icf=all -Clink-arg=-Wl,--ignore-data-address-equality"

# build_for_target: builds the program for $target into $target_dir, with the arguments in $own_std, $flags and $link.
build_for_target() {
    # shellcheck disable=SC2086
    cargo rustc --locked --release -p anthill --bin anthill --target "$target" --target-dir "$target_dir" $features $own_std $flags -- $link
}

if [ "$target" != "$own_target" ]; then
    . tools/cross.sh
    build_for_other
else
    setup build release
    export "CC_$(echo "$target" | tr - _)=musl-gcc"
    if have rustup; then
        rustup target list --installed | grep -qx "$target" || rustup target add "$target"
        has_std_source || { say "without the source of Rust's library the binary is larger"; own_std=; }
        build_for_target
    else
        . tools/musl_std.sh
        build_with_own_std
    fi
fi

binary=$target_dir/$target/release/anthill
# Where the dynamic linker of a program is missing, the program does not start.
! readelf -l "$binary" | grep -q INTERP || fail "$binary names a dynamic linker, and must not"
say "$binary, $(wc -c <"$binary") bytes"
