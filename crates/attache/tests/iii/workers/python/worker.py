"""The functions that the tests ask for, in Python. Started as `worker.py ENGINE_URL NAME`; its ids begin with the name."""

import asyncio
import json
import logging
import sys
import threading

from iii import InitOptions, TriggerAction, register_worker
from iii.triggers import TriggerHandler

ENGINE, NAME = sys.argv[1:]
logging.basicConfig(level=logging.WARNING)
iii = register_worker(ENGINE, InitOptions(worker_name=NAME, otel={"enabled": False}))
registered = {}


def function(name, handler, **about):
    """Registers a function that is a skill."""
    metadata = {"a2a.expose": True, **about.pop("metadata", {})}
    registered[name] = iii.register_function(f"{NAME}::{name}", handler, metadata=metadata, **about)


async def call(function_id, payload, action=None):
    return await iii.trigger_async({"function_id": function_id, "payload": payload, "action": action})


async def quote(order):
    return {"price": 21 * order["quantity"], "sku": order["sku"]}


function(
    "quote",
    quote,
    description="Quote a price",
    metadata={"a2a.examples": [NAME + '::quote {"sku": "A-1", "quantity": 2}']},
    request_format={
        "type": "object",
        "properties": {"sku": {"type": "string"}, "quantity": {"type": "integer"}},
        "required": ["sku", "quantity"],
    },
)


async def fail(_):
    raise ValueError("the shop is closed")


function("fail", fail)


async def slow(_):
    print("slow began", flush=True)
    await asyncio.sleep(60)
    return {"late": True}


function("slow", slow)
function("late", slow, metadata={"a2a.timeoutMs": 300})


async def relay(order):
    """Calls another function, and waits for what it returns unless it is told not to."""
    void = TriggerAction.Void() if order.get("void") else None
    return {"returned": await call(order["function_id"], order.get("payload"), void)}


function("relay", relay)


async def remember(order):
    return await call("state::set", {"scope": NAME, "key": order["key"], "value": order["value"]})


function("remember", remember)


async def tell(order):
    """Writes to its channel piece by piece."""
    for word in order["words"]:
        await order["response"].write(word.encode())
    await order["response"].close_async()


function("tell", tell, metadata={"a2a.stream": True})


async def tell_text(order):
    """Writes to its channel in text frames, and has something to return as well."""
    for word in order["words"]:
        await order["response"].send_message_async(word)
    await order["response"].close_async()
    return {"words": len(order["words"])}


function("tell_text", tell_text, metadata={"a2a.stream": True})


async def item(request):
    body = {
        "id": request["path_params"]["id"],
        "q": request["query_params"].get("q"),
        "body": request["body"],
        "method": request["method"],
    }
    return {"status_code": 201, "headers": {"x-shop": NAME}, "body": body}


iii.register_function(f"{NAME}::item", item)
for method in ("GET", "POST"):
    config = {"api_path": f"{NAME}/items/:id", "http_method": method}
    iii.register_trigger({"type": "http", "function_id": f"{NAME}::item", "config": config})


async def feed(request):
    """Streams its response."""
    response = request["response"]
    await response.send_message_async(json.dumps({"type": "set_status", "status_code": 202}))
    headers = {"content-type": "text/event-stream"}
    await response.send_message_async(json.dumps({"type": "set_headers", "headers": headers}))
    for number in range(int(request["path_params"]["count"])):
        await response.write(f"data: {number}\n\n".encode())
    await response.close_async()


iii.register_function(f"{NAME}::feed", feed)
config = {"api_path": f"/{NAME}/feed/:count", "http_method": "GET"}
iii.register_trigger({"type": "http", "function_id": f"{NAME}::feed", "config": config})


async def upload(request):
    """Reads a body that is not JSON."""
    body = b"".join([chunk async for chunk in request["request_body"]])
    return {"body": {"length": len(body), "begins": body[:5].decode()}}


iii.register_function(f"{NAME}::upload", upload)
config = {"api_path": f"{NAME}/upload", "http_method": "POST"}
iii.register_trigger({"type": "http", "function_id": f"{NAME}::upload", "config": config})


async def change(order):
    """Registers and unregisters a function while the worker runs."""
    if order["wanted"]:
        function(order["name"], quote)
    else:
        registered.pop(order["name"]).unregister()


function("change", change)


async def changed(news):
    seen = [entry["function_id"] for entry in news["functions"]]
    await call("state::set", {"scope": NAME, "key": "seen", "value": {"event": news["event"], "functions": seen}})


iii.register_function(f"{NAME}::changed", changed)
iii.register_trigger({"type": "engine::functions-available", "function_id": f"{NAME}::changed", "config": {}})


class Bell(TriggerHandler):
    """A type of triggers: whoever has one is called when the bell is rung."""

    bound = {}

    async def register_trigger(self, config):
        if config.config.get("broken"):
            raise ValueError("a broken bell cannot be rung")
        self.bound[config.id] = config

    async def unregister_trigger(self, config):
        self.bound.pop(config.id, None)


async def ring(_):
    return [await call(bell.function_id, {"rung": bell.config["at"]}) for bell in Bell.bound.values()]


async def rung(news):
    return {"heard": news["rung"], "by": NAME}


iii.register_trigger_type({"id": f"{NAME}-bell", "description": "A bell"}, Bell())
function("ring", ring)
iii.register_function(f"{NAME}::rung", rung)
iii.register_trigger(
    {"type": f"{NAME}-bell", "function_id": f"{NAME}::rung", "config": {"at": "the door"}}
)
threading.Event().wait()
