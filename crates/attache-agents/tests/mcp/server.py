"""An MCP server over standard input and output, with a tool for each case that the tests need.

The first argument is a mode: how the server behaves from the beginning. No tool waits for the clock.
"""

import json
import os
import signal
import subprocess
import sys

MODE = sys.argv[1] if len(sys.argv) > 1 else "normal"

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
ASK = {"type": "object", "properties": {"schema": {"type": "object"}, "times": {"type": "integer"}}}

TOOLS = {
    "echo": TEXT,
    "add": NUMBERS,
    "media": {"type": "object"},
    "fail": TEXT,
    "refuse": TEXT,
    "progress": COUNT,
    "hang": {"type": "object"},
    "cancelled": COUNT,
    "ask": ASK,
    "sample": TEXT,
    "roots": {"type": "object"},
    "add_tool": TEXT,
    "die": {"type": "object"},
    "abandon": {"type": "object"},
    "flood": COUNT,
    "garbage": {"type": "object"},
    "wrong": TEXT,
    "gather": COUNT,
    "process": {"type": "object"},
    "log": TEXT,
    "deaf": {"type": "object"},
    "pings": COUNT,
}

cancelled = []
waiting_for_cancel = []
gathered = []
replies = {}
next_id = 1000


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def result(id, content, **more):
    send({"id": id, "result": {"content": content, **more}})


def text(id, value, **more):
    result(id, [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}], **more)


def request(method, params, then):
    global next_id
    next_id += 1
    replies[next_id] = then
    send({"id": next_id, "method": method, "params": params})


def tool(name, schema):
    return {"name": name, "title": name.title(), "description": "Does " + name, "inputSchema": schema}


def list_tools(params):
    cursor = params.get("cursor")
    if MODE == "one":
        return {"tools": [tool("echo", TEXT)]}
    if MODE == "many":
        first = int(cursor or 0)
        tools = [tool("t%d" % n, {"type": "object"}) for n in range(first, first + 100)]
        return {"tools": tools, "nextCursor": str(first + 100)}
    if MODE == "loop":
        return {"tools": [tool("echo", TEXT)], "nextCursor": "again"}
    return {"tools": [tool(name, schema) for name, schema in TOOLS.items()]}


def release_cancel_waiters():
    for waiter in list(waiting_for_cancel):
        id, count = waiter
        if len(cancelled) >= count:
            waiting_for_cancel.remove(waiter)
            text(id, cancelled)


def ask(id, schema, times, answers):
    if times == 0:
        text(id, answers)
        return

    def then(message):
        ask(id, schema, times - 1, answers + [message.get("result", message.get("error"))])

    params = {"message": "What is it? (%d of %d)" % (times, os.getpid()), "requestedSchema": schema}
    request("elicitation/create", params, then)


def call(id, params):
    name, arguments = params["name"], params.get("arguments") or {}
    token = params.get("_meta", {}).get("progressToken")
    if name == "echo":
        text(id, arguments["text"])
    elif name == "add":
        value = {"sum": arguments["a"] + arguments["b"]}
        text(id, value, structuredContent=value)
    elif name == "media":
        result(id, [
            {"type": "image", "data": "AQID", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "file:///x/a.md", "mimeType": "text/markdown", "text": "# A"}},
            {"type": "resource_link", "uri": "https://a.example/b.pdf", "name": "b.pdf"},
        ])
    elif name == "fail":
        text(id, arguments["text"], isError=True)
    elif name == "refuse":
        send({"id": id, "error": {"code": -32050, "message": arguments["text"]}})
    elif name == "progress":
        count = arguments["count"]
        for step in range(1, count + 1):
            params = {"progressToken": token, "progress": step, "total": count, "message": "step %d" % step}
            send({"method": "notifications/progress", "params": params})
        text(id, "done")
    elif name == "hang":
        send({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
    elif name == "cancelled":
        waiting_for_cancel.append((id, arguments["count"]))
        release_cancel_waiters()
    elif name == "ask":
        schema = arguments.get("schema") or TEXT
        ask(id, schema, arguments.get("times", 1), [])
    elif name == "sample":
        message = {"role": "user", "content": {"type": "text", "text": arguments["text"]}}
        params = {"messages": [message], "maxTokens": 50, "systemPrompt": "Be brief"}
        request("sampling/createMessage", params, lambda reply: text(id, reply.get("result", reply.get("error"))))
    elif name == "roots":
        request("roots/list", {}, lambda reply: text(id, reply.get("result", reply.get("error"))))
    elif name == "add_tool":
        TOOLS[arguments["text"]] = {"type": "object"}
        send({"method": "notifications/tools/list_changed"})
        text(id, "added")
    elif name == "die":
        os._exit(3)
    elif name == "abandon":
        # A process in a session of its own, without the environment by which it could be found, keeps the pipes open.
        daemon = subprocess.Popen(["sleep", "1000"], env={}, start_new_session=True)
        with open(os.environ["DAEMON"], "w") as note:
            note.write(str(daemon.pid))
        os._exit(3)
    elif name == "flood":
        text(id, "x" * arguments["count"])
    elif name == "garbage":
        sys.stdout.write('this is not JSON\n{"half": \n[1, 2]\n\n')
        text(id, "still here")
    elif name == "wrong":
        wrong = {"result": {"id": id, "result": "a text"}, "error": {"id": id, "error": "a text"}, "both": {"id": id}}
        send(wrong[arguments["text"]])
    elif name == "gather":
        gathered.append(id)
        if len(gathered) >= arguments["count"]:
            for other in gathered:
                text(other, "all")
            gathered.clear()
    elif name == "process":
        text(id, {"pid": os.getpid(), "environment": sorted(os.environ), "directory": os.getcwd()})
    elif name == "log":
        send({"method": "notifications/message", "params": {"level": "warning", "data": arguments["text"]}})
        sys.stderr.write(arguments["text"] + "\n")
        sys.stderr.flush()
        text(id, "logged")
    elif name == "deaf":
        send({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        signal.pause()
    elif name == "pings":
        for ping in range(arguments["count"]):
            send({"id": "ping-%d" % ping, "method": "ping"})
        text(id, "sent")
    elif name in TOOLS:
        text(id, "called " + name)
    else:
        send({"id": id, "error": {"code": -32602, "message": "unknown tool"}})


def handle(message):
    id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method == "initialize":
        capabilities = {} if MODE == "no-tools" else {"tools": {"listChanged": True}, "logging": {}}
        if MODE == "refuse":
            send({"id": id, "error": {"code": -32000, "message": "not today"}})
            return
        send({"id": id, "result": {
            "protocolVersion": params["protocolVersion"],
            "capabilities": capabilities,
            "serverInfo": {"name": "scripted", "title": "Scripted tools", "version": "7.0"},
            "instructions": "Tools for tests",
        }})
    elif method == "ping":
        send({"id": id, "result": {}})
    elif method == "tools/list":
        send({"id": id, "result": list_tools(params)})
    elif method == "tools/call":
        call(id, params)
    elif method == "notifications/cancelled":
        cancelled.append(params.get("requestId"))
        if "CANCELLED" in os.environ:
            open(os.environ["CANCELLED"], "w").close()
        release_cancel_waiters()
    elif method is None and id in replies:
        replies.pop(id)(message)


if MODE == "exit":
    sys.stderr.write("cannot find my settings\n")
    sys.exit(4)
if MODE == "silent" or os.path.exists(os.environ.get("SILENT_IF", "")):
    signal.pause()
if MODE == "chatter":
    while True:
        sys.stdout.write("hello\n")
for line in sys.stdin:
    handle(json.loads(line))
