"""A peer of the push queue that knows the layout of iac-code: it reads the first job, and adds two of its own.

Usage: push_queue.py PORT STREAM RETRY_KEY URL. It prints the job that it has read.
"""

import json
import sys
import time

import redis

port, stream, retry, url = int(sys.argv[1]), *sys.argv[2:5]
connection = redis.Redis(host="127.0.0.1", port=port, decode_responses=True)

for _, entry in connection.xrange(stream, count=1):
    job = json.loads(entry["job"])
    members = {"jobId", "taskId", "configId", "url", "payload", "headers", "attempt", "nextAttemptAt", "lastError"}
    assert members <= job.keys(), job.keys()
    assert "secret" not in entry["job"], "secrets are not in clear"
    assert job["nextAttemptAt"] <= time.time() + 1
    print(json.dumps(job), flush=True)


def job(job_id, attempt):
    update = {"taskId": "python-task", "status": {"state": "TASK_STATE_WORKING"}}
    return json.dumps(
        {
            "jobId": job_id,
            "taskId": "python-task",
            "configId": "python-task",
            "url": url,
            "payload": {"statusUpdate": update},
            "headers": {"Content-Type": "application/json"},
            "attempt": attempt,
            "nextAttemptAt": time.time(),
            "lastError": None,
        },
        sort_keys=True,
        separators=(",", ":"),
    )


connection.xadd(stream, {"job": job("python-new", 0)})
connection.zadd(retry, {job("python-retry", 2): time.time()})
