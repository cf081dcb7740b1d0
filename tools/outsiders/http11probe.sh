#!/bin/sh
# Http11Probe: tests how a server handles malformed and smuggled HTTP/1.1 requests.
# https://github.com/MDA2AV/Http11Probe, commit 95bc6a991b2ad2bddd61d58c92c36d543d895ffa, in
# $OUTSIDERS/http11probe. The probe is C#; its cases are read out of the source, so .NET isn't needed.
# The script takes OUTSIDERS, ANTHILL and OUT from the environment.
set -eu
here=$(cd "$(dirname "$0")" && pwd)/http11probe
checkout=$OUTSIDERS/http11probe
if [ ! -d "$checkout/src/Http11Probe" ]; then
    echo "http11probe: $checkout is missing: git clone https://github.com/MDA2AV/Http11Probe $checkout" \
        "and check out 95bc6a991b2ad2bddd61d58c92c36d543d895ffa" >&2
    exit 1
fi
mkdir -p "$OUT/public" "$OUT/cgi-bin"
cp "$here/app.cgi" "$OUT/cgi-bin/app.cgi"
cat > "$OUT/anthill.toml" <<TOML
[server]
http = ["127.0.0.1:0"]
https = ["127.0.0.1:0"]
state = "$OUT/state"
control = "$OUT/anthill.sock"
[[site]]
names = ["*"]
root = "$OUT/public"
http = "serve"
try = ["/cgi-bin/app.cgi\$path"]
[[site.route]]
path = "/cgi-bin/"
cgi = "$OUT/cgi-bin"
TOML
"$ANTHILL" serve "$OUT/anthill.toml" > "$OUT/access.log" 2> "$OUT/server.log" &
server=$!
trap 'kill $server 2> /dev/null; wait $server 2> /dev/null || true' EXIT
port=
for _ in $(seq 100); do
    port=$(sed -n 's/^ *http:.*:\([0-9]*\)$/\1/p' "$OUT/server.log" | head -n 1)
    [ -z "$port" ] || break
    sleep 0.1
done
[ -n "$port" ] || { cat "$OUT/server.log" >&2; exit 1; }
PYTHONDONTWRITEBYTECODE=1 python3 "$here/run.py" "$checkout" 127.0.0.1 "$port" "$OUT/results.txt" "$@" | tee "$OUT/summary.txt"
