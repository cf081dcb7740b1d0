#!/usr/bin/env python3
"""An SCGI application that forwards each request to an HTTP origin server.

The suite http-tests/cache-tests tests a cache before an origin server of its own, which speaks HTTP.
anthill has no reverse proxy, so this adapter stands between them. Status, reason phrase and all field
lines go through in both directions, repeated field lines too. SCGI joins repeated request fields, and
carries no interim (1xx) responses and no trailers.

    scgi_to_http.py ORIGIN_PORT

The adapter listens on a port of 127.0.0.1 that the system chooses, and prints it.
"""

import http.client
import socket
import socketserver
import sys

ORIGIN = ("127.0.0.1", int(sys.argv[1]))


def read_request(stream):
    """Reads one SCGI request; returns its variables and its body."""
    digits = b""
    while (byte := stream.read(1)) != b":":
        if not byte.isdigit():
            raise ValueError("no netstring")
        digits += byte
    parts = stream.read(int(digits)).split(b"\0")
    stream.read(1)
    variables = dict(zip(parts[0::2], parts[1::2]))
    return variables, stream.read(int(variables.get(b"CONTENT_LENGTH") or 0))


def http_request(variables, body):
    """Returns an SCGI request as the bytes of an HTTP/1.1 request."""
    method, target = variables[b"REQUEST_METHOD"], variables[b"REQUEST_URI"]
    lines = [b"%s %s HTTP/1.1" % (method, target)]
    for name, value in variables.items():
        if name.startswith(b"HTTP_"):
            lines.append(name[5:].replace(b"_", b"-").title() + b": " + value)
    if variables.get(b"CONTENT_TYPE"):
        lines.append(b"Content-Type: " + variables[b"CONTENT_TYPE"])
    if body or method in (b"POST", b"PUT"):
        lines.append(b"Content-Length: %d" % len(body))
    lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Response(http.client.HTTPResponse):
    """Reads a response of the origin server and skips interim responses."""

    def _read_status(self):
        while True:
            version, status, reason = super()._read_status()
            if not 100 < status < 200:
                return version, status, reason
            http.client.parse_headers(self.fp)


class Forward(socketserver.StreamRequestHandler):
    def handle(self):
        variables, body = read_request(self.rfile)
        with socket.create_connection(ORIGIN) as origin:
            origin.sendall(http_request(variables, body))
            try:
                self.answer(origin, variables[b"REQUEST_METHOD"].decode())
            except (OSError, http.client.HTTPException):
                # The origin server closed without a response, so the adapter closes too.
                return

    def answer(self, origin, method):
        response = Response(origin, method=method)
        response.begin()
        lines = [f"Status: {response.status} {response.reason}"]
        for name, value in response.headers.raw_items():
            # The adapter forwards the content without the chunk framing.
            if name.lower() != "transfer-encoding":
                lines.append(f"{name}: {value}")
        content = response.read()
        self.wfile.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + content)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


with Server(("127.0.0.1", 0), Forward) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
