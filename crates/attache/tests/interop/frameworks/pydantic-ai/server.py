"""The server of fasta2a around an agent of Pydantic AI whose model is a function."""

from fasta2a.pydantic_ai import agent_to_a2a
from pydantic_ai import Agent, BinaryContent, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel

import peer


def said(part):
    content = [part.content] if isinstance(part.content, str) else part.content
    text = ' '.join(item for item in content if isinstance(item, str))
    files = [('-', item.media_type, len(item.data)) for item in content if isinstance(item, BinaryContent)]
    return peer.described(text, files)


def answer(messages):
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    # The parts of one message of A2A are the parts of one request.
    prompts = [[part for part in request.parts if isinstance(part, UserPromptPart)] for request in requests]
    return peer.answer([' '.join(said(part) for part in parts) for parts in prompts if parts])


async def request(messages, info):
    return ModelResponse(parts=[TextPart(answer(messages))])


async def stream(messages, info):
    for word in peer.words(answer(messages)):
        yield word


agent = Agent(FunctionModel(request, stream_function=stream), name='Echo')
peer.serve(lambda host, port, url: agent_to_a2a(agent, url=url))
