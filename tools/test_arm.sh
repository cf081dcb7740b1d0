#!/bin/sh
# Tests the program of a Raspberry Pi Zero under emulation: tools/test_arm.sh [BINARY] Publishes a folder to
# `anthill receive` on an ARM1176 of QEMU, publishes a change, rolls back, and asks the emulated server for the page. Then
# runs the end-to-end tests of the serving path with the emulated program.
# BINARY is a build for arm-unknown-linux-musleabi; without it, the script makes the build.
set -eu
. "$(dirname "$0")/setup.sh"
. tools/shipped_tests.sh

setup build test emulation
setup_h2spec
setup_python
binary=${1:-}
if [ -z "$binary" ]; then
    TARGET=arm-unknown-linux-musleabi sh tools/release.sh
    binary=target/arm-unknown-linux-musleabi/release/anthill
fi
cargo build --locked --release -p anthill-publish
publisher=$PWD/target/release/anthill-publish
emulator="qemu-arm -cpu arm1176 $(realpath "$binary")"
root=$PWD

folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$folder"' EXIT
cd "$folder"
export XDG_CACHE_HOME="$folder/cache"
mkdir site state state/releases state/served
for page in 1 2 3; do
    { echo '<!DOCTYPE html><title>page</title>'; seq "$page" 2000; } >"site/$page.html"
done
head -c 300000 /dev/urandom >site/photo.jpg
echo one >site/index.html
printf '#!/bin/sh\nexec %s receive www --store %s/state/releases --rights publish --publisher ann\n' "$emulator" "$folder" >ssh
chmod +x ssh
cat >anthill.toml <<'CONF'
[server]
https = []
http = ["127.0.0.1:0"]
state = "state"
control = "control"
[[site]]
names = ["*"]
http = "serve"
release = "www"
CONF

# expect TEXT COMMAND...: runs a command, and fails unless its output has the text.
expect() {
    text=$1
    shift
    out=$("$@" 2>&1) || true
    case $out in
        *"$text"*) say "ok: $text" ;;
        *) fail "$* printed no \`$text\`: $out" ;;
    esac
}

$emulator serve anthill.toml >server.log 2>&1 &
server=$!
tries=0
until url=$(grep -o 'http://[^ ]*' server.log); do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || fail "the emulated server did not start: $(cat server.log)"
    sleep 0.2
done

publish() { "$publisher" publish --ssh "$folder/ssh" site zero; }
expect 'published, sequence 1, served by all workers' publish
expect 'unchanged, sequence 1' publish
expect 'one' curl -s "$url/"
echo two >site/index.html
expect 'published, sequence 2, served by all workers' publish
expect 'two' curl -s "$url/"
curl -s -o photo "$url/photo.jpg"
cmp site/photo.jpg photo || fail 'the served photo differs'
# The texts were decoded by the emulated receiver from their gzip contents.
for page in 1 2 3; do
    curl -s "$url/$page.html" | cmp - "site/$page.html" || fail "the served page $page differs"
done
expect 'contents 12' "$publisher" releases verify --ssh "$folder/ssh" zero
id=$("$publisher" releases verify --ssh "$folder/ssh" zero | sed -n 's/^release //p' | tail -1)
expect 'only the rights `all` withdraw releases' "$publisher" releases withdraw --ssh "$folder/ssh" zero "$id"
expect 'served by all workers' "$publisher" rollback --ssh "$folder/ssh" zero
expect 'one' curl -s "$url/"
say 'the receiver and the server work on an ARM1176'

# The tests start the program by a script.
cd "$root"
mkdir -p target/shipped-arm
printf '#!/bin/sh\nexec %s "$@"\n' "$emulator" >target/shipped-arm/anthill
chmod +x target/shipped-arm/anthill
# The emulator has a thread of its own, so the program keeps its account, its capabilities and no sockets of a service
# manager. It starts programs by fork(2), so a missing program shows at its end and not at its start, and the start has no
# trace of the program's own.
unlike_under_emulation='
    cgi::a_path_without_a_script_is_refused_with_its_rule
    cgi::a_script_starts_without_a_copy_of_the_server
    lifecycle::datagram_sockets_that_are_passed_in_serve_http_3
    lifecycle::root_becomes_the_user_after_binding
    lifecycle::sockets_that_are_passed_in_are_served_on'
# An emulated program is 10 times as slow.
: "${RUST_TEST_THREADS:=$(nproc)}"
skipped="$skipped $unlike_under_emulation"
test_shipped "$PWD/target/shipped-arm/anthill" http:: site:: access:: tls:: tls_records:: h2:: watch:: lifecycle:: cgi::
