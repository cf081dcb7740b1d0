#!/bin/sh
# http-tests/cache-tests: a shared cache against RFC 9111. anthill stands before the suite's own origin
# server, with an SCGI adapter between them.
#
# OUTSIDERS is the folder of the checkouts, ANTHILL the binary, OUT an empty folder for logs and results.
# TEST=name runs a single test and shows all its messages.
set -eu
: "${OUTSIDERS:?the folder of the checkouts}" "${ANTHILL:?the binary}" "${OUT:?an empty folder}"
here=$(cd "$(dirname "$0")" && pwd)/cache-tests
suite=$OUTSIDERS/cache-tests
commit=b55b8bda3dbb8c927c04e85bd8d496a8caa3e4ba

missing() {
    echo "cache-tests: missing: $1" >&2
    exit 1
}
for program in node npm python3; do
    command -v "$program" > "$OUT/found" || missing "$program (Debian: nodejs, npm, python3)"
done
[ -f "$suite/test-engine/cli.mjs" ] ||
    missing "$suite: git clone https://github.com/http-tests/cache-tests, commit $commit"
[ -d "$suite/node_modules/undici" ] ||
    missing "the suite's packages: (cd $suite && npm install --omit=dev --no-save undici@7)"

running=
trap 'for pid in $running; do kill "$pid" 2> "$OUT/kill.log" || :; done' EXIT
trap 'exit 1' INT TERM

# port FILE PATTERN: waits until a program has written its port behind PATTERN into FILE, and prints the port.
port() {
    tries=0
    until found=$(sed -n "s#$2\([0-9][0-9]*\).*#\1#p" "$1" | head -n 1) && [ -n "$found" ]; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || missing "a port in $1"
        sleep 0.1
    done
    echo "$found"
}

mkdir -p "$OUT/site" "$OUT/state"
touch "$OUT/origin.log" "$OUT/adapter.log" "$OUT/anthill.log"
(cd "$suite" && exec env npm_config_protocol=http npm_config_port=0 \
    npm_config_pidfile="$OUT/origin.pid" node test-engine/server/server.mjs) > "$OUT/origin.log" 2>&1 &
running="$running $!"
origin=$(port "$OUT/origin.log" '^Listening on .*:')
python3 "$here/scgi_to_http.py" "$origin" > "$OUT/adapter.log" 2>&1 &
running="$running $!"
adapter=$(port "$OUT/adapter.log" '^')
sed -e "s#@OUT@#$OUT#" -e "s#@PORT@#$adapter#" "$here/anthill.toml.in" > "$OUT/anthill.toml"
"$ANTHILL" serve "$OUT/anthill.toml" > "$OUT/anthill.log" 2>&1 &
running="$running $!"
server=$(port "$OUT/anthill.log" '^.*http://[^ ]*:')

cd "$suite"
npm_config_base=http://127.0.0.1:$server npm_package_config_id=${TEST:-} \
    node --no-warnings test-engine/cli.mjs > "$OUT/results.json" 2> "$OUT/client.log" || {
    cat "$OUT/client.log" >&2
    exit 1
}
if [ -n "${TEST:-}" ]; then
    cat "$OUT/results.json"
    exit
fi
node "$here/count.mjs" "$suite" "$OUT/results.json" cache-tests > "$OUT/counts.txt"
tail -n 3 "$OUT/counts.txt"
awk '/: (required|optional): passed/ { passed += $4; all += $6 }
    END { printf "cache-tests: passed %d of %d\n", passed, all }' "$OUT/counts.txt"
