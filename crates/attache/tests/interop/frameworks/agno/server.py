"""An agent of Agno with a scripted model, and the A2A interface of its AgentOS."""

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS

import peer


def said(message):
    files = [(file.filename, file.mime_type, len(file.content or b'')) for file in message.files or []]
    return peer.described(message.get_content_string(), files)


class Scripted(Model):
    def text(self, messages):
        return peer.answer([said(message) for message in messages if message.role == 'user'])

    def invoke(self, messages, **_):
        return ModelResponse(role='assistant', content=self.text(messages))

    async def ainvoke(self, messages, **options):
        return self.invoke(messages, **options)

    def invoke_stream(self, messages, **_):
        for word in peer.words(self.text(messages)):
            yield ModelResponse(role='assistant', content=word)

    async def ainvoke_stream(self, messages, **options):
        for response in self.invoke_stream(messages, **options):
            yield response

    def _parse_provider_response(self, response, **_):
        return response

    def _parse_provider_response_delta(self, response):
        return response


agent = Agent(
    id='echo',
    name='Echo',
    description='Says what it was told',
    model=Scripted(id='scripted'),
    db=InMemoryDb(),
    add_history_to_context=True,
    telemetry=False,
)
system = AgentOS(agents=[agent], a2a_interface=True, telemetry=False)
peer.serve(lambda host, port, url: system.get_app(), path='/a2a/agents/echo')
