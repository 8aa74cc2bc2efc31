"""A client of the JSON-RPC envelope with `grpcio`. The message is written by hand: it has two fields."""

import json
import sys

import grpc
import suite

SERVICE = "/iac_code.a2a.transports.proto.A2AJsonRpc/"


def varint(number):
    head = bytes([number & 127 | (128 if number > 127 else 0)])
    return head + varint(number >> 7) if number > 127 else head


def write(payload):
    return b"\x0a" + varint(len(payload)) + payload


def read(data):
    """The payload and whether it is the last one."""
    payload, final, at = b"", False, 0
    while at < len(data):
        key, at = data[at], at + 1
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if key == 0x0A:
            payload, at = data[at : at + value], at + value
        elif key == 0x10:
            final = bool(value)
        else:
            raise ValueError(f"unknown field {key}")
    return json.loads(payload), final


channel = grpc.insecure_channel(sys.argv[1])
send = channel.unary_unary(SERVICE + "Send")
stream = channel.unary_stream(SERVICE + "Stream")


def exchange(request):
    metadata = [(name.lower(), value) for name, value in request.pop("headers").items()]
    payload = write(json.dumps(request).encode())
    if request["method"] not in ("SendStreamingMessage", "SubscribeToTask"):
        response, final = read(send(payload, metadata=metadata))
        assert final, response
        yield response
        return
    final = False
    for data in stream(payload, metadata=metadata):
        response, final = read(data)
        if not final:
            yield response
    assert final, "a stream ends with a last message"


suite.run(exchange)
try:
    send(b"", timeout=10)
    raise AssertionError("an empty payload is refused")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
