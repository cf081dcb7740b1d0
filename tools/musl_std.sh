# Sourced by release.sh on a system without rustup: Debian's compiler has no standard library for musl, but
# Debian has the source. The script builds the library with the program, against Debian's musl and LLVM's
# unwinder.

# build_with_own_std: runs `cargo build` for $target into $target_dir, with the arguments in $own_std.
build_with_own_std() {
    setup musl_std
    with_own_std
    unwinder=$PWD/target/musl-unwinder
    mkdir -p "$unwinder"
    cp /usr/lib/llvm-14/lib/libunwind.a "$unwinder/libunwind.a"
    # Debian's hardened unwinder calls one function of glibc that musl lacks.
    cat >"$unwinder/chk.c" <<'C'
#include <stdarg.h>
#include <stdio.h>
int __fprintf_chk(FILE *to, int flag, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int written = vfprintf(to, format, list);
    va_end(list);
    (void)flag;
    return written;
}
C
    musl-gcc -O2 -c "$unwinder/chk.c" -o "$unwinder/chk.o"
    ar r "$unwinder/libunwind.a" "$unwinder/chk.o"

    export "CARGO_TARGET_$(echo "$target" | tr 'a-z-' 'A-Z_')_LINKER=musl-gcc"
    export "CC_$(echo "$target" | tr - _)=musl-gcc"
    export RUSTFLAGS="-Clink-self-contained=no -Lnative=$unwinder"
    build_for_target
}
