"""The client of the package python-a2a."""

import asyncio

import requests
from python_a2a import A2AClient, Message, MessageRole, TextContent

import peer


class Conversation:
    # A message has one content, which is text here, and belongs to no conversation.
    shows_files = False
    shows_data = False

    def __init__(self, url):
        self.client = A2AClient(url)

    async def card(self):
        card = self.client.agent_card
        return card.name, [skill.id for skill in card.skills]

    def message(self, text):
        return Message(content=TextContent(text=text), role=MessageRole.USER)

    async def say(self, text):
        return peer.Reply(await asyncio.to_thread(self.client.ask, text))

    async def stream(self, text):
        return [str(chunk) async for chunk in self.client.stream_response(self.message(text))]


async def connect(url):
    return await asyncio.to_thread(Conversation, url)


def watch_requests():
    """Reports requests that are not made with httpx."""
    original = requests.Session.send

    def send(self, request, **options):
        body = request.body.encode() if isinstance(request.body, str) else request.body
        peer.use(request.url, request.headers, body)
        return original(self, request, **options)

    requests.Session.send = send


watch_requests()
peer.client(connect)
