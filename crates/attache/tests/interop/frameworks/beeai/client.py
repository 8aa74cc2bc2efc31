"""The class for remote agents of the BeeAI framework."""

from a2a.types import TaskArtifactUpdateEvent
from beeai_framework.adapters.a2a.agents import A2AAgent
from beeai_framework.memory import UnconstrainedMemory

import peer


class Conversation:
    # Files and data are not in the messages that the class returns.
    shows_files = False
    shows_data = False

    def __init__(self, url):
        self.agent = A2AAgent(url=url, memory=UnconstrainedMemory())

    async def card(self):
        await self.agent.check_agent_exists()
        card = self.agent.agent_card
        return card.name, [skill.id for skill in card.skills]

    async def say(self, text):
        return peer.Reply((await self.agent.run(text)).last_message.text)

    async def stream(self, text):
        pieces = []

        def update(event, _):
            match event.value:
                case (_, TaskArtifactUpdateEvent() as change):
                    pieces.extend(part.root.text for part in change.artifact.parts)

        await self.agent.run(text).on('update', update)
        return pieces


async def connect(url):
    return Conversation(url)


peer.client(connect)
