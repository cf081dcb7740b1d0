"""HTTP/2 client for a server on 127.0.0.1, with python3-h2: `h2_client.py PORT` requests 50 pages at once,
echoes a body and a body with trailers, and prints a summary."""
import socket
import ssl
import sys

import h2.connection
import h2.events

context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
context.set_alpn_protocols(["h2"])
raw = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10)
sock = context.wrap_socket(raw, server_hostname="localhost")
assert sock.selected_alpn_protocol() == "h2"

conn = h2.connection.H2Connection()
conn.initiate_connection()
HOST = [(":scheme", "https"), (":authority", "localhost"), ("accept-encoding", "identity")]
got, ended, waiting = {}, {}, {}


def ask(method, path, ends=True):
    stream = conn.get_next_available_stream_id()
    conn.send_headers(stream, [(":method", method), (":path", path)] + HOST, end_stream=ends)
    got[stream] = b""
    return stream


def push(stream):
    """Sends a body as far as the window allows, then the trailers if any."""
    body, trailers = waiting[stream]
    while body:
        part = body[: min(conn.local_flow_control_window(stream), conn.max_outbound_frame_size)]
        if not part:
            break
        conn.send_data(stream, part)
        body = body[len(part):]
    waiting[stream] = (body, trailers)
    if not body:
        del waiting[stream]
        if trailers:
            conn.send_headers(stream, trailers, end_stream=True)
        else:
            conn.end_stream(stream)


pages = [ask("GET", "/middle.bin") for _ in range(50)]
echoed = bytes(range(256)) * 4000
echo = ask("POST", "/echo", ends=False)
trailer = ask("POST", "/echo", ends=False)
waiting[echo] = (echoed, None)
waiting[trailer] = (b"with a sum", [("x-sum", "1")])
for stream in (echo, trailer):
    push(stream)
while len(ended) < len(got):
    sock.sendall(conn.data_to_send())
    data = sock.recv(65536)
    assert data, "the server closed"
    for event in conn.receive_data(data):
        if isinstance(event, h2.events.DataReceived):
            got[event.stream_id] += event.data
            if event.flow_controlled_length:
                conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            ended[event.stream_id] = True
        elif isinstance(event, (h2.events.StreamReset, h2.events.ConnectionTerminated)):
            sys.exit(f"{event}")
    for stream in list(waiting):
        push(stream)
assert got[echo] == echoed and got[trailer] == b"with a sum"
assert all(got[page] == b"m" * 100000 for page in pages)
conn.close_connection()
sock.sendall(conn.data_to_send())
print(f"{len(pages)} pages, 1 echo, 1 trailer")
