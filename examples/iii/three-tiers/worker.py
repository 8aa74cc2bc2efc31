"""One worker, three audiences: the metadata of each function names its tier."""

import os
import threading

from iii import InitOptions, register_worker

ENGINE = os.environ.get("III_URL", "ws://127.0.0.1:49134")
iii = register_worker(ENGINE, InitOptions(worker_name="three-tiers", otel={"enabled": False}))

COST = 10


async def public_quote(order):
    return {"price": COST * 2 * order.get("quantity", 1)}


async def partner_quote(order):
    return {"price": COST * 1.5 * order.get("quantity", 1)}


async def internal_cost(_):
    return {"cost": COST}


for function, tier, description in [
    (public_quote, "public", "Quote a price for anyone"),
    (partner_quote, "partner", "Quote a price for partners"),
    (internal_cost, "ops", "What it costs us"),
]:
    iii.register_function(
        f"pricing::{function.__name__}",
        function,
        description=description,
        metadata={"a2a.expose": True, "a2a.tier": tier},
    )

try:
    threading.Event().wait()
except KeyboardInterrupt:
    iii.shutdown()
