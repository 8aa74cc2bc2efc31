"""A language model as an A2A agent: an iii worker that passes messages to a chat completion endpoint and streams the reply.

Works with every endpoint that has the API of OpenAI. Set OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL.
"""

import asyncio
import json
import os
import threading
import urllib.request

from iii import InitOptions, register_worker

ENGINE = os.environ.get("III_URL", "ws://127.0.0.1:49134")
BASE_URL = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1").rstrip("/")
MODEL = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
ROLES = {"user": "user", "agent": "assistant"}

iii = register_worker(ENGINE, InitOptions(worker_name="llm", otel={"enabled": False}))


def text_of(message):
    return "\n".join(part["text"] for part in message["parts"] if part.get("text"))


def completion(messages):
    """Yields the pieces of the model's reply."""
    body = json.dumps({"model": MODEL, "messages": messages, "stream": True}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}"}
    request = urllib.request.Request(f"{BASE_URL}/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        for line in response:
            data = line.removeprefix(b"data:").strip()
            if not line.startswith(b"data:") or data == b"[DONE]":
                continue
            for choice in json.loads(data)["choices"]:
                if piece := choice["delta"].get("content"):
                    yield piece


async def reply(request):
    # `history` has the earlier messages of the conversation, `input` the text of this one.
    messages = [{"role": "system", "content": "You are a helpful agent. Be brief."}]
    messages += [{"role": ROLES[m["role"]], "content": text_of(m)} for m in request.get("history", [])]
    messages.append({"role": "user", "content": request["input"]})
    pieces = completion(messages)
    channel = request["response"]
    # urllib blocks, so each read runs on a thread.
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        await channel.write(piece.encode())
    await channel.close_async()


iii.register_function(
    "llm::reply",
    reply,
    description="Talk with a language model",
    metadata={"a2a.expose": True, "a2a.stream": True, "a2a.timeoutMs": 120_000},
)

print(f"llm::reply is registered with {ENGINE}; Ctrl-C ends this")
try:
    threading.Event().wait()
except KeyboardInterrupt:
    iii.shutdown()
