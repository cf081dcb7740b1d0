# Installs the programs that a goal of make needs. The other scripts source this file. The table below lists
# every Debian package that the project uses.
#
# If all programs are installed, the script installs nothing and asks no question.

cd "$(dirname "$0")/.."

# goal     a command, or a file    Debian package
needs='
build      cc                      gcc
build      ar                      binutils
build      /usr/include/stdio.h    libc6-dev
build      /etc/ssl/certs/ca-certificates.crt  ca-certificates
test       curl                    curl
test       openssl                 openssl
test       wget                    wget
test       python3                 python3
test       ps                      procps
test       ssh                     openssh-client
test       sshd                    openssh-server
test       dropbear                dropbear-bin
publish    ssh                     openssh-client
publish    sshd                    openssh-server
publish    curl                    curl
publish    python3                 python3
test       /usr/share/nodejs/ws/package.json  node-ws
test       unshare                 util-linux
test       nsenter                 util-linux
test       setpriv                 util-linux
test       ip                      iproute2
test       tar                     tar
test       sha256sum               coreutils
test       mount                   mount
test       strace                  strace
test       nghttp                  nghttp2-client
test       /usr/lib/python3/dist-packages/h2/__init__.py  python3-h2
test       chromium                chromium
go         go                      golang-go
python     /usr/lib/python3/dist-packages/pip/__init__.py  python3-pip
python     /usr/share/doc/python3-venv     python3-venv
test       ab                      apache2-utils
test       wrk                     wrk
test       siege                   siege
test       h2load                  nghttp2-client
test       valgrind                valgrind
test       nghttpd                 nghttp2-server
test       nginx                   nginx-light
test       apache2                 apache2
test       busybox                 busybox
test       stunnel4                stunnel4
test       haproxy                 haproxy
test       fail2ban-regex          fail2ban
test       lighttpd                lighttpd
test       /usr/lib/lighttpd/mod_openssl.so  lighttpd-mod-openssl
test       certutil                libnss3-tools
test       caddy                   caddy
test       promtool                prometheus
test       /usr/lib/uwsgi/plugins/python3_plugin.so  uwsgi-plugin-python3
test       perl                    perl-base
test       git                     git
test       logrotate               logrotate
test       fail2ban-regex          fail2ban
test       php-cgi8.2              php8.2-cgi
test       php-fpm8.2              php8.2-fpm
test       uwsgi-core              uwsgi-core
test       /usr/lib/uwsgi/plugins/python3_plugin.so  uwsgi-plugin-python3
debian     mmdebstrap              mmdebstrap
release    musl-gcc                musl-tools
cross_arm64 aarch64-linux-gnu-gcc  gcc-aarch64-linux-gnu
cross_armel arm-linux-gnueabi-gcc   gcc-arm-linux-gnueabi
emulation   qemu-arm                qemu-user
peers      nginx                   nginx-light
peers      uwsgi-core              uwsgi-core
peers      apache2                 apache2
peers      lighttpd                lighttpd
peers      /usr/lib/lighttpd/mod_openssl.so  lighttpd-mod-openssl
peers      h2o                     h2o
peers      caddy                   caddy
peers      haproxy                 haproxy
peers      busybox                 busybox
peers      stunnel4                stunnel4
peers      socat                   socat
peers      go                      golang-go
peers      node                    nodejs
peers      python3                 python3
peers      /usr/share/perl5/HTTP/Daemon.pm         libhttp-daemon-perl
peers      /usr/share/perl5/HTTP/Server/Simple.pm  libhttp-server-simple-perl
peers      /usr/share/perl5/Dancer.pm              libdancer-perl
peers      hypnotoad               libmojolicious-perl
peers      wrk                     wrk
peers      ab                      apache2-utils
peers      siege                   siege
peers      h2load                  nghttp2-client
bench      wrk                     wrk
bench      nginx                   nginx-light
bench      lighttpd                lighttpd
bench      haproxy                 haproxy
bench      apache2                 apache2
bench      php-fpm8.2              php8.2-fpm
musl_std   /usr/lib/rustlib/src/rust/library/std/Cargo.toml  rust-web-src
musl_std   /usr/lib/llvm-14/lib/libunwind.a                  libunwind-14-dev
'
# Debian's compiler, for a system without rustup.
rust_packages='rustc-web cargo-web rust-web-clippy rustfmt-web'

say() { printf 'anthill: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
# Servers are in folders outside of an ordinary user's PATH.
have() { PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1; }
is_debian() { have apt-get && [ -e /etc/debian_version ]; }

# setup GOAL…: installs the missing programs of the goals. On failure the function prints one line with the
# missing programs and ends the script.
setup() {
    missing=$(missing_for "$@" package)
    if [ -n "$missing" ]; then
        is_debian || fail "missing: $(missing_for "$@" probe) - install with this system's packages, then again"
        install_packages $missing
        missing=$(missing_for "$@" package)
        [ -z "$missing" ] || fail "still missing after the installation: $missing"
    fi
    setup_rust
}

# missing_for GOAL… package|probe: prints the column of the missing programs of the goals, one per line,
# without duplicates.
missing_for() {
    goals=
    while [ $# -gt 1 ]; do goals="$goals $1"; shift; done
    column=$1
    echo "$needs" | while read -r goal probe package; do
        case " $goals " in *" $goal "*) ;; *) continue ;; esac
        case $probe in
            '') continue ;;
            /*) [ -e "$probe" ] && continue ;;
            *) have "$probe" && continue ;;
        esac
        case $column in package) echo "$package" ;; *) echo "$probe" ;; esac
    done | sort -u | tr '\n' ' ' | sed 's/ $//'
}

# install_packages NAME…: installs packages as root or through sudo. sudo may ask for a password, but not in
# CI. Services of the packages are not started, now or at the next boot: only the programs are needed.
install_packages() {
    as_root=
    if [ "$(id -u)" != 0 ]; then
        have sudo || fail "missing: $* - apt-get install them as root, then again"
        as_root=sudo
        [ "${CI:-}" != true ] || as_root='sudo -n'
    fi
    say "installing $*"
    # A failed update is not fatal: the packages may be in the cache.
    $as_root apt-get -qq update || true
    enabled=$(enabled_services)
    # --no-remove keeps the user's other compilers.
    without_starting_services \
        $as_root env DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes \
        apt-get -qq -y --no-install-recommends --no-remove install "$@" >/dev/null ||
        fail "could not install: $*"
    for service in $(enabled_services); do
        case " $enabled " in *" $service "*) continue ;; esac
        $as_root systemctl --quiet disable --now "$service" || true
    done
}

# setup_h2spec: builds the HTTP/2 conformance test once, into target/tools.
setup_h2spec() {
    setup_go_tool h2spec github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible
}

# setup_pebble: builds an ACME test server and its DNS server once, into target/tools.
setup_pebble() {
    setup_go_tool pebble github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1
    setup_go_tool pebble-challtestsrv \
        github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@v2.10.1
}

# setup_toxiproxy: builds a TCP proxy that disturbs connections once, into target/tools.
setup_toxiproxy() {
    setup_go_tool toxiproxy-server github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0
}

# setup_oauth2_proxy: builds a server for forward authentication once, into target/tools.
setup_oauth2_proxy() {
    setup_go_tool oauth2-proxy github.com/oauth2-proxy/oauth2-proxy/v7@v7.8.1
}

# setup_go_tool NAME PACKAGE: builds a Go tool once, into target/tools. Go names a program after the last
# folder of its package.
setup_go_tool() {
    tools=${CARGO_TARGET_DIR:-target}/tools
    [ ! -x "$tools/$1" ] || return 0
    usable_go
    tools=$(cd "$tools" && pwd)
    say "building $1"
    GOBIN=$tools GOPATH=$tools/go GOFLAGS=-modcacherw "$go" install "$2" >&2 ||
        fail "could not build $1 - it comes from ${2%%@*} by Go"
    rm -rf "$tools/go"
    built=${2%%@*}
    # Go skips the version at the end of a path, such as `v7`.
    [ -x "$tools/$1" ] || mv "$tools/${built##*/}" "$tools/$1"
}

# setup_mdbook: builds the program that makes HTML of the guide once, into target/tools.
mdbook=0.5.4
setup_mdbook() {
    setup build
    tools=${CARGO_TARGET_DIR:-target}/tools
    [ "$("$tools/mdbook" --version 2>/dev/null)" != "mdbook v$mdbook" ] || return 0
    say "building mdbook $mdbook"
    mkdir -p "$tools"
    CARGO_TARGET_DIR=$tools/mdbook-build cargo install --quiet --locked --root "$tools/mdbook-build" \
        --no-default-features --features search "mdbook@$mdbook" >&2 ||
        fail "could not build mdbook $mdbook - it comes from crates.io by cargo"
    mv "$tools/mdbook-build/bin/mdbook" "$tools/mdbook"
    rm -rf "$tools/mdbook-build"
}

# usable_go: sets `go` to a Go of version 1.21 or later, which downloads a newer Go for a module that
# requires one. Debian 12 has an older Go, which downloads the newer Go as a module.
newer_go=1.26.8
usable_go() {
    tools=${CARGO_TARGET_DIR:-target}/tools
    mkdir -p "$tools"
    have go || [ ! -x /usr/local/go/bin/go ] || PATH=$PATH:/usr/local/go/bin
    setup go
    go=go
    export GOTOOLCHAIN=auto
    case $(go env GOVERSION) in
        go1.[0-9] | go1.[0-9].* | go1.1[0-9] | go1.1[0-9].* | go1.20 | go1.20.*) ;;
        *) return 0 ;;
    esac
    toolchain=golang.org/toolchain@v0.0.1-go$newer_go.$(go env GOOS)-$(go env GOARCH)
    go=$(cd "$tools" && pwd)/newer-go/$toolchain/bin/go
    [ ! -x "$go" ] || return 0
    say "fetching Go $newer_go, since $(go env GOVERSION) is too old"
    (cd "$tools" && GOMODCACHE=$PWD/newer-go GOFLAGS=-modcacherw command go mod download "$toolchain") >&2 ||
        fail "could not fetch Go $newer_go - any version from 1.21 on works"
    # Programs in a module lose their execute permission.
    chmod -R a+x "${go%/go}" "${go%/bin/go}/pkg/tool"
    rm -rf "$tools/newer-go/cache"
}

# setup_python: installs HTTP/3 clients, a WebSocket library, gRPC, and the driver of a browser with the rules of
# accessibility from PyPI in an environment in target/tools. The browser itself is Debian's chromium.
# The versions are pinned, so that a failed test has its cause in the project.
python_packages='aioquic==1.7.2 niquests==3.21.2 websockets==15.0.1 grpcio==1.85.1 playwright==1.65.2 axe-playwright-python==0.1.8'
setup_python() {
    python_environment python "$python_packages"
}

# setup_recipes: installs the applications of docs/src/recipes-applications.md that PyPI has, in an environment of their
# own in target/tools, since their dependencies differ from those of the clients.
recipe_packages='Django==5.2.19 gunicorn==27.0.1 matrix-synapse==1.163.2'
setup_recipes() {
    python_environment recipes "$recipe_packages"
}

# python_environment NAME PACKAGES: makes the environment NAME in target/tools with exactly these packages, unless it is
# there.
python_environment() {
    python=${CARGO_TARGET_DIR:-target}/tools/$1
    versions='import sys; from importlib.metadata import version; print(*(f"{name}=={version(name)}" for name in sys.argv[1:]))'
    is_there=$("$python/bin/python" -c "$versions" $(echo "$2" | sed 's/==[^ ]*//g') 2>/dev/null) || true
    [ "$is_there" != "$2" ] || return 0
    setup python
    say "fetching $2"
    rm -rf "$python"
    mkdir -p "${python%/*}"
    python3 -m venv "$python" &&
        "$python/bin/python" -m pip --quiet --disable-pip-version-check install $2 >&2 ||
        fail "could not fetch $2 - pip has them from PyPI"
}

# setup_debian: makes a Debian system with systemd once, in target/tools, for the tests of the installed service. Only root
# can make the system and start systemd in namespaces.
debian_packages='systemd,systemd-sysv,dbus,passwd,acl,curl,iproute2,openssl,git,openssh-server,php8.2-fpm'
setup_debian() {
    if [ "$(id -u)" != 0 ]; then
        say 'the tests with systemd need root, and test nothing without: sudo -E make test'
        return 0
    fi
    system=${CARGO_TARGET_DIR:-target}/tools/debian
    [ "$(cat "$system/packages" 2>/dev/null)" != "$debian_packages" ] || return 0
    setup debian
    say "making a Debian system with systemd, of about 300 MB"
    rm -rf "$system" "$system.new"
    mkdir -p "${system%/*}"
    mmdebstrap --quiet --mode=root --variant=apt --include="$debian_packages" --dpkgopt=force-unsafe-io \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$system.new" >&2 ||
        fail "could not make a Debian system - mmdebstrap has its packages from Debian's servers"
    echo "$debian_packages" >"$system.new/packages"
    mv "$system.new" "$system"
}

# fetch_service_packages FOLDER: fetches the packages of setup_services. A machine perhaps has no lists of packages, or old ones.
# shellcheck disable=SC2086 # The packages are several words.
fetch_service_packages() (cd "$1" && apt-get -qq download $service_packages >&2)

# setup_services: unpacks service managers once, into target/tools, for the tests of services. They are not installed: OpenRC
# and systemd exclude each other, and a cron would run on the machine.
service_packages='runit s6 libs6-2.11 libskarnet2.13 libexecline2.9 openrc librc1 libeinfo1 cron'
setup_services() {
    tree=${CARGO_TARGET_DIR:-target}/tools/services
    [ "$(cat "$tree/packages" 2>/dev/null)" != "$service_packages" ] || return 0
    is_debian || fail "missing: $service_packages of Debian 12, for the tests of services"
    say "unpacking $service_packages"
    rm -rf "$tree" "$tree.new"
    mkdir -p "$tree.new/packed"
    fetch_service_packages "$tree.new/packed" ||
        { $as_root apt-get -qq update >&2 && fetch_service_packages "$tree.new/packed"; } ||
        fail "could not fetch $service_packages from Debian's servers"
    for package in "$tree.new"/packed/*.deb; do dpkg-deb --extract "$package" "$tree.new"; done
    # Debian has /bin, /lib and /sbin below /usr.
    for folder in bin lib sbin; do
        [ ! -d "$tree.new/$folder" ] || cp -a "$tree.new/$folder" "$tree.new/usr/"
        rm -rf "$tree.new/$folder"
    done
    rm -rf "$tree.new/packed" "$tree.new/usr/share"
    echo "$service_packages" >"$tree.new/packages"
    mv "$tree.new" "$tree"
}

# enabled_services: prints the services that systemd starts at boot, in one line; nothing without systemd.
enabled_services() {
    [ -d /run/systemd/system ] || return 0
    systemctl list-unit-files --type=service --state=enabled --no-legend | cut -d' ' -f1 | tr '\n' ' '
}

# without_starting_services COMMAND…: runs a command with a policy file by which Debian's packages do not
# start their services. An existing policy file stays unchanged.
services_policy=/usr/sbin/policy-rc.d
without_starting_services() (
    if [ ! -e "$services_policy" ]; then
        trap '$as_root rm -f "$services_policy"' EXIT
        trap 'exit 130' INT TERM
        printf '#!/bin/sh\nexit 101\n' | $as_root tee "$services_policy" >/dev/null
        $as_root chmod 755 "$services_policy"
    fi
    "$@"
)

# setup_rust: puts a recent cargo with rustfmt and clippy in the PATH. The order: the pinned toolchain of
# rustup, another toolchain of rustup, an installed cargo, Debian's cargo.
setup_rust() {
    have cargo || [ ! -x "$HOME/.cargo/bin/cargo" ] || PATH=$HOME/.cargo/bin:$PATH
    if have rustup; then
        rust_is_usable && return
        pinned=$(toml_string rust-toolchain.toml channel)
        say "fetching Rust $pinned"
        rustup toolchain install "$pinned" --profile minimal -c clippy -c rustfmt >&2 || true
        rust_is_usable && return
        RUSTUP_TOOLCHAIN=stable
        export RUSTUP_TOOLCHAIN
        rust_is_usable && { say "Rust $pinned is not available; using $(cargo --version)"; return; }
        fail "missing: Rust $pinned with clippy and rustfmt - rustup toolchain install $pinned"
    fi
    rust_is_usable && return
    is_debian || fail "missing: Rust $(toml_string Cargo.toml rust-version) or later with clippy and rustfmt - https://rustup.rs has it"
    install_packages $rust_packages
    rust_is_usable || fail "missing: Rust $(toml_string Cargo.toml rust-version) or later; here is $(cargo --version) - https://rustup.rs has it"
}

rust_is_usable() {
    version=$(cargo --version 2>/dev/null | cut -d' ' -f2)
    [ -n "$version" ] || return 1
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 || return 1
    oldest=$(toml_string Cargo.toml rust-version)
    [ "$(printf '%s\n%s\n' "$oldest" "$version" | sort -V | head -n1)" = "$oldest" ]
}

# rust_is_pinned: succeeds if the compiler has the version of rust-toolchain.toml.
rust_is_pinned() {
    [ "$(rustc --version | cut -d' ' -f2)" = "$(toml_string rust-toolchain.toml channel)" ]
}

# test_folder: prints the folder for the temporary files of tests: one in memory, if 4 GB of memory are free. The tests make
# servers and git flush thousands of files, for which a disk needs minutes.
test_folder() {
    memory=/dev/shm
    space=$(df --output=avail -k "$memory" 2>/dev/null | tail -n1) || space=0
    free=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo)
    if [ -z "${TMPDIR:-}" ] && [ "${space:-0}" -gt 4194304 ] && [ "${free:-0}" -gt 4194304 ]; then
        echo "$memory"
    else
        echo "${TMPDIR:-/tmp}"
    fi
}

# toml_string FILE KEY: prints the string in the first line that begins with KEY.
toml_string() { sed -n "s/^$2 *= *\"\\(.*\\)\".*/\\1/p" "$1" | head -n1; }
