#!/bin/sh
# slowhttptest: slow heads, slow bodies, slow reading, overlapping ranges, 1,000 connections each.
# https://github.com/shekyan/slowhttptest, commit 81e89cf7bc6a41fa3ff8dd9c5de3f143f5f9c089, built in
# $OUTSIDERS/slowhttptest, or Debian's package slowhttptest (1.8.2).
# The script takes OUTSIDERS, ANTHILL and OUT from the environment. A case passes if the server answered the
# probe during the whole attack and, except in the case of ranges, closed all connections of the attack.
set -eu
attack=$OUTSIDERS/slowhttptest/src/slowhttptest
[ -x "$attack" ] || attack=$(command -v slowhttptest) || {
    echo "slowhttptest: neither $attack nor Debian's package: apt-get install slowhttptest, or git clone" \
        "https://github.com/shekyan/slowhttptest $OUTSIDERS/slowhttptest, ./configure, make" >&2
    exit 1
}
mkdir -p "$OUT/public"
head -c 20000000 /dev/zero > "$OUT/public/large.bin"
head -c 100000 /dev/zero > "$OUT/public/middle.bin"
echo '<p>hello</p>' > "$OUT/public/index.html"
# All connections come from one address, including the probe's connections.
cat > "$OUT/anthill.toml" <<TOML
[server]
http = ["127.0.0.1:0"]
https = ["127.0.0.1:0"]
state = "$OUT/state"
control = "$OUT/anthill.sock"
limits = { connections_per_address = 5000 }
[log]
access = "off"
[[site]]
names = ["*"]
root = "$OUT/public"
http = "serve"
TOML
"$ANTHILL" serve "$OUT/anthill.toml" > "$OUT/output.log" 2> "$OUT/server.log" &
server=$!
trap 'kill $server 2> /dev/null; wait $server 2> /dev/null || true' EXIT
port_of() {
    sed -n "s/^ *$1:.*:\([0-9]*\)\$/\1/p" "$OUT/server.log" | head -n 1
}
for _ in $(seq 100); do
    [ -z "$(port_of http)" ] || break
    sleep 0.1
done
http=http://127.0.0.1:$(port_of http)
https=https://127.0.0.1:$(port_of https)
# Prints the number of connections that the server holds open on a port; the number may include a connection
# of the probe.
held() {
    awk -v port="$(printf ':%04X' "$1")" '$4 == "01" && $2 ~ port "$"' /proc/net/tcp | wc -l
}
passed=0
count=0
# one NAME PORT CLOSES OPTION...: CLOSES is 1 where the server has to end the connections by itself.
one() {
    name=$1
    port=$2
    closes=$3
    shift 3
    count=$((count + 1))
    "$attack" "$@" -c 1000 -r 250 -g -o "$OUT/$name" > "$OUT/$name.log" 2>&1 &
    attacker=$!
    most=0
    ended=
    seconds=0
    # slowhttptest does not notice a reset while it reads slowly, so the script counts the server's
    # connections.
    while kill -0 $attacker 2> /dev/null; do
        sleep 1
        seconds=$((seconds + 1))
        now=$(held "$port")
        [ "$now" -le "$most" ] || most=$now
        if [ "$most" -gt 100 ] && [ "$now" -lt 10 ] && [ -z "$ended" ]; then
            ended=$seconds
        fi
    done
    wait $attacker || true
    down=$(awk -F, 'NR > 1 && $5 == 0' "$OUT/$name.csv" | wc -l)
    if [ "$(wc -l < "$OUT/$name.csv")" -lt 2 ]; then
        verdict='failed: no result'
    elif [ "$down" -gt 0 ]; then
        verdict="failed: not available for $down of $seconds s"
    elif [ "$closes" = 1 ] && [ -z "$ended" ]; then
        verdict="failed: of $most connections $(held "$port") are left after $seconds s"
    else
        verdict="passed: available all the time, $most connections ended after ${ended:-$seconds} s"
    fi
    echo "$name: $verdict"
    case $verdict in passed*) passed=$((passed + 1)) ;; esac
}
for kind in http https; do
    eval "url=\$$kind"
    port=${url##*:}
    one "$kind-heads" "$port" 1 -H -i 5 -l 40 -u "$url/"
    one "$kind-bodies" "$port" 1 -B -i 5 -s 8192 -l 60 -u "$url/"
    one "$kind-reads-large" "$port" 1 -X -w 512 -y 1024 -n 5 -z 32 -l 60 -u "$url/large.bin"
    one "$kind-reads-pipelined" "$port" 1 -X -k 10 -w 512 -y 1024 -n 5 -z 32 -l 60 -u "$url/middle.bin"
    one "$kind-ranges" "$port" 0 -R -a 5 -b 2000 -t HEAD -l 20 -u "$url/large.bin"
done
echo "slowhttptest: passed $passed of $count"
