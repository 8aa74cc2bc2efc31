"""A client with the package `websockets`."""

import json
import sys

import suite
from websockets.sync.client import connect

with connect(sys.argv[1]) as socket:

    def exchange(request):
        socket.send(json.dumps(request))
        while True:
            frame = json.loads(socket.recv())
            assert set(frame) == {"id", "payload", "final"} and frame["id"] == request["id"], frame
            if "result" in frame["payload"] or "error" in frame["payload"]:
                yield frame["payload"]
            if frame["final"]:
                return

    suite.run(exchange)
