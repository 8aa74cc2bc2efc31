"""A coding agent that does what its prompts say, for the tests. It speaks ACP on its standard input and output."""

import argparse
import json
import os
import subprocess
import sys
import threading
import time

arguments = argparse.ArgumentParser()
arguments.add_argument("--log")
arguments.add_argument("--load", action="store_true")
arguments.add_argument("--close", action="store_true")
arguments.add_argument("--embed", action="store_true")
arguments.add_argument("--silent", action="store_true")
arguments.add_argument("--version", type=int, default=1)
arguments.add_argument("--login", action="store_true")
options = arguments.parse_args()

lock = threading.Lock()
waiting = {}
sessions = {}
count = 0


class RpcError(Exception):
    pass


def send(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def log(message):
    if options.log:
        with lock, open(options.log, "a") as file:
            file.write(json.dumps(message) + "\n")


def call(method, params):
    """Sends a request to the server and waits for the result."""
    global count
    with lock:
        count += 1
        number = f"agent-{count}"
        slot = waiting[number] = {"event": threading.Event()}
    send({"id": number, "method": method, "params": params})
    slot["event"].wait()
    if "error" in slot["message"]:
        raise RpcError(slot["message"]["error"]["message"])
    return slot["message"]["result"]


class Session:
    def __init__(self, number, cwd):
        self.id = number
        self.cwd = cwd
        self.cancelled = threading.Event()
        self.prompts = 0

    def update(self, update):
        send({"method": "session/update", "params": {"sessionId": self.id, "update": update}})

    def say(self, text, kind="agent_message_chunk", **more):
        self.update({"sessionUpdate": kind, "content": {"type": "text", "text": text}, **more})

    def call(self, method, **params):
        return call(method, {"sessionId": self.id, **params})

    def ask(self, title):
        kinds = [("yes-1", "Allow once", "allow_once"), ("no-1", "Reject once", "reject_once")]
        choices = [{"optionId": i, "name": n, "kind": k} for i, n, k in kinds]
        tool = {"toolCallId": "t1", "title": title, "kind": "delete"}
        return self.call("session/request_permission", toolCall=tool, options=choices)["outcome"]

    def run(self, text, prompt):
        """Does what the text says, and returns the stop reason."""
        word, _, rest = text.partition(" ")
        if word == "stream":
            self.say("one ")
            while not os.path.exists(rest):
                time.sleep(0.01)
            self.say("two")
        elif word == "session":
            self.say(f"{self.id} {self.prompts} {self.cwd}")
        elif word == "pid":
            self.say(str(os.getpid()))
        elif word == "blocks":
            self.say(json.dumps(prompt))
        elif word == "env":
            self.say(" ".join(sorted(os.environ)))
        elif word == "hang":
            self.say("hanging")
            self.cancelled.wait()
            return "cancelled"
        elif word == "deaf":
            self.say(str(os.getpid()))
            threading.Event().wait()
        elif word == "crash":
            self.say("half")
            os._exit(3)
        elif word == "abandon":
            # A process in a session of its own, without the environment by which it could be found, keeps the pipes open.
            daemon = subprocess.Popen(["sleep", "1000"], env={}, start_new_session=True)
            self.say(str(daemon.pid))
            os._exit(3)
        elif word == "flood":
            while not self.cancelled.is_set():
                self.say("x" * 1000)
            return "cancelled"
        elif word == "line":
            with lock:
                sys.stdout.write("x" * int(rest))
                sys.stdout.flush()
            self.cancelled.wait()
        elif word == "garbage":
            with lock:
                sys.stdout.write("npm notice: hello\n{}\n[1]\n\n{\"id\": 77, \"result\": 1}\n")
                sys.stdout.flush()
            self.say("fine")
        elif word == "ask":
            self.say("before ")
            outcome = self.ask(rest or "Delete everything")
            self.say(json.dumps(outcome))
            if outcome["outcome"] == "cancelled":
                return "cancelled"
        elif word == "twice":
            outcomes = [self.ask("first"), self.ask("second")]
            self.say(json.dumps([outcome.get("optionId") for outcome in outcomes]))
        elif word == "read":
            self.say(self.call("fs/read_text_file", path=rest)["content"])
        elif word == "write":
            self.call("fs/write_text_file", path=rest, content="written")
            self.say("done")
        elif word == "terminal":
            made = self.call("terminal/create", command=rest, env=[{"name": "MODE", "value": "test"}])
            status = self.call("terminal/wait_for_exit", terminalId=made["terminalId"])
            output = self.call("terminal/output", terminalId=made["terminalId"])
            self.call("terminal/release", terminalId=made["terminalId"])
            self.say(json.dumps({"status": status, **output}))
        elif word == "outside":
            self.call("terminal/create", command="pwd", cwd=rest)
        elif word == "leave":
            made = self.call("terminal/create", command="/bin/sh", args=["-c", "echo $$; exec sleep 1000"])
            while True:
                output = self.call("terminal/output", terminalId=made["terminalId"])["output"]
                if output:
                    break
                time.sleep(0.01)
            self.say(output)
        elif word == "tools":
            self.say("Let me look.")
            self.say("I wonder.", kind="agent_thought_chunk")
            self.update({"sessionUpdate": "plan", "entries": [
                {"content": "look", "priority": "high", "status": "completed"},
                {"content": "edit", "priority": "low", "status": "pending"}]})
            self.update({"sessionUpdate": "tool_call", "toolCallId": "t1", "title": "Edit a.txt", "kind": "edit",
                         "status": "pending", "rawInput": {"path": "a.txt"}})
            self.update({"sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": "completed", "content": [
                {"type": "diff", "path": os.path.join(self.cwd, "a.txt"), "oldText": "a", "newText": "b"}]})
            self.update({"sessionUpdate": "usage_update", "used": 10, "size": 100})
            self.update({"sessionUpdate": "something_new", "x": 1})
            self.say("Done.")
        elif word == "pieces":
            for piece in rest.split("|"):
                self.say(piece)
                time.sleep(0.05)
        elif word == "files":
            for number, content in enumerate(["one", "two", "two"]):
                self.update({"sessionUpdate": "tool_call", "toolCallId": f"f{number}", "title": "Write a.yml", "kind": "edit",
                             "status": "completed",
                             "rawOutput": {"ok": True, "artifact": {"filename": "a.yml", "content": content}}})
        elif word == "stop":
            reason, _, text = rest.partition(" ")
            if text:
                self.say(text)
            return reason
        elif word == "error":
            raise RpcError("the key sk-secret is wrong")
        else:
            self.say(f"you said: {text}")
        return "end_turn"

    def prompt(self, number, prompt):
        self.prompts += 1
        self.cancelled.clear()
        texts = [block["text"] for block in prompt if block["type"] == "text"]
        commands = [text for text in texts if not text.startswith(("The conversation so far", "("))]
        try:
            try:
                reason = self.run(commands[0] if commands else "blocks", prompt)
            except RpcError as error:
                if commands[0] == "error":
                    raise
                self.say(str(error))
                reason = "end_turn"
            send({"id": number, "result": {"stopReason": reason}})
        except RpcError as error:
            send({"id": number, "error": {"code": -32603, "message": str(error)}})


def handle(message):
    method, params, number = message.get("method"), message.get("params"), message.get("id")
    if method is None:
        slot = waiting.pop(number)
        slot["message"] = message
        slot["event"].set()
    elif method == "initialize":
        if options.silent:
            return
        capabilities = {
            "loadSession": options.load,
            "promptCapabilities": {"embeddedContext": options.embed, "image": options.embed},
            "sessionCapabilities": {"close": {}} if options.close else {},
        }
        info = {"name": "scripted", "title": "Scripted Agent", "version": "1.2.3"}
        send({"id": number, "result": {"protocolVersion": options.version, "agentCapabilities": capabilities,
                                       "agentInfo": info, "authMethods": [{"id": "key", "name": "Key"}]}})
    elif method == "session/new":
        if options.login:
            send({"id": number, "error": {"code": -32000, "message": "log in with sk-secret"}})
            return
        name = f"s{len(sessions) + 1}-{os.getpid()}"
        sessions[name] = Session(name, params["cwd"])
        send({"id": number, "result": {"sessionId": name}})
    elif method == "session/load":
        name = params["sessionId"]
        session = sessions[name] = Session(name, params["cwd"])
        session.say("said long ago")
        session.prompts = 100
        send({"id": number, "result": None})
    elif method == "session/prompt":
        session = sessions[params["sessionId"]]
        threading.Thread(target=session.prompt, args=(number, params["prompt"]), daemon=True).start()
    elif method == "session/cancel":
        sessions[params["sessionId"]].cancelled.set()
    elif number is not None:
        send({"id": number, "result": {}})


log({"pid": os.getpid()})
for line in sys.stdin:
    incoming = json.loads(line)
    log(incoming)
    handle(incoming)
