"""A program that starts an agent and speaks with it over standard input and output."""

import json
import subprocess
import sys

import suite

agent = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def exchange(request):
    print(json.dumps(request), file=agent.stdin, flush=True)
    for line in agent.stdout:
        frame = json.loads(line)
        assert frame["id"] == request["id"], frame
        is_last = frame.get("final") or "eventId" not in frame
        if "result" in frame or "error" in frame:
            yield frame
        if is_last:
            return


suite.run(exchange)
agent.stdin.close()
assert agent.wait(30) == 0, "it ends with its input"
assert agent.stdout.read() == "", "standard output has frames only"
