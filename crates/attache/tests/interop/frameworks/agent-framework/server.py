"""An agent of Microsoft's Agent Framework with a scripted model, run by its executor for A2A."""

from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from agent_framework import Agent, BaseChatClient, ChatResponse, ChatResponseUpdate, Content, Message, ResponseStream
from agent_framework.a2a import A2AExecutor
from starlette.applications import Starlette

import peer


def said(message):
    texts = [content.text for content in message.contents if content.type == 'text']
    blobs = [content for content in message.contents if content.type == 'data']
    return peer.described(' '.join(texts), [('-', blob.media_type, '-') for blob in blobs])


class Scripted(BaseChatClient):
    def _inner_get_response(self, *, messages, stream, options, **_):
        text = peer.answer([said(message) for message in messages if message.role == 'user'])

        async def whole():
            return ChatResponse(messages=[Message(role='assistant', contents=[text])])

        async def pieces():
            for word in peer.words(text):
                yield ChatResponseUpdate(role='assistant', contents=[Content.from_text(word)])

        return ResponseStream(pieces(), finalizer=ChatResponse.from_updates) if stream else whole()


def make(host, port, url):
    card = AgentCard(
        name='Echo',
        description='Says what it was told',
        version='1.0.0',
        default_input_modes=['text/plain'],
        default_output_modes=['text/plain'],
        capabilities=AgentCapabilities(streaming=True),
        supported_interfaces=[AgentInterface(url=f'{url}/', protocol_binding='JSONRPC', protocol_version='1.0')],
        skills=[AgentSkill(id='echo', name='Echo', description='Says what it was told', tags=['echo'])],
    )
    agent = Agent(client=Scripted(), name='Echo')
    handler = DefaultRequestHandler(
        agent_executor=A2AExecutor(agent), task_store=InMemoryTaskStore(), agent_card=card
    )
    return Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, '/')])


peer.serve(make)
