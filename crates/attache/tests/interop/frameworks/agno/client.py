"""The client of Agno, over JSON-RPC."""

from agno.client.a2a import A2AClient

import peer


class Conversation:
    # A result is text; artifacts are shown without their parts.
    shows_files = False
    shows_data = False

    def __init__(self, url):
        self.cards = A2AClient(url)
        self.client = A2AClient(f'{url}/a2a', protocol='json-rpc')
        self.context = None

    async def card(self):
        card = await self.cards.aget_agent_card()
        return card.name, None

    async def say(self, text):
        result = await self.client.send_message(message=text, context_id=self.context)
        self.context = result.context_id
        return peer.Reply(result.content)

    async def stream(self, text):
        pieces = []
        async for event in self.client.stream_message(message=text):
            if event.event_type == 'content' and event.content:
                pieces.append(event.content)
        return pieces


async def connect(url):
    return Conversation(url)


peer.client(connect)
