"""An agent of Strands Agents with a scripted model, and its A2A server."""

from strands import Agent
from strands.models.model import Model
from strands.multiagent.a2a import A2AServer

import peer


def said(message):
    texts, files = [], []
    for block in message['content']:
        if 'text' in block:
            texts.append(block['text'])
        elif document := block.get('document'):
            files.append((document['name'], document['format'], len(document['source']['bytes'])))
    return peer.described(' '.join(texts), files)


class Scripted(Model):
    def update_config(self, **_):
        pass

    def get_config(self):
        return {}

    def structured_output(self, *_, **__):
        raise NotImplementedError

    async def stream(self, messages, *_, **__):
        yield {'messageStart': {'role': 'assistant'}}
        yield {'contentBlockStart': {'start': {}}}
        for word in peer.words(peer.answer([said(message) for message in messages if message['role'] == 'user'])):
            yield {'contentBlockDelta': {'delta': {'text': word}}}
        yield {'contentBlockStop': {}}
        yield {'messageStop': {'stopReason': 'end_turn'}}


def agent(_context):
    return Agent(name='Echo', description='Says what it was told', model=Scripted(), callback_handler=None)


def make(host, port, url):
    server = A2AServer(agent_factory=agent, host=host, port=port)
    return server.to_starlette_app()


peer.serve(make)
