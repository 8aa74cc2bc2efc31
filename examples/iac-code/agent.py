"""A scripted agent in the place of iac-code: it says what it got, and does a few things that its messages ask for.

It speaks the JSON protocol of programs: one object per line, in both directions.
"""

import json
import sys
import time

message = json.loads(sys.stdin.readline())


def write(event):
    print(json.dumps(event), flush=True)


text = message["input"]
words = text.split()
if words[:1] == ["sleep"]:
    write({"type": "status", "text": "sleeping"})
    time.sleep(float(words[1]))
    write({"type": "status", "text": "awake"})
elif words[:1] == ["fail"]:
    write({"type": "fail", "text": "Sanitized internal error"})
    sys.exit()
elif words[:1] == ["where"]:
    write({"type": "status", "text": message["workspace"]})
else:
    write({"type": "status", "text": "Here is the ROS template for: " + text})
write({"type": "complete"})
