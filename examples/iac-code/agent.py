"""A scripted agent in the place of iac-code: it says what it got, and does a few things that its messages ask for.

It speaks the JSON protocol of programs: one object per line, in both directions.
"""

import base64
import json
import os
import sys
import time

message = json.loads(sys.stdin.readline())

TEMPLATE = "ROSTemplateFormatVersion: '2015-09-01'\nResources: {}\n"


def write(event):
    print(json.dumps(event), flush=True)


def use_tool(call, name, tool_input, result):
    """A tool call, from its start to its result."""
    sent = json.dumps(tool_input)
    write({"type": "tool", "status": "started", "id": call, "name": name})
    write({"type": "tool", "status": "input_delta", "id": call, "name": name, "length": len(sent)})
    write({"type": "tool", "status": "input_complete", "id": call, "name": name, "input": tool_input})
    write({"type": "tool", "status": "completed", "id": call, "name": name, "result": result})


def add_artifact(name, text):
    """A file for the caller. The server stores it."""
    content = base64.b64encode(text.encode()).decode()
    part = {"raw": content, "filename": name, "mediaType": "text/yaml"}
    write({"type": "artifact", "name": name, "parts": [part]})


text = message["input"]
words = text.split()
command = words[0] if words else ""
if command == "sleep":
    write({"type": "status", "text": "sleeping"})
    time.sleep(float(words[1]))
    write({"type": "status", "text": "awake"})
elif command == "fail":
    write({"type": "fail", "text": "Authentication required. Configure credentials and retry."})
    sys.exit()
elif command == "crash":
    raise RuntimeError("cannot read " + message["workspace"] + " with the key " + " ".join(words[1:]))
elif command == "recall":
    said = [part["text"] for earlier in message["history"] if earlier["role"] == "ROLE_USER" for part in earlier["parts"]]
    write({"type": "status", "text": "You said: " + ", ".join(said)})
elif command == "where":
    write({"type": "status", "text": os.getcwd()})
elif command == "think":
    write({"type": "thinking", "text": "ü" * int(words[1])})
elif command == "list":
    use_tool("call-4", "list_files", {"path": "."}, "\n".join(sorted(os.listdir())))
elif command == "print":
    use_tool("call-5", "bash", {"command": "cat"}, "ü" * int(words[1]))
elif command == "generate":
    write({"type": "thinking", "text": "A VPC needs a CIDR block."})
    # The server takes the file out of the result, and stores it.
    file = {"filename": "vpc.yml", "mediaType": "text/yaml", "content": TEMPLATE}
    result = {"text": "y" * 5000, "artifact": file}
    use_tool("call-1", "write_file", {"path": "vpc.yml", "content": "x" * 5000}, result)
    write({"type": "tool", "status": "started", "id": "call-2", "name": "validate"})
    write({"type": "tool", "status": "failed", "id": "call-2", "name": "validate", "result": "no network"})
    write({"type": "status", "text": "Here is the ROS template..."})
    write({"type": "usage", "inputTokens": 120, "outputTokens": 40})
elif command == "apply":
    asked = {"path": "vpc.yml", "action": "create-stack"}
    write({"type": "permission", "id": "call-3", "tool": "aliyun_ros", "title": "Create the stack", "input": asked})
    decision = json.loads(sys.stdin.readline())["decision"]
    write({"type": "status", "text": "The stack is created." if decision == "allow" else "The stack is not created."})
    if decision == "allow":
        add_artifact("stack.yml", "StackId: stack-1\n")
else:
    write({"type": "status", "text": "Here is the ROS template for: " + text})
write({"type": "complete"})
