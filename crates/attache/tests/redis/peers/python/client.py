"""A client over Redis Streams, as existing peers are: three fields in a request, three in a response, one shared response stream.

Usage: client.py PORT REQUEST_STREAM RESPONSE_STREAM. Prints one JSON object per line for each response of three requests.
"""

import json
import sys
import time
import uuid

import redis

port, requests, responses = int(sys.argv[1]), sys.argv[2], sys.argv[3]
connection = redis.Redis(host="127.0.0.1", port=port, decode_responses=True)


def call(method, params, timeout=30.0):
    """Sends a request and yields the payloads of its responses until the last one."""
    correlation = uuid.uuid4().hex
    payload = json.dumps({"jsonrpc": "2.0", "id": correlation, "method": method, "params": params})
    fields = {"correlation_id": correlation, "reply_stream": responses, "payload": payload}
    connection.xadd(requests, fields)
    last, deadline = "0-0", time.monotonic() + timeout
    while time.monotonic() < deadline:
        for _, entries in connection.xread({responses: last}, block=100) or []:
            for last, entry in entries:
                if entry["correlation_id"] != correlation:
                    continue
                yield json.loads(entry["payload"]), entry["final"]
                if entry["final"] == "true":
                    return
    raise TimeoutError("Redis Streams A2A request timed out")


def message(text):
    return {"message": {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}]}}


for method, params in [
    ("SendMessage", message("from Python")),
    ("SendStreamingMessage", message("a stream for Python")),
    ("GetTask", {"id": "unknown"}),
]:
    for payload, final in call(method, params):
        print(json.dumps({"method": method, "payload": payload, "final": final}), flush=True)
