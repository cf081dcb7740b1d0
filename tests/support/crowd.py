"""A crowd of HTTP clients, and a slow HTTP server as their member, each in one process with epoll.

    crowd.py member [PORT]              prints the port; `go` on standard input releases the held answers, and the
                                        bodies of requests for /stuck are read
    crowd.py wait PORT COUNT            COUNT clients request /wait and read the answers
    crowd.py unread PORT COUNT          COUNT clients request /page and read nothing before `go`
    crowd.py drip PORT COUNT            COUNT clients upload UPLOAD bytes, a byte at a time before `go`
    crowd.py stuck PORT COUNT           COUNT clients upload LONG_UPLOAD bytes to /stuck and read the answers

The clients connect from addresses 127.0.1.1 and up, 100 connections each. A line `asked` says that every request was
sent, and a line of JSON counts the answers at the end: whole ones by status, broken ones, and answers 503 without
Retry-After. A number on standard input instead of `go` waits until so many answers have arrived.
"""

import collections
import errno
import json
import os
import resource
import select
import socket
import sys
import time

PAGE = b"x" * (512 * 1024)
UPLOAD = 64 * 1024
LONG_UPLOAD = 512 * 1024
CLIENTS_OF_ADDRESS = 100
# The clients' kernel holds a few KiB of each unread answer.
RECEIVE_BUFFER = 4096
READER_RECEIVE_BUFFER = 262144


def allow_descriptors():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def answer(status, body):
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


class Member:
    """Connection of the server to the member."""

    def __init__(self, sock):
        self.sock, self.input, self.output, self.need = sock, b"", memoryview(b""), None
        self.path = None

    def feed(self, data):
        """Takes received bytes; returns the path of a complete request, or None."""
        self.input += data
        if self.need is None:
            head, end, rest = self.input.partition(b"\r\n\r\n")
            if not end:
                return None
            self.path = head.split(b" ")[1]
            lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            self.length = self.need = int(lengths[0]) if lengths else 0
            self.need -= len(rest)
            self.input = b""
        else:
            self.need -= len(data)
            self.input = b""
        if self.need > 0:
            return None
        self.need = None
        return self.path

    def send(self):
        """Sends as much as possible; returns true at the end."""
        while self.output:
            try:
                self.output = self.output[self.sock.send(self.output):]
            except BlockingIOError:
                return False
            except ConnectionError:
                # The server has given the place of the request to another one. The end of the connection follows.
                self.output = memoryview(b"")
        return True


def member(port):
    listener = socket.create_server(("127.0.0.1", port), backlog=4096)
    listener.setblocking(False)
    print(listener.getsockname()[1], flush=True)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    poll.register(0, select.EPOLLIN)
    conns, held, is_released = {}, [], False

    def reply(conn, path):
        body = {b"/page": PAGE, b"/wait": b"waited"}.get(path)
        conn.output = memoryview(answer(b"200 OK", body if body else b"%d" % conn.length))
        if not conn.send():
            poll.modify(conn.sock, select.EPOLLIN | select.EPOLLOUT)

    while True:
        for fd, events in poll.poll():
            if fd == 0:
                if not os.read(0, 100):
                    return
                is_released = True
                for conn in held:
                    if conn.sock.fileno() not in conns:
                        continue
                    if conn.path == b"/stuck":
                        poll.modify(conn.sock, select.EPOLLIN)
                    else:
                        reply(conn, b"/wait")
                held = []
            elif fd == listener.fileno():
                while True:
                    try:
                        sock, _ = listener.accept()
                    except BlockingIOError:
                        break
                    sock.setblocking(False)
                    conns[sock.fileno()] = Member(sock)
                    poll.register(sock, select.EPOLLIN)
            else:
                conn = conns[fd]
                if events & select.EPOLLOUT and conn.send():
                    poll.modify(fd, select.EPOLLIN)
                if not events & ~select.EPOLLOUT:
                    continue
                try:
                    data = conn.sock.recv(65536)
                except BlockingIOError:
                    continue
                except OSError:
                    data = b""
                if not data:
                    poll.unregister(fd)
                    del conns[fd]
                    conn.sock.close()
                    continue
                path = conn.feed(data)
                if conn.path == b"/stuck" and not is_released:
                    poll.modify(fd, 0)
                    held.append(conn)
                    continue
                if path == b"/wait" and not is_released:
                    held.append(conn)
                elif path:
                    reply(conn, path)


class Client:
    """One client with one request."""

    def __init__(self, sock, request):
        self.sock, self.output, self.head, self.left, self.result = sock, memoryview(request), b"", None, None

    def send(self, most=1 << 20):
        while self.output and most > 0:
            try:
                sent = self.sock.send(self.output[:most])
            except BlockingIOError:
                return
            except OSError:
                # The answer may have come before the end of the request.
                self.output = memoryview(b"")
                return
            self.output = self.output[sent:]
            most -= sent

    def receive(self):
        """Reads once; returns true at the end of the answer."""
        try:
            data = self.sock.recv(262144)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.result = "broken"
            return True
        if self.left is None:
            self.head += data
            head, end, rest = self.head.partition(b"\r\n\r\n")
            if not end:
                return False
            self.head = head.lower()
            length = self.head.split(b"content-length: ")[1]
            self.left = int(length.split(b"\r\n")[0]) - len(rest)
        else:
            self.left -= len(data)
        if self.left <= 0:
            self.result = self.head.split(b" ")[1].decode()
        return self.left <= 0


def upload(path, length):
    return b"POST %s HTTP/1.1\r\nHost: proxied\r\nContent-Length: %d\r\n\r\n%s" % (path, length, b"u" * length)


def crowd(kind, port, count):
    request = {
        "wait": b"GET /wait HTTP/1.1\r\nHost: proxied\r\n\r\n",
        "unread": b"GET /page HTTP/1.1\r\nHost: proxied\r\n\r\n",
        "drip": upload(b"/form", UPLOAD),
        "stuck": upload(b"/stuck", LONG_UPLOAD),
    }[kind]
    head = request.index(b"\r\n\r\n") + 4
    poll = select.epoll()
    poll.register(0, select.EPOLLIN)
    clients, reads = {}, kind != "unread"
    for nth in range(count):
        address = nth // CLIENTS_OF_ADDRESS
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        sock.bind((f"127.0.{1 + address // 250}.{1 + address % 250}", 0))
        sock.connect(("127.0.0.1", port))
        sock.setblocking(False)
        client = Client(sock, request)
        client.send(head + 1 if kind == "drip" else len(request))
        clients[sock.fileno()] = client
        writes = kind == "stuck" and client.output
        poll.register(sock, (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if writes else 0))
    results, is_open, awaited = collections.Counter(), kind == "wait", None
    print("asked", flush=True)
    drips = time.monotonic()
    while clients:
        for fd, events in poll.poll(0.2):
            if fd == 0:
                word = os.read(0, 100).split()
                if not word:
                    return
                if word[0] != b"go":
                    awaited = int(word[0])
                    continue
                is_open = reads = True
                for other, client in clients.items():
                    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READER_RECEIVE_BUFFER)
                    client.send()
                    poll.modify(other, select.EPOLLIN | (select.EPOLLOUT if client.output else 0))
                continue
            client = clients.get(fd)
            if client is None:
                continue
            if events & select.EPOLLOUT:
                client.send()
                if not client.output:
                    poll.modify(fd, select.EPOLLIN)
            if reads and events & ~select.EPOLLOUT and client.receive():
                results[client.result] += 1
                if client.result == "503" and b"retry-after" not in client.head:
                    results["503 without Retry-After"] += 1
                poll.unregister(fd)
                client.sock.close()
                del clients[fd]
        if kind == "drip" and not is_open and time.monotonic() - drips > 1:
            drips = time.monotonic()
            for client in clients.values():
                client.send(1)
        if awaited is not None and sum(results.values()) >= awaited:
            print("answered", sum(results.values()), flush=True)
            awaited = None
    print(json.dumps(results), flush=True)


if __name__ == "__main__":
    allow_descriptors()
    if sys.argv[1] == "member":
        member(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    else:
        crowd(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
