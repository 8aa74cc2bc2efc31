#!/usr/bin/env python3
"""An MCP server with one tool, which converts lengths and asks for a unit that is missing.

    attache serve --mcp 'python3 examples/agents/units.py'
    attache send http://127.0.0.1:3111 'convert {"value": 10, "from": "km", "to": "mi"}'
"""

import json
import sys

METERS = {"m": 1.0, "km": 1000.0, "ft": 0.3048, "mi": 1609.344}

UNIT = {"type": "string", "enum": sorted(METERS)}

TOOL = {
    "name": "convert",
    "title": "Convert a length",
    "description": "Converts a length from one unit to another: " + ", ".join(sorted(METERS)),
    "inputSchema": {
        "type": "object",
        "properties": {"value": {"type": "number"}, "from": UNIT, "to": UNIT},
        "required": ["value", "from"],
    },
}

# What to do with the answers to our questions, by the id of the question.
questions = {}


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def convert(id, value, source, target):
    result = {"value": value * METERS[source] / METERS[target], "unit": target}
    text = "%g %s" % (result["value"], target)
    send({"id": id, "result": {"content": [{"type": "text", "text": text}], "structuredContent": result}})


def fail(id, text):
    send({"id": id, "result": {"content": [{"type": "text", "text": text}], "isError": True}})


def call(id, arguments):
    value, source = arguments["value"], arguments["from"]
    if "to" in arguments:
        convert(id, value, source, arguments["to"])
        return

    def answered(result):
        if result.get("action") == "accept":
            convert(id, value, source, result["content"]["to"])
        else:
            fail(id, "the target unit is missing")

    question = "question-%s" % id
    questions[question] = answered
    schema = {"type": "object", "properties": {"to": UNIT}, "required": ["to"]}
    send({"id": question, "method": "elicitation/create",
          "params": {"message": "To which unit?", "requestedSchema": schema}})


for line in sys.stdin:
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method == "initialize":
        send({"id": id, "result": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "units", "title": "Units", "version": "1.0"},
        }})
    elif method == "tools/list":
        send({"id": id, "result": {"tools": [TOOL]}})
    elif method == "tools/call":
        call(id, params.get("arguments") or {})
    elif method == "ping":
        send({"id": id, "result": {}})
    elif method is None and id in questions:
        questions.pop(id)(message.get("result") or {})
