"""HTTP/3 client for a server on 127.0.0.1, with aioquic: `h3_client.py PORT SCENARIO [ARGUMENT…]` runs one
of the scenarios below and prints the result in one line. A failed check ends the client with an error."""
import asyncio
import base64
import hashlib
import itertools
import json
import os
import socket
import ssl
import sys
import zlib
from contextlib import AsyncExitStack, asynccontextmanager

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import H3_ALPN, H3Connection, encode_frame
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicFrameType
from aioquic.quic.events import ConnectionTerminated, StreamReset

PORT = int(sys.argv[1])
# Deadline of each wait, in seconds: ten times the usual duration on a slow machine.
PATIENCE = 60


# aioquic takes the Content-Length of a response to HEAD for the length of a body; the check is disabled.
H3Connection._check_content_length = lambda self, stream: None


class Response:
    """The response on one stream."""

    def __init__(self):
        self.fields = []
        self.status = 0
        self.interim = []
        self.trailers = None
        self.body = bytearray()
        self.length = 0
        self.reset = None
        self.kept = True
        self.digest = hashlib.sha256()
        self.ended = asyncio.Event()
        self.moved = asyncio.Event()

    def field(self, name):
        return dict(self.fields).get(name)


class Client(QuicConnectionProtocol):
    """One connection of the client."""

    # Whether the server may open unidirectional streams. Without its control stream the server answers no
    # request.
    allows_control = True

    # Whether the flow-control windows of request streams are 0 at first.
    shut = False

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        if not self.allows_control:
            self._quic._local_max_streams_uni.value = 0
        if Client.shut:
            self._quic._local_max_stream_data_bidi_local = 0
        self.http = H3Connection(self._quic)
        self.streams = {}
        self.over = asyncio.Event()
        self.code = None
        # Set by the server's GOAWAY, which aioquic ignores.
        self.left = asyncio.Event()
        check = self.http._check_control_frame_type

        def observe(kind):
            if kind == 7:
                self.left.set()
            check(kind)

        self.http._check_control_frame_type = observe

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.code = event.error_code
            self.reason = event.reason_phrase
            self.over.set()
            for response in self.streams.values():
                response.ended.set()
                response.moved.set()
        stream = self.streams.get(getattr(event, "stream_id", None))
        if stream and isinstance(event, StreamReset):
            stream.reset = event.error_code
            stream.ended.set()
        # A client without an HTTP/3 layer observes only the end of the connection.
        if not self.http:
            return
        for what in self.http.handle_event(event):
            self.heard(what)

    def heard(self, what):
        stream = self.streams.get(what.stream_id)
        if stream is None:
            return
        if isinstance(what, HeadersReceived):
            fields = [(name.decode(), value.decode()) for name, value in what.headers]
            if stream.status:
                stream.trailers = fields
            elif fields[0][1].startswith("1"):
                stream.interim.append(fields)
            else:
                stream.fields = fields
                stream.status = int(stream.field(":status"))
        if isinstance(what, DataReceived):
            stream.length += len(what.data)
            stream.digest.update(what.data)
            if stream.kept:
                stream.body += what.data
        stream.moved.set()
        if what.stream_ended:
            stream.ended.set()

    def ask(self, method, path, fields=(), body=None, ends=True, host="localhost"):
        """Begins a request and returns the response, still incomplete."""
        stream = self._quic.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "https"), (":authority", host), (":path", path)]
        head = [(n.encode(), v.encode()) for n, v in head + list(fields)]
        response = self.streams[stream] = Response()
        response.id = stream
        self.http.send_headers(stream, head, end_stream=ends and body is None)
        if body is not None:
            self.http.send_data(stream, body, end_stream=ends)
        self.transmit()
        return response

    def raw(self, data, ends=False, uni=False):
        """Sends raw bytes on a new stream."""
        stream = self._quic.get_next_available_stream_id(is_unidirectional=uni)
        response = self.streams[stream] = Response()
        response.id = stream
        self._quic.send_stream_data(stream, data, ends)
        self.transmit()
        return response

    async def get(self, path, method="GET", fields=(), host="localhost", body=None):
        response = self.ask(method, path, fields, body, host=host)
        await within(response.ended.wait())
        return response


async def within(waiting):
    return await asyncio.wait_for(waiting, PATIENCE)


def configuration(**more):
    made = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, **more)
    made.verify_mode = ssl.CERT_NONE
    made.max_data = made.max_stream_data = 8 << 20
    return made


@asynccontextmanager
async def client(name="localhost", tickets=None, known=None, keep=True, idle=60.0):
    config = configuration(server_name=name, session_ticket=known, idle_timeout=idle)
    save = tickets.append if tickets is not None else None
    async with connect(
        "127.0.0.1",
        PORT,
        configuration=config,
        create_protocol=Client,
        session_ticket_handler=save,
    ) as made:
        yield made


@asynccontextmanager
async def client_from(address):
    """Connects from a local address, which aioquic's connect() cannot choose."""
    quic = QuicConnection(configuration=configuration(server_name="localhost"))
    loop = asyncio.get_running_loop()
    transport, made = await loop.create_datagram_endpoint(lambda: Client(quic), local_addr=(address, 0))
    try:
        made.connect(("127.0.0.1", PORT))
        await made.wait_connected()
        yield made
    finally:
        made.close()
        await made.wait_closed()
        transport.close()


def equal(got, expected):
    assert got == expected, f"{got!r} is not {expected!r}"


async def pages():
    async with client() as it:
        page = await it.get("/")
        equal((page.status, bytes(page.body)), (200, b"<p>hello</p>\n"))
        equal(page.field("server"), "anthill")
        assert page.field("date") and not page.field("alt-svc"), page.fields
        head = await it.get("/", "HEAD")
        equal((head.status, head.length, head.field("content-length")), (200, 0, "13"))
        tagged = await it.get("/", fields=[("if-none-match", page.field("etag"))])
        equal((tagged.status, tagged.length), (304, 0))
        empty = await it.get("/empty.txt")
        equal((empty.status, empty.length), (200, 0))
        whole = await it.get("/large.bin")
        part = await it.get("/large.bin", fields=[("range", "bytes=1000-1009")])
        equal((part.status, part.body), (206, whole.body[1000:1010]))
        lost = await it.get("/lost")
        equal((lost.status, bytes(lost.body)), (404, b"<p>lost</p>\n"))
        listing = await it.get("/sub/")
        equal(listing.status, 200)
        assert b"a.txt" in listing.body
        moved = await it.get("/old/x?y")
        equal((moved.status, moved.field("location")), (308, "/new/x?y"))
        equal((await it.get("/denied")).status, 403)
        equal((await it.get("/", "DELETE")).status, 405)
        equal((await it.get("/", "POST", body=b"x" * 10_000)).status, 405)
        equal((await it.get("/", "OPTIONS")).status, 204)
        many = [it.ask("GET", "/middle.bin") for _ in range(100)]
        for response in many:
            await within(response.ended.wait())
            equal((response.status, bytes(response.body)), (200, b"m" * 100_000))
    print("13 answers, 100 at once")


async def arrives(response, length, digest):
    """Waits for the end of a large response, and compares the content with its digest."""
    # The whole scenario may be slow on a slow machine, but datagrams keep arriving.
    while not response.ended.is_set():
        response.moved.clear()
        await within(response.moved.wait())
    equal((response.status, response.length), (200, int(length)))
    equal(response.digest.hexdigest(), digest)


async def large(path, length, digest):
    async with client() as it:
        response = it.ask("GET", path)
        response.kept = False
        await arrives(response, length, digest)
    print("whole")


async def paused(path, length, digest):
    """Begins a download, then reads no datagram until a line arrives on the standard input."""
    async with client(idle=600.0) as it:
        response = it.ask("GET", path)
        response.kept = False
        await within(response.moved.wait())
        print("begun", flush=True)
        sys.stdin.readline()
        await arrives(response, length, digest)
    print("whole")


async def live():
    async with client() as it:
        body = os.urandom(3 << 20)
        echoed = await it.get("/echo", "POST", body=body)
        equal((echoed.status, echoed.length), (200, len(body)))
        assert bytes(echoed.body) == body
        asked = [("expect", "100-continue")]
        echoed = await it.get("/echo", "PUT", fields=asked, body=b"small")
        equal(bytes(echoed.body), b"small")
        slow = await it.get("/slow?lines=3&pause_ms=10")
        equal(bytes(slow.body), b"line 0\nline 1\nline 2\n")
        # The client sends STOP_SENDING for a response.
        endless = it.ask("GET", "/endless")
        await within(endless.moved.wait())
        it._quic.stop_stream(endless.id, 0x10C)
        it.transmit()
        # The client resets its own request.
        broken = it.ask("POST", "/echo", body=b"x" * 1000, ends=False)
        await within(broken.moved.wait())
        it._quic.reset_stream(broken.id, 0x10C)
        it._quic.stop_stream(broken.id, 0x10C)
        it.transmit()
        equal((await it.get("/")).status, 200)
        trailed = it.ask("POST", "/echo", body=b"with trailers", ends=False)
        it.http.send_headers(trailed.id, [(b"x-sum", b"1")], end_stream=True)
        it.transmit()
        await within(trailed.ended.wait())
        equal(bytes(trailed.body), b"with trailers")
    print("echoed, slow, cancelled, broken off, trailed")


async def until(stream, reached):
    """Waits until the function returns true for the response."""
    while not reached(stream):
        stream.moved.clear()
        await within(stream.moved.wait())


async def open_gate(it, gate):
    equal(bytes((await it.get(f"/hold?open={gate}")).body), b"open\n")


async def interim():
    """Reads the interim responses of handlers, and sends bodies to handlers that hold the body back."""
    expects = [("expect", "100-continue")]
    async with client() as it:
        hinted = it.ask("POST", "/hints", ends=False)
        await until(hinted, lambda got: len(got.interim) == 2)
        links = [dict(fields)["link"] for fields in hinted.interim]
        equal(links, ["</a.css>; rel=preload", "</b.js>; rel=preload"])
        it.http.send_data(hinted.id, b"body", True)
        it.transmit()
        await within(hinted.ended.wait())
        equal((hinted.status, bytes(hinted.body)), (200, b"after the hints\n"))

        held = it.ask("POST", "/hold?gate=a", expects, ends=False)
        await until(held, lambda got: len(got.interim) == 1)
        await open_gate(it, "a")
        await until(held, lambda got: len(got.interim) == 2)
        equal([fields[0][1] for fields in held.interim], ["103", "100"])
        it.http.send_data(held.id, b"12345", True)
        it.transmit()
        await within(held.ended.wait())
        equal(bytes(held.body), b"12345")

        refused = it.ask("POST", "/hold?refuse=417", expects, ends=False)
        await within(refused.ended.wait())
        equal((refused.status, len(refused.interim)), (417, 1))

        # The stream's window and the pipe to the handler: the rest waits until the handler wants the body.
        body = b"x" * 300_000
        held = it.ask("POST", "/hold?gate=b", body=body)
        await until(held, lambda got: len(got.interim) == 1)
        await open_gate(it, "b")
        await within(held.ended.wait())
        equal(bytes(held.body), body)
    print("hints, continued, refused, held")


async def trailers():
    """Sends trailers behind bodies, and reads the trailers behind the responses."""
    async with client() as it:
        for body in (b"some content", b""):
            asked = it.ask("POST", "/trailers", body=body or None, ends=False)
            sent = [("x-sum", "1"), ("content-type", "text/html"), ("cookie", "a=b")]
            it.http.send_headers(asked.id, [(n.encode(), v.encode()) for n, v in sent], end_stream=True)
            it.transmit()
            await within(asked.ended.wait())
            equal(bytes(asked.body), body)
            equal(asked.trailers, [("x-sum", "1"), ("x-own", "end")])
        asked = await it.get("/trailers")
        equal((asked.status, asked.trailers), (200, [("x-own", "end")]))

        long = it.ask("POST", "/hints", ends=False)
        it.http.send_headers(long.id, [(b"x", b"y" * 5_000)], end_stream=True)
        it.transmit()
        await within(long.ended.wait())
        equal(long.status, 431)

        # Malformed trailers, without the checks of the client's HTTP/3 layer: `:path` by its index in the
        # static table of QPACK, and Connection by its name.
        for section in (b"\0\0\xc1", b"\0\0\x27\x03connection\x01x"):
            asked = it.ask("POST", "/trailers", ends=False)
            it._quic.send_stream_data(asked.id, frame(1, section), True)
            it.transmit()
            await within(asked.ended.wait())
            equal(asked.reset, 0x10E)
    print("echoed, too long, malformed")


async def connect_tunnel(it, path, protocol="websocket"):
    """Begins an extended CONNECT, and returns the response after its head."""
    stream = it._quic.get_next_available_stream_id()
    head = [(":method", "CONNECT"), (":protocol", protocol), (":scheme", "https")]
    head += [(":authority", "localhost"), (":path", path)]
    response = it.streams[stream] = Response()
    response.id = stream
    it.http.send_headers(stream, [(n.encode(), v.encode()) for n, v in head])
    it.transmit()
    await until(response, lambda got: got.status or got.ended.is_set())
    return response


async def tunnels():
    """Opens tunnels, and ends their directions in either order."""
    async with client() as it:
        equal((await it.get("/")).status, 200)
        equal(it.http.received_settings[8], 1)

        def send(tunnel, data, ends=False):
            it.http.send_data(tunnel.id, data, ends)
            it.transmit()

        # More than `body_bytes`, and more than all windows.
        echoed = await connect_tunnel(it, "/tunnel")
        equal((echoed.status, echoed.field("content-length")), (200, None))
        body = os.urandom(100_000)
        send(echoed, b"hello")
        await until(echoed, lambda got: bytes(got.body) == b"hello")
        send(echoed, body, True)
        await within(echoed.ended.wait())
        assert bytes(echoed.body) == b"hello" + body + b"bye"

        ended = await connect_tunnel(it, "/tunnel?ends=5")
        send(ended, b"hello")
        await within(ended.ended.wait())
        equal((bytes(ended.body), ended.reset), (b"hello", None))
        send(ended, b"x" * 1_000, True)

        broken = await connect_tunnel(it, "/tunnel?cut=5")
        send(broken, b"hello")
        await within(broken.ended.wait())
        equal(broken.reset, 0x10C)

        for path, status in [("/denied", 403), ("/private", 401), ("/", 405), ("/slow", 405)]:
            refused = await connect_tunnel(it, path)
            equal(refused.status, status)
            await within(refused.ended.wait())
        equal((await connect_tunnel(it, "/tunnel", "h2c")).status, 501)
        equal((await connect_tunnel(it, "/tunnel?switch=websocket")).status, 502)

        # The handler keeps its direction open, or the client does.
        silent = await connect_tunnel(it, "/tunnel")
        mute = await connect_tunnel(it, "/tunnel?mute")
        send(mute, b"hello", True)
        await within(mute.ended.wait())
        equal(mute.reset, 0x10C)
        half = await connect_tunnel(it, "/tunnel?ends=5")
        send(half, b"hello")
        await within(half.ended.wait())
        equal(half.reset, None)
        send(silent, b"still here", True)
        await within(silent.ended.wait())
        equal(bytes(silent.body), b"still herebye")
    print("echoed, ended, broken off, refused, silent")


async def half_closed():
    """Opens two tunnels to a member. In one tunnel the member ends its direction first, in the other the client."""
    async with client() as it:
        ended = await connect_tunnel(it, "/ends-first")
        await within(ended.ended.wait())
        equal((bytes(ended.body), ended.reset), (b"early", None))
        it.http.send_data(ended.id, b"x" * 20_000, True)
        last = await connect_tunnel(it, "/")
        it.http.send_data(last.id, b"hello", True)
        it.transmit()
        await within(last.ended.wait())
        equal((len(last.body), last.reset), (5 + (4 << 20), None))
    print("both directions were complete")


async def hold_requests(*paths):
    """Requests pages on one connection without a window for the responses, and waits for a line on the standard input."""
    Client.shut = True
    async with client() as it:
        for path in paths:
            it.ask("GET", path)
        print("asked", flush=True)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, sys.stdin.readline)


async def hold_tunnel(path):
    """Opens a tunnel, and sends each line of the standard input through the tunnel."""
    async with client() as it:
        tunnel = await connect_tunnel(it, path)
        equal(tunnel.status, 200)
        print("open", flush=True)
        loop = asyncio.get_running_loop()
        while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            tunnel.body.clear()
            it.http.send_data(tunnel.id, line.encode(), False)
            it.transmit()
            await until(tunnel, lambda got: len(got.body) >= len(line) or got.ended.is_set())
            print(tunnel.body.decode(), flush=True)


async def kept(name):
    """Requests the front page of a site over one connection for each line of the standard input, which names the host,
    and prints the status. The line `goaway` waits for the server's GOAWAY."""
    async with client(name) as it:
        print("open", flush=True)
        loop = asyncio.get_running_loop()
        while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            if line == "goaway":
                await within(it.left.wait())
                print(line, flush=True)
                continue
            got = await it.get("/", host=line)
            print(f"{got.status} after goaway" if it.left.is_set() else got.status, flush=True)


async def script(path, megabytes):
    """Sends a body to an echo script and compares the echo, both directions at once."""
    async with client() as it:
        body = os.urandom(int(megabytes) << 20)
        echoed = await it.get(path, "POST", body=body)
        equal((echoed.status, len(echoed.body)), (200, len(body)))
        assert bytes(echoed.body) == body
    print("echoed")


async def counted(path, count):
    """Sends a body without Content-Length to a script that prints the body's length and digest."""
    async with client() as it:
        body = os.urandom(int(count))
        told = await it.get(path, "POST", body=body)
        equal(bytes(told.body).decode(), f"{count} {hashlib.md5(body).hexdigest()}")
    print("counted")


async def stalled(path):
    """Sends a request with an incomplete body and waits for the server to reset the stream."""
    async with client() as it:
        fields = [("content-length", "100000")]
        broken = it.ask("POST", path, fields, bytes(70000), ends=False)
        await within(broken.ended.wait())
        equal((broken.status, bytes(broken.body)), (200, b"begun\n"))
        assert broken.reset is not None
    print("broken off")


async def reset_upload(path):
    """Sends an incomplete body, and after a line on the standard input resets the client's direction of the stream."""
    async with client() as it:
        begun = it.ask("POST", path, [("content-length", "900000")], bytes(800000), ends=False)
        print("sent", flush=True)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, sys.stdin.readline)
        it._quic.reset_stream(begun.id, 0x10C)
        it.transmit()
        await loop.run_in_executor(None, sys.stdin.readline)


async def windows(path, step, rounds):
    """Opens the windows of 20 streams by `step` bytes in each round, and prints the state of the connection."""
    Client.shut = True
    async with client() as it:
        quic = it._quic

        def write_limits(builder, space, stream):
            if stream.max_stream_data_local_sent != stream.max_stream_data_local:
                frame = builder.start_frame(QuicFrameType.MAX_STREAM_DATA, capacity=17)
                frame.push_uint_var(stream.stream_id)
                frame.push_uint_var(stream.max_stream_data_local)
                stream.max_stream_data_local_sent = stream.max_stream_data_local

        quic._write_stream_limits = write_limits
        streams = [quic._streams[it.ask("GET", path).id] for _ in range(20)]
        for _ in range(int(rounds)):
            before = [stream.receiver.highest_offset for stream in streams]
            for stream in streams:
                stream.max_stream_data_local = stream.max_stream_data_local_sent + int(step)
            it.transmit()
            # Each round waits for the bytes allowed by the round before.
            while not it.over.is_set() and any(
                stream.receiver.highest_offset == at for stream, at in zip(streams, before)
            ):
                await asyncio.sleep(0.001)
            if it.over.is_set():
                break
        print(f"0x{it.code:x} {it.reason}" if it.over.is_set() else "open")


async def ended(path):
    """Requests a page and accepts any end of the response."""
    async with client() as it:
        await it.get(path)


async def fetch(path, *fields):
    """Requests a page with the fields NAME=VALUE, and prints its status and content."""
    async with client() as it:
        page = await it.get(path, fields=[field.split("=", 1) for field in fields])
    print(page.status, bytes(page.body).decode())


async def fetch_coded(path, *fields):
    """Requests a page as `fetch`, and prints its status, its coding, its Vary and its content in hexadecimal."""
    async with client() as it:
        page = await it.get(path, fields=[field.split("=", 1) for field in fields])
    known = dict(page.fields)
    print(page.status, known.get("content-encoding"), known.get("vary"), bytes(page.body).hex())


async def get_as(host, path):
    """Requests a page of a host, and prints the status, the fields and the content."""
    async with client(host) as it:
        page = await it.get(path, host=host)
    fields = [": ".join(field) for field in page.fields]
    print(page.status, *fields, bytes(page.body).decode(), sep="\n")


async def resumption():
    tickets = []
    async with client(tickets=tickets) as it:
        equal((await it.get("/")).status, 200)
        assert not it._quic.tls.session_resumed
        while not tickets:
            await it.get("/")
    async with client(known=tickets[0]) as it:
        assert it._quic.tls.session_resumed
        equal((await it.get("/")).status, 200)
    equal(tickets[0].max_early_data_size, None)
    print("resumed, no early data")


async def once():
    async with client() as it:
        print((await it.get("/")).status)


async def crowded():
    """With a limit of three requests under way, a stored page is still served, and a further call on any
    connection is refused until a call ends."""
    async with client() as it, client() as other:
        equal((await other.get("/")).status, 200)
        slow = [it.ask("GET", "/slow?lines=1000&pause_ms=20") for _ in range(3)]
        for each in slow:
            await within(each.moved.wait())
        equal((await other.get("/")).status, 200)
        refused = other.ask("GET", "/slow?lines=1&pause_ms=1")
        await within(refused.ended.wait())
        equal(refused.reset, 0x10B)
        for each in slow:
            it._quic.stop_stream(each.id, 0x10C)
        it.transmit()
        for _ in range(500):
            again = other.ask("GET", "/slow?lines=1&pause_ms=1")
            await within(again.ended.wait())
            if again.reset is None:
                break
            await asyncio.sleep(0.02)
        equal(again.status, 200)
    print("refused, then served")


async def shared():
    """One address takes 12 of 16 places, and two further addresses take 2 each. For a request of a fourth
    address the server ends the longest stalled call of the first address."""
    addresses = [f"127.0.0.{last}" for last in (2, 3, 4, 5)]
    slow = "/slow?lines=100000&pause_ms=20"
    async with AsyncExitStack() as stack:
        first, *others = [await stack.enter_async_context(client_from(it)) for it in addresses]

        async def calls(it, count):
            begun = [it.ask("GET", slow) for _ in range(count)]
            for each in begun:
                await within(each.moved.wait())
            return begun

        held = await calls(first, 12)
        refused = first.ask("GET", slow)
        await within(refused.ended.wait())
        equal(refused.reset, 0x10B)
        for other in others[:2]:
            await calls(other, 2)
            refused = other.ask("GET", slow)
            await within(refused.ended.wait())
            equal(refused.reset, 0x10B)
        await calls(others[2], 1)
        done, _ = await within(asyncio.wait([asyncio.create_task(each.ended.wait()) for each in held],
                                            return_when=asyncio.FIRST_COMPLETED))
        assert done
        equal([each.reset for each in held if each.reset is not None], [0x10C])
    print("shared")


async def migration():
    async with client() as it:
        equal((await it.get("/")).status, 200)
        slow = it.ask("GET", "/slow?lines=50&pause_ms=20")
        await within(slow.moved.wait())
        before = it._transport.get_extra_info("sockname")
        loop = asyncio.get_running_loop()
        # The client's port changes within the connection.
        old = it._transport
        other, _ = await loop.create_datagram_endpoint(
            lambda: Passing(it), local_addr=(before[0], 0)
        )
        it._transport = other
        old.close()
        assert other.get_extra_info("sockname") != before
        it.transmit()
        for _ in range(5):
            equal((await it.get("/")).status, 200)
        await within(slow.ended.wait())
        equal(slow.body.count(b"\n"), 50)
    print("moved")


class Passing(asyncio.DatagramProtocol):
    """Passes datagrams from a new socket to an existing connection."""

    def __init__(self, to):
        self.to = to

    def datagram_received(self, data, address):
        self.to.datagram_received(data, address)


def frame(kind, payload=b""):
    return encode_frame(kind, payload)


SETTINGS = encode_uint_var(0) + frame(4)
HEAD = b"\0\0\xd1\xd7\x50\x09localhost\xc1"

# Streams that break the connection, with the expected error code.
BROKEN = {
    "DATA first": (0x105, [(False, frame(0, b"x"), False)]),
    "SETTINGS on a request": (0x105, [(False, frame(4), False)]),
    "GOAWAY on a request": (0x105, [(False, frame(7, b"\0"), False)]),
    "a push": (0x105, [(False, frame(5, b"\0"), False)]),
    "a frame of HTTP/2": (0x105, [(False, frame(6, b"12345678"), False)]),
    "HEADERS behind trailers": (0x105, [(False, frame(1, HEAD) + frame(1, b"\0\0") * 2, False)]),
    "a frame broken off": (0x106, [(False, b"\x01\x20\0\0", True)]),
    "a dynamic entry": (0x200, [(False, frame(1, b"\0\0\x80"), False)]),
    "an insert count": (0x200, [(False, frame(1, b"\x01\0"), False)]),
    "no such entry": (0x200, [(False, frame(1, b"\0\0\xff\x40"), False)]),
    "a field section without end": (0x107, [(False, b"\x01\x80\x10\0\0", False)]),
    "no SETTINGS first": (0x10A, [(True, b"\0" + frame(7, b"\0"), False)]),
    "a second control stream": (0x103, [(True, SETTINGS, False)] * 2),
    "SETTINGS twice": (0x105, [(True, SETTINGS + frame(4), False)]),
    "settings of HTTP/2": (0x109, [(True, b"\0" + frame(4, b"\x04\x01"), False)]),
    "a setting twice": (0x109, [(True, b"\0" + frame(4, b"\x06\x01\x06\x01"), False)]),
    "SETTINGS broken off": (0x106, [(True, b"\0" + frame(4, b"\x06"), False)]),
    "HEADERS on the control stream": (0x105, [(True, SETTINGS + frame(1, HEAD), False)]),
    "the control stream ends": (0x104, [(True, SETTINGS, True)]),
    "GOAWAY grows": (0x108, [(True, SETTINGS + frame(7, b"\x04") + frame(7, b"\x08"), False)]),
    "MAX_PUSH_ID shrinks": (0x108, [(True, SETTINGS + frame(13, b"\x04") + frame(13, b"\x03"), False)]),
    "CANCEL_PUSH": (0x108, [(True, SETTINGS + frame(3, b"\0"), False)]),
    "a push stream": (0x103, [(True, b"\x01\0", False)]),
    "an insert into no table": (0x201, [(True, b"\x02\xc1\x01x", False)]),
    "a table's capacity": (0x201, [(True, b"\x02\x3f\x01", False)]),
    "an acknowledgement of nothing": (0x202, [(True, b"\x03\x80", False)]),
    "a priority of no request": (0x108, [(True, SETTINGS + frame(0xF0700, b"\x01u=1"), False)]),
    "endless control frames": (0x107, [(True, SETTINGS + frame(13, b"\x05") * 2000, False)]),
    "endless unknown frames": (0x107, [(False, frame(1, HEAD) + frame(0x21) * 2000, False)]),
}

# Field sections that break only their own request.
MALFORMED = {
    "no path": b"\0\0\xd1\xd7\x50\x09localhost",
    "a path twice": b"\0\0\xd1\xd7\x50\x09localhost\xc1\xc1",
    "an unknown pseudo-header field": b"\0\0\xd1\xd7\x50\x09localhost\xc1\x23:ab\x01x",
    "a capital": b"\0\0\xd1\xd7\x50\x09localhost\xc1\x21A\x01x",
    "a control character": b"\0\0\xd1\xd7\x50\x09localhost\xc1\x21a\x01\n",
    "connection": b"\0\0\xd1\xd7\x50\x09localhost\xc1\x27\x03connection\x05close",
}


async def broken():
    for name, (code, says) in BROKEN.items():
        config = configuration(server_name="localhost")
        async with connect("127.0.0.1", PORT, configuration=config, create_protocol=Bare) as it:
            for uni, data, ends in says:
                it.raw(data, ends, uni)
            await within(it.over.wait())
            assert it.code == code, f"{name}: {it.code:#x} ({it.reason}), not {code:#x}"
    async with client() as it:
        for name, section in MALFORMED.items():
            bad = it.raw(frame(1, section), True)
            await within(bad.ended.wait())
            assert bad.reset == 0x10E, f"{name}: {bad.reset} {bad.status}"
        unfinished = it.raw(b"", True)
        await within(unfinished.ended.wait())
        equal(unfinished.reset, 0x10D)
        short = it.ask("POST", "/", [("content-length", "5")], b"1234")
        await within(short.ended.wait())
        equal(short.reset, 0x10E)
        large = await it.get("/", fields=[("x", "y" * 20_000)])
        equal(large.status, 431)
        # Unknown streams and frames are ignored (RFC 9114 §9).
        it.raw(b"\x21hello", False, True)
        known = it.raw(frame(0x21, b"abc") + frame(1, HEAD) + frame(0x40, b""), True)
        await within(known.ended.wait())
        equal((await it.get("/")).status, 200)
    print(f"{len(BROKEN)} connections, {len(MALFORMED) + 2} requests")


class Bare(Client):
    """A client without an HTTP/3 layer: sends only the bytes given."""

    def __init__(self, *arguments, **more):
        QuicConnectionProtocol.__init__(self, *arguments, **more)
        self.http = None
        self.streams = {}
        self.over = asyncio.Event()


async def resets():
    async with client() as it:
        while not it.over.is_set():
            batch = [it.ask("GET", "/endless") for _ in range(50)]
            for asked in batch:
                it._quic.stop_stream(asked.id, 0x10C)
            it.transmit()
            for asked in batch:
                await within(asked.ended.wait())
        equal(it.code, 0x107)
    print("calmed down")


async def garbage():
    import random
    import socket

    wild = random.Random(7)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect(("127.0.0.1", PORT))
    sock.setblocking(False)
    # A valid Initial packet, to be corrupted.
    quic = QuicConnection(configuration=configuration(server_name="localhost"))
    quic.connect(("127.0.0.1", PORT), now=0)
    first = quic.datagrams_to_send(now=0)[0][0]
    sent = received = 0
    for nth in range(3000):
        if nth % 3 == 0:
            data = wild.randbytes(wild.choice([0, 1, 7, 20, 21, 40, 600, 1200, 1472]))
        else:
            spoiled = bytearray(first)
            for _ in range(wild.choice([1, 1, 2, 8])):
                spoiled[wild.randrange(wild.choice([8, 40, len(spoiled)]))] = wild.randrange(256)
            data = bytes(spoiled[: wild.choice([len(spoiled)] * 3 + [30, 300, 1100])])
        try:
            sent += sock.send(data)
        except OSError:
            pass
        try:
            while True:
                received += len(sock.recv(65536))
        except OSError:
            pass
        if nth % 100 == 0:
            await asyncio.sleep(0)
    assert received <= 3 * sent, f"{received} bytes for {sent}"
    async with client() as it:
        equal((await it.get("/")).status, 200)
    print("still there")


async def drain(pidfile):
    async with client() as it:
        equal((await it.get("/")).status, 200)
        slow = it.ask("GET", "/slow?lines=40&pause_ms=25")
        await within(slow.moved.wait())
        os.kill(int(pidfile), 15)
        await within(slow.ended.wait())
        equal(slow.body.count(b"\n"), 40)
        await within(it.over.wait())
        equal(it.code, 0x100)
    print("answered, then closed")


async def alone(name, other):
    """A site with a client certificate requirement accepts no connection, and answers 421 on another site's
    connection."""
    try:
        async with client(name) as it:
            await it.get("/", host=name)
        print("connected")
        return
    except ConnectionError:
        pass
    async with client(other) as it:
        equal((await it.get("/", host=other)).status, 200)
        equal((await it.get("/", host=name)).status, 421)
    print("refused")


async def status(name):
    """Prints the status of a site's front page, or 0 if the connection fails."""
    try:
        async with client(name) as it:
            print((await it.get("/", host=name)).status)
    except ConnectionError:
        print(0)


async def ask(*questions):
    """Sends each request `METHOD path [name:value …]` in turn and prints a line of JSON for each response."""
    async with client() as it:
        for question in questions:
            method, path, *fields = question.split(" ")
            fields = [tuple(field.split(":", 1)) for field in fields]
            got = await it.get(path, method, fields=fields)
            told = {"status": got.status, "fields": got.fields, "body": bytes(got.body).decode()}
            print(json.dumps(told))


async def versions():
    """Sends the requests of the standard input, each over a connection of its own: a line of JSON with method,
    path, fields, kind and length of the content. Prints the status, the length and the checksum of the content,
    and the fields, separated by tabs."""
    for line in sys.stdin.read().splitlines():
        method, path, fields, kind, length = json.loads(line)
        if kind in ("length", "withheld"):
            fields.append(["content-length", str(length)])
        body = b"b" * length if kind in ("length", "open") else None
        async with client() as it:
            got = it.ask(method, path, fields, body, ends=kind != "withheld")
            await within(got.ended.wait())
            told = [got.status, len(got.body), zlib.adler32(got.body)]
            told += [f"{name}: {value}" for name, value in got.fields if name != ":status"]
            print(*told, sep="\t")


async def streams():
    """Sends the hexadecimal bytes of a request stream as given, for each line of the standard input; `new` before
    the bytes opens a new connection. Prints the status, the code of a reset, the code of the connection's end, and
    the content in hexadecimal."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            is_new, _, data = line.rpartition(" ")
            if is_new:
                await stack.aclose()
                it = await stack.enter_async_context(client())
            got = Response()
            if not it.over.is_set():
                got = it.raw(bytes.fromhex(data), True)
                await within(got.ended.wait())
            print(got.status, got.reset, it.code, bytes(got.body).hex(), sep="\t", flush=True)


async def withheld(path, length, *fields):
    """Sends a POST with a declared length and without a body, and prints the response."""
    async with client() as it:
        fields = [tuple(field.split(":", 1)) for field in fields]
        fields.append(("content-length", length))
        got = it.ask("POST", path, fields, ends=False)
        await within(got.ended.wait())
        print(got.status, bytes(got.body).decode())


async def uploads(kind, length, *paths):
    """Sends content to each path, and prints the status of the response and the code of a reset. The content is
    announced by its length, or not (`open`), or with an expectation (`expect`)."""
    for path in paths:
        async with client() as it:
            fields = [("expect", "100-continue")] if kind == "expect" else []
            fields += [("content-length", length)] if kind != "open" else []
            got = it.ask("PUT", path, fields, bytes(int(length)))
            await within(got.ended.wait())
            print(path, got.status, got.reset, flush=True)


async def crowd(count):
    """Makes `count` handshakes at once. Some need an address validation first, and all succeed."""
    async def one():
        async with client() as it:
            equal((await it.get("/")).status, 200)

    await asyncio.gather(*[one() for _ in range(int(count))])
    print("all came in")


async def many(connections, pages):
    """Requests pages over many connections at the same time; each response must be whole."""
    async def one():
        async with client() as it:
            asked = [it.ask("GET", "/page.txt") for _ in range(int(pages) - 1)]
            large = it.ask("GET", "/middle.bin")
            for response in asked:
                await within(response.ended.wait())
                equal((response.status, bytes(response.body)), (200, b"plain text\n" * 100))
            await within(large.ended.wait())
            equal((large.status, bytes(large.body)), (200, b"m" * 100_000))

    await asyncio.gather(*[one() for _ in range(int(connections))])
    print(int(connections) * int(pages), "answers")


async def hold_mute(count):
    """Runs hold() without requests and without permission for the server's control stream."""
    Client.allows_control = False
    await hold(count)


async def hold(count):
    """Holds `count` connections after one request over each. Reads a number from the standard input, waits
    until as many connections have ended, and prints the number of connections closed with H3_NO_ERROR."""
    async with AsyncExitStack() as stack:
        held = []
        for _ in range(int(count)):
            held.append(await stack.enter_async_context(client()))
            if Client.allows_control:
                equal((await held[-1].get("/")).status, 200)
        print("held", flush=True)
        loop = asyncio.get_running_loop()
        wanted = int(await loop.run_in_executor(None, sys.stdin.readline))
        ended = asyncio.as_completed([it.over.wait() for it in held])
        for _ in range(wanted):
            await within(next(ended))
        print(len([it for it in held if it.code == 0x100]), flush=True)


async def silent(path, length, count):
    """Downloads a page over each of `count` connections and requests the page again over each. From then on
    the client acknowledges nothing, until a line arrives on the standard input."""
    async with AsyncExitStack() as stack:
        held = []
        for _ in range(int(count)):
            it = await stack.enter_async_context(client_from("127.0.0.2"))
            # A packet lost to a full receive buffer would keep the congestion window small.
            it._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            equal((await it.get(path)).length, int(length))
            held.append(it)
        for it in held:
            it.ask("GET", path)
            it.datagram_received = lambda data, addr: None
            it.transmit = lambda: None
        print("silent", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        os._exit(0)


async def exchange(path, user, kind, sent, got, *sizes):
    """Posts a recorded request of git in DATA frames of the sizes in turn, and writes the response to a file."""
    login = "Basic " + base64.b64encode(user.encode()).decode()
    fields = [("content-type", kind), ("authorization", login)]
    with open(sent, "rb") as file:
        rest = memoryview(file.read())
    async with client() as it:
        response = it.ask("POST", path, fields, ends=False)
        for size in itertools.cycle(map(int, sizes)):
            it.http.send_data(response.id, bytes(rest[:size]), len(rest) <= size)
            rest = rest[size:]
            if not rest:
                break
        it.transmit()
        await within(response.ended.wait())
        equal(response.reset, None)
        with open(got, "wb") as file:
            file.write(response.body)
        print(response.status)


asyncio.run(globals()[sys.argv[2]](*sys.argv[3:]))
