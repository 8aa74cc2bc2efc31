"""A server over Redis Streams, as existing peers are: it reads one entry at a time and answers with three fields.

Usage: server.py PORT REQUEST_STREAM GROUP. It answers a message with itself, a stream with two events, and everything else with an error.
"""

import json
import sys

import redis

port, requests, group = int(sys.argv[1]), sys.argv[2], sys.argv[3]
connection = redis.Redis(host="127.0.0.1", port=port, decode_responses=True)
try:
    connection.xgroup_create(requests, group, "0-0", mkstream=True)
except redis.ResponseError as error:
    if "BUSYGROUP" not in str(error):
        raise
print("ready", flush=True)


def task(text, state):
    status = {"state": state, "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]}}
    return {"id": "t-1", "contextId": "c-1", "status": status}


def answers(request):
    """The results of a request, each with whether it is the last one."""
    params = request.get("params") or {}
    if request["method"] == "SendMessage":
        text = params["message"]["parts"][0]["text"]
        yield {"result": {"task": task(text, "TASK_STATE_COMPLETED")}}, "true"
    elif request["method"] == "SendStreamingMessage":
        yield {"result": {"task": task("first", "TASK_STATE_WORKING")}}, "false"
        update = {"taskId": "t-1", "contextId": "c-1", "status": task("second", "TASK_STATE_COMPLETED")["status"]}
        yield {"result": {"statusUpdate": update}}, "false"
        yield {}, "true"
    else:
        yield {"error": {"code": -32601, "message": "Method not found"}}, "true"


while True:
    found = connection.xreadgroup(group, "consumer-0123456789ab", {requests: ">"}, count=1, block=100)
    for _, entries in found or []:
        for entry_id, entry in entries:
            request = json.loads(entry["payload"])
            for members, final in answers(request):
                payload = json.dumps({"jsonrpc": "2.0", "id": request["id"], **members})
                fields = {"correlation_id": entry["correlation_id"], "payload": payload, "final": final}
                connection.xadd(entry["reply_stream"], fields)
            connection.xack(requests, group, entry_id)
