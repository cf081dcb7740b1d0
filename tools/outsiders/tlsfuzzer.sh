#!/bin/sh
# tlsfuzzer against anthill, over HTTP/1.1: ANTHILL=… OUTSIDERS=… OUT=… sh tools/outsiders/tlsfuzzer.sh
#
# PYTHON may name an interpreter that has tlslite-ng. If ADDRESS is set to the host:port of a running HTTPS
# server with an RSA certificate, tlsfuzzer tests that server instead of anthill.
set -u

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
checkout=${OUTSIDERS:?}/tlsfuzzer

missing() {
    echo "tlsfuzzer: $1" >&2
    exit 2
}

[ -d "$checkout/tlsfuzzer/_apps" ] || missing "no checkout in $checkout; get https://github.com/tlsfuzzer/tlsfuzzer at commit 14555fe"
"$python" -c 'import tlslite.messages, ecdsa' 2>/dev/null || missing "$python has no tlslite-ng; install tlslite-ng (--pre) and ecdsa from PyPI in a venv, and name its interpreter in PYTHON"
mkdir -p "${OUT:?}"
server=

if [ -z "${ADDRESS:-}" ]; then
    command -v openssl >/dev/null || missing 'no openssl; install the Debian package openssl'
    run=$(mktemp -d)
    trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$run"' EXIT INT TERM
    mkdir "$run/public"
    echo '<p>hello</p>' >"$run/public/index.html"
    openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost -keyout "$run/key.pem" -out "$run/cert.pem" 2>/dev/null
    cat >"$run/anthill.toml" <<END
[server]
https = ["127.0.0.1:0"]
http = "off"
state = "state"
control = "anthill.sock"
workers = 1

[[site]]
names = ["*"]
root = "public"
certificate = "cert.pem"
key = "key.pem"
END
    "${ANTHILL:?}" serve "$run/anthill.toml" >"$OUT/anthill.log" 2>&1 &
    server=$!
    tries=0
    until grep -q '^ready' "$OUT/anthill.log"; do
        tries=$((tries + 1))
        { [ $tries -lt 100 ] && kill -0 "$server" 2>/dev/null; } || missing "the server did not start: see $OUT/anthill.log"
        sleep 0.1
    done
    ADDRESS=127.0.0.1:$(sed -n 's|.*https://localhost:\([0-9]*\).*|\1|p' "$OUT/anthill.log" | head -n 1)
fi

PYTHONPATH=$checkout
export PYTHONPATH
"$python" "$here/tlsfuzzer/run.py" "$ADDRESS" "$here/tlsfuzzer/scripts.txt" "$OUT"
