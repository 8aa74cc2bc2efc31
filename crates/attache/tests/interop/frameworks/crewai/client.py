"""The function with which agents of CrewAI delegate to remote agents."""

from crewai.a2a.config import A2AClientConfig
from crewai.a2a.utils.agent_card import afetch_agent_card
from crewai.a2a.utils.delegation import aexecute_a2a_delegation

import peer


class Conversation:
    # A result is text.
    shows_files = False
    shows_data = False

    def __init__(self, url):
        self.config = A2AClientConfig(endpoint=f'{url}/.well-known/agent-card.json')
        self.context = None
        self.task = None
        self.history = []

    async def card(self):
        card = await afetch_agent_card(self.config.endpoint)
        return card.name, [skill.id for skill in card.skills]

    async def say(self, text):
        result = await aexecute_a2a_delegation(
            endpoint=self.config.endpoint,
            auth=None,
            timeout=peer.PATIENCE,
            task_description=text,
            context_id=self.context,
            task_id=self.task,
            conversation_history=self.history,
            turn_number=1,
            updates=self.config.updates,
            transport=self.config.transport,
            accepted_output_modes=self.config.accepted_output_modes,
        )
        self.history = result['history']
        if self.history:
            last = self.history[-1]
            self.context = last.context_id
            # As the wrapper of an agent does it: a task goes on until it has ended.
            self.task = last.task_id if result['status'].value == 'input-required' else None
        return peer.Reply(result.get('result') or result.get('error') or '')


async def connect(url):
    return Conversation(url)


peer.client(connect)
