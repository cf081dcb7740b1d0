# Python's http.server: one thread, HTTP/1.0, one page from memory.
# Arguments: host, port, page, and "published" for the source document's variant, which logs each request
# and has a listen backlog of five connections.
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

host, port, page = sys.argv[1:4]
published = sys.argv[4:] == ["published"]
with open(page, "rb") as file:
    body = file.read()


class Published(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        if not published:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Quiet(Published):
    def log_message(self, *words):
        pass


class Patient(HTTPServer):
    request_queue_size = 1024


if published:
    HTTPServer((host, int(port)), Published).serve_forever()
else:
    Patient((host, int(port)), Quiet).serve_forever()
