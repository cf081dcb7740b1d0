"""A gRPC client of the service in grpc_member.py. Prints "ok" after all calls.

Arguments: the port of the server with TLS.
"""

import queue
import ssl
import sys

import grpc

PATIENCE = 60


def channel(port):
    certificate = ssl.get_server_certificate(("localhost", port)).encode()
    credentials = grpc.ssl_channel_credentials(root_certificates=certificate)
    return grpc.secure_channel(f"localhost:{port}", credentials)


def call(kind, name):
    return getattr(on, kind)(f"/test.Test/{name}")


def unary_calls():
    unary = call("unary_unary", "Unary")
    answer, done = unary.with_call(b"hello", metadata=(("x-own", "1"),), timeout=PATIENCE)
    assert answer == b"unary hello", answer
    assert ("x-initial", "1") in done.initial_metadata(), done.initial_metadata()
    assert ("x-trailing", "end") in done.trailing_metadata(), done.trailing_metadata()
    assert unary(b"", timeout=PATIENCE) == b"unary "
    large = b"l" * 3_000_000
    assert unary(large, timeout=PATIENCE) == b"unary " + large
    pending = [unary.future(str(n).encode(), timeout=PATIENCE) for n in range(200)]
    assert [one.result() for one in pending] == [f"unary {n}".encode() for n in range(200)]


def streams():
    count = 300
    parts = list(call("unary_stream", "ServerStream")(b"%d" % count, timeout=PATIENCE))
    assert [len(part) for part in parts] == list(range(count))
    send = (b"y" * number for number in range(count))
    answer = call("stream_unary", "ClientStream")(send, timeout=PATIENCE)
    assert answer == b"%d %d" % (count, count * (count - 1) // 2), answer


def conversation():
    """Sends each message only after the answer to the message before."""
    messages = queue.Queue()
    answers = call("stream_stream", "Bidirectional")(iter(messages.get, None), timeout=PATIENCE)
    for number in range(50):
        messages.put(b"%d" % number)
        assert next(answers) == b"echo %d" % number
    return messages, answers


def end_of_conversation(messages, answers):
    """Sends another message after the other calls, in which the server gets no byte of the body."""
    messages.put(b"late")
    assert next(answers) == b"echo late"
    messages.put(None)
    assert list(answers) == []
    assert answers.code() == grpc.StatusCode.OK


def failures():
    try:
        call("unary_unary", "Fail")(b"", timeout=PATIENCE)
        raise AssertionError("no failure")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
        assert error.details() == "no: 100 % refused", error.details()
        assert ("x-reason-bin", b"\x00\x01") in error.trailing_metadata()
    try:
        call("unary_unary", "Unknown")(b"", timeout=PATIENCE)
        raise AssertionError("no failure")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error


def cancellations():
    await_cancelled = call("unary_unary", "AwaitCancelled")
    # On a busy machine, grpcio's server misses one cancellation in a hundred, also without a proxy.
    for _ in range(3):
        endless = call("unary_stream", "Endless")(b"")
        assert next(endless) == b"begun"
        endless.cancel()
        if await_cancelled(b"1", timeout=PATIENCE) == b"yes":
            break
    else:
        raise AssertionError("the member has seen no cancellation")
    silent = call("unary_unary", "Silent")
    # On a busy machine, the first deadline may expire before the member has the call.
    for seconds in [1, 4, 16]:
        try:
            silent(b"", timeout=seconds)
            raise AssertionError("no deadline")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
        if await_cancelled(b"1", timeout=PATIENCE) == b"yes":
            return
    raise AssertionError("the member has seen no end of a call")


on = channel(int(sys.argv[1]))
conversed = conversation()
for scene in [unary_calls, streams, failures, cancellations]:
    print(scene.__name__, file=sys.stderr, flush=True)
    scene()
end_of_conversation(*conversed)
on.close()
print("ok")
