"""An application behind a proxy: answers with the request line, X-Origin and Remote-User.

/verify stands for a server of logins: a request without a cookie of alice gets 401.
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        fields = [self.headers.get(name, "none") for name in ("X-Origin", "Remote-User")]
        text = " ".join([self.command, self.path] + fields).encode()
        is_stranger = "alice" not in self.headers.get("Cookie", "")
        self.send_response(401 if self.path == "/verify" and is_stranger else 200)
        self.send_header("Remote-User", "alice")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *arguments):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
