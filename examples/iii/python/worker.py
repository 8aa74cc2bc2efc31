"""An iii worker whose functions are A2A skills: a quote, and a story that is streamed word by word."""

import asyncio
import os
import threading

from iii import InitOptions, register_worker

ENGINE = os.environ.get("III_URL", "ws://127.0.0.1:49134")
iii = register_worker(ENGINE, InitOptions(worker_name="python-example", otel={"enabled": False}))

PRICES = {"A-1": 21, "B-2": 8}


async def quote(order):
    price = PRICES.get(order["sku"])
    if price is None:
        # The message of the exception is the message of the failed task.
        raise ValueError(f"there is no {order['sku']}; try one of {', '.join(PRICES)}")
    return {"sku": order["sku"], "price": price * order.get("quantity", 1)}


# `a2a.expose` makes a function a skill. Its description, examples and schema are in the card. A payload that does not match the
# schema is rejected before the call.
iii.register_function(
    "python::quote",
    quote,
    description="Quote a price",
    request_format={
        "type": "object",
        "properties": {"sku": {"type": "string"}, "quantity": {"type": "integer", "minimum": 1}},
        "required": ["sku"],
    },
    metadata={"a2a.expose": True, "a2a.examples": ['python::quote {"sku": "A-1", "quantity": 2}']},
)


async def story(order):
    # `response` is a channel. Each chunk written to it is sent at once as a chunk of an artifact.
    channel = order["response"]
    for word in f"Once upon a time there was {order.get('about', 'a snake')} .".split(" "):
        await channel.write(f"{word} ".encode())
        await asyncio.sleep(0.2)
    await channel.close_async()


iii.register_function(
    "python::story",
    story,
    description="Tell a story, word by word",
    metadata={"a2a.expose": True, "a2a.stream": True, "a2a.examples": ['python::story {"about": "a crab"}']},
)


async def quote_over_http(request):
    try:
        return {"body": await quote({"sku": request["path_params"]["sku"]})}
    except ValueError as error:
        return {"status_code": 404, "body": {"error": str(error)}}


# The same over plain HTTP: GET /python/quotes/A-1. Not a skill, because its metadata has no `a2a.expose`.
iii.register_function("python::quote_over_http", quote_over_http)
iii.register_trigger(
    {
        "type": "http",
        "function_id": "python::quote_over_http",
        "config": {"api_path": "python/quotes/:sku", "http_method": "GET"},
    }
)

print(f"python::quote and python::story are registered with {ENGINE}; Ctrl-C ends this")
try:
    threading.Event().wait()
except KeyboardInterrupt:
    iii.shutdown()
