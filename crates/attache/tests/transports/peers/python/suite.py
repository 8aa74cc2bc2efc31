"""What every client of a transport does: the card, a unary request, a stream, the same stream resumed, and errors."""

import itertools

ids = itertools.count(1)


def request(method, params, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    headers.setdefault("A2A-Version", "1.0")
    return {"jsonrpc": "2.0", "id": next(ids), "method": method, "params": params, "headers": headers}


def message(text):
    return {"message": {"messageId": f"m{next(ids)}", "role": "ROLE_USER", "parts": [{"text": text}]}}


def run(exchange):
    """`exchange` sends a request and yields the JSON-RPC responses, without the frame that ends a stream."""
    (card,) = exchange(request("GetAgentCard", {}))
    assert card["result"]["supportedInterfaces"], card
    (sent,) = exchange(request("SendMessage", message("hello")))
    task = sent["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", sent
    (got,) = exchange(request("GetTask", {"id": task["id"]}))
    assert got["result"]["artifacts"], got
    events = list(exchange(request("SendStreamingMessage", message("hello"))))
    numbers = [event["eventId"] for event in events]
    assert numbers == sorted(numbers) and len(events) > 1, events
    assert "task" in events[0]["result"], events
    task = events[0]["result"]["task"]["id"]
    resumed = exchange(request("SubscribeToTask", {"id": task}, Last_Event_ID=str(numbers[0])))
    assert [event["eventId"] for event in resumed] == numbers[1:], numbers
    (refused,) = exchange(request("GetTask", {"id": "none"}))
    assert refused["error"]["code"] == -32001, refused
    (unknown,) = exchange(request("Nonsense", {}))
    assert unknown["error"]["code"] == -32601, unknown
    print("passed", flush=True)
