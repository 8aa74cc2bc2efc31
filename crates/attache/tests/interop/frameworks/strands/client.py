"""The class for remote agents of Strands Agents."""

from strands.agent.a2a_agent import A2AAgent

import peer


def text(message):
    return ''.join(block.get('text', '') for block in message['content'])


class Conversation:
    # An answer is a message for a model, with the text of the remote agent and nothing else.
    shows_files = False
    shows_data = False
    # No identifier of a conversation or a task leaves this class.
    continues = False

    def __init__(self, url):
        self.agent = A2AAgent(endpoint=url)

    async def card(self):
        card = await self.agent.get_agent_card()
        return card.name, [skill.id for skill in card.skills]

    async def say(self, words):
        result = await self.agent.invoke_async(words)
        return peer.Reply(text(result.message))

    async def stream(self, words):
        pieces = []
        async for event in self.agent.stream_async(words):
            match event.get('event'):
                case (_, update) if getattr(update, 'kind', '') == 'artifact-update':
                    pieces += [part.root.text for part in update.artifact.parts]
        return pieces


async def connect(url):
    return Conversation(url)


peer.client(connect)
