"""The class for remote agents of Microsoft's Agent Framework."""

import base64

import httpx
from a2a.client import A2ACardResolver
from agent_framework.a2a import A2AAgent

import peer


def reply(contents):
    seen = peer.Reply()
    for content in contents:
        if content.type == 'text':
            seen.text += content.text
        elif content.type == 'data':
            kind, encoded = content.uri.removeprefix('data:').split(';base64,')
            name = (content.additional_properties or {}).get('filename')
            seen.files.append((name, kind, base64.b64decode(encoded)))
    return seen


class Conversation:
    # Data becomes text for a model.
    shows_data = False

    def __init__(self, card):
        self.seen = card
        self.agent = A2AAgent(name=card.name, agent_card=card, timeout=peer.PATIENCE)
        self.session = self.agent.create_session()

    async def card(self):
        return self.seen.name, [skill.id for skill in self.seen.skills]

    async def say(self, text):
        response = await self.agent.run(text, session=self.session)
        return reply(content for message in response.messages for content in message.contents)

    async def stream(self, text):
        return [update.text async for update in self.agent.run(text, stream=True, session=self.session) if update.text]


async def connect(url):
    async with httpx.AsyncClient() as http:
        return Conversation(await A2ACardResolver(httpx_client=http, base_url=url).get_agent_card())


peer.client(connect)
