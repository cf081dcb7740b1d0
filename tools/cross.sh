# Sourced by release.sh for another processor: installs Debian's cross compiler, and Debian's musl for the
# processor below target/.

# build_for_other: runs `cargo build` for $target into $target_dir.
build_for_other() {
    is_debian || fail "TARGET=$target is built on Debian alone, with its cross compilers"
    setup build
    have rustup || fail "TARGET=$target needs rustup, for its standard library or the source of one - https://rustup.rs"
    case $target in
        aarch64-unknown-linux-musl)
            setup cross_arm64
            cross_compiler arm64 aarch64-linux-gnu-gcc aarch64-linux-musl
            rustup target list --installed | grep -qx "$target" || rustup target add "$target"
            # Only the linker is needed: rustup has the libraries.
            linker=aarch64-linux-gnu-gcc
            ;;
        arm-unknown-linux-musleabi)
            # No ready standard library exists for the target, so the script builds one. Debian's armel is
            # code for ARMv5 without floating point, which runs on every ARM; Debian's armhf does not run on
            # an ARMv6.
            setup cross_armel
            cross_compiler armel arm-linux-gnueabi-gcc arm-linux-musleabi
            with_own_std
            has_std_source || fail "TARGET=$target needs the source of Rust's library - rustup component add rust-src"
            cp "$(arm-linux-gnueabi-gcc -print-file-name=libgcc_eh.a)" "$musl/libunwind.a"
            linker=$musl/gcc
            export RUSTFLAGS="-Clink-self-contained=no -Lnative=$musl"
            # Debian's settings for musl name a dynamic linker for static programs too. LLVM's linker then asks the
            # kernel for a file that no Raspberry Pi has.
            RUSTFLAGS="$RUSTFLAGS -Clink-arg=-Wl,--no-dynamic-linker"
            ;;
        *) fail "TARGET=$target is not known; known are $own_target, aarch64-unknown-linux-musl (64-bit ARM) and arm-unknown-linux-musleabi (32-bit ARM, from ARMv6)" ;;
    esac
    export "CC_$(echo "$target" | tr - _)=$musl/gcc"
    export "CARGO_TARGET_$(echo "$target" | tr 'a-z-' 'A-Z_')_LINKER=$linker"
    build_for_target
}

# cross_compiler ARCHITECTURE COMPILER TRIPLE: sets `musl` to a folder with Debian's musl-dev for Debian's
# ARCHITECTURE, and with `gcc`, which compiles against musl.
cross_compiler() {
    musl=$PWD/target/musl-$1
    [ ! -x "$musl/gcc" ] || return 0
    say "fetching musl-dev for $1"
    rm -rf "$musl"
    mkdir -p "$musl/lists/partial" "$musl/cache/archives/partial"
    # apt uses the other architecture with separate lists, so the lists of the system stay unchanged.
    cat >"$musl/apt.conf" <<CONF
APT::Architecture "$1";
APT::Architectures { "$1"; };
APT::Sandbox::User "root";
Dir::State::lists "$musl/lists";
Dir::State::status "/dev/null";
Dir::Cache "$musl/cache";
CONF
    (
        cd "$musl"
        export APT_CONFIG="$musl/apt.conf"
        apt-get -qq update && apt-get -qq download musl-dev
    ) >&2 || fail "could not fetch musl-dev for $1 with apt-get - Debian's archive has it"
    dpkg-deb -x "$musl"/musl-dev_*.deb "$musl"
    sed "s#/usr/\(lib\|include\)/$3#$musl&#g" "$musl/usr/lib/$3/musl-gcc.specs" >"$musl/specs"
    printf '#!/bin/sh\nexec %s "$@" -specs %s\n' "$2" "$musl/specs" >"$musl/gcc"
    chmod +x "$musl/gcc"
    rm -rf "$musl/lists" "$musl/cache" "$musl"/musl-dev_*.deb
}
