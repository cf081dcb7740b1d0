"""Requests a URL twice with niquests, which follows Alt-Svc: `alt_svc.py URL` prints the version of HTTP
of each response."""
import sys

import niquests

names = {11: "HTTP/1.1", 20: "HTTP/2.0", 30: "HTTP/3.0"}
seen = []
# The server listens on 127.0.0.1 alone, and over UDP the client tries only the first address of a name.
with niquests.Session(disable_ipv6=True) as session:
    for _ in range(2):
        answer = session.get(sys.argv[1].replace("127.0.0.1", "localhost"), timeout=60, verify=False)
        assert answer.status_code == 200, answer
        seen.append(names[answer.raw.version])
print(", then ".join(seen))
