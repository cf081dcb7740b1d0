"""A gRPC server behind the proxy, without protocol buffers: messages are bytes. Prints its port.

Arguments: none for plain HTTP/2, or the files with the certificate and the key.
"""

import sys
import threading
from concurrent import futures

import grpc

cancelled = threading.Semaphore(0)


def unary(request, context):
    metadata = dict(context.invocation_metadata())
    context.send_initial_metadata((("x-initial", metadata.get("x-own", "none")),))
    context.set_trailing_metadata((("x-trailing", "end"),))
    return b"unary " + request


def server_stream(request, context):
    for number in range(int(request)):
        yield b"x" * number


def client_stream(requests, context):
    lengths = [len(request) for request in requests]
    return f"{len(lengths)} {sum(lengths)}".encode()


def bidirectional(requests, context):
    for request in requests:
        yield b"echo " + request


def fail(request, context):
    context.set_trailing_metadata((("x-reason-bin", b"\x00\x01"),))
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no: 100 % refused")


def endless(request, context):
    gone = threading.Event()
    context.add_callback(gone.set)
    yield b"begun"
    gone.wait()
    cancelled.release()


def silent(request, context):
    gone = threading.Event()
    context.add_callback(gone.set)
    gone.wait()
    cancelled.release()
    return b""


def await_cancelled(request, context):
    """Answers once as many calls as the request says were cancelled."""
    for _ in range(int(request)):
        if not cancelled.acquire(timeout=20):
            return b"no"
    return b"yes"


class Service(grpc.GenericRpcHandler):
    handlers = {
        "/test.Test/Unary": grpc.unary_unary_rpc_method_handler(unary),
        "/test.Test/ServerStream": grpc.unary_stream_rpc_method_handler(server_stream),
        "/test.Test/ClientStream": grpc.stream_unary_rpc_method_handler(client_stream),
        "/test.Test/Bidirectional": grpc.stream_stream_rpc_method_handler(bidirectional),
        "/test.Test/Fail": grpc.unary_unary_rpc_method_handler(fail),
        "/test.Test/Endless": grpc.unary_stream_rpc_method_handler(endless),
        "/test.Test/Silent": grpc.unary_unary_rpc_method_handler(silent),
        "/test.Test/AwaitCancelled": grpc.unary_unary_rpc_method_handler(await_cancelled),
    }

    def service(self, details):
        return self.handlers.get(details.method)


def main():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    server.add_generic_rpc_handlers((Service(),))
    if len(sys.argv) > 2:
        chain, key = (open(name, "rb").read() for name in sys.argv[1:3])
        credentials = grpc.ssl_server_credentials([(key, chain)])
        port = server.add_secure_port("127.0.0.1:0", credentials)
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(None)


main()
