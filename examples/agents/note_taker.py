#!/usr/bin/env python3
"""A small agent that speaks ACP: it asks for permission and writes each message into a file of its workspace.

It stands for a real coding agent, and needs no model:

attache serve --acp 'python3 examples/agents/note_taker.py'
attache chat http://127.0.0.1:3111
"""
import json
import os
import sys


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    return json.loads(line)


def call(method, **params):
    """Sends a request and waits for its result. This agent handles one prompt at a time."""
    send(id=method, method=method, params=params)
    while True:
        message = read()
        if message.get("id") == method:
            return message.get("result")
        # Everything else has to wait, but a cancel ends the wait.
        if message.get("method") == "session/cancel":
            return None
        later.append(message)


def prompt(session, text):
    path = os.path.join(directories[session], "notes.txt")
    tool = {"toolCallId": "write", "title": f"write {path}", "kind": "edit"}
    options = [{"optionId": "allow", "name": "Allow", "kind": "allow_once"},
               {"optionId": "reject", "name": "Reject", "kind": "reject_once"}]
    answer = call("session/request_permission", sessionId=session, toolCall=tool, options=options)
    if answer is None or answer["outcome"].get("outcome") == "cancelled":
        return "cancelled"
    said = "I wrote nothing."
    if answer["outcome"]["optionId"] == "allow":
        notes.setdefault(session, []).append(text)
        call("fs/write_text_file", sessionId=session, path=path, content="\n".join(notes[session]) + "\n")
        said = f"I have {len(notes[session])} notes."
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": said}}
    send(method="session/update", params={"sessionId": session, "update": chunk})
    return "end_turn"


directories, notes, later = {}, {}, []
while True:
    request = later.pop(0) if later else read()
    method, params, number = request.get("method"), request.get("params", {}), request.get("id")
    if method == "initialize":
        send(id=number, result={"protocolVersion": 1, "agentInfo": {"name": "note-taker", "version": "1.0.0"}})
    elif method == "session/new":
        session = f"session-{len(directories) + 1}"
        directories[session] = params["cwd"]
        send(id=number, result={"sessionId": session})
    elif method == "session/prompt":
        text = " ".join(block.get("text", "") for block in params["prompt"])
        send(id=number, result={"stopReason": prompt(params["sessionId"], text)})
    elif number is not None and method is not None:
        send(id=number, error={"code": -32601, "message": f"there is no method `{method}`"})
