"""A runnable of the BeeAI framework that needs no model, and its A2A server."""

from beeai_framework.adapters.a2a import A2AServer, A2AServerConfig
from beeai_framework.backend import AssistantMessage, UserMessage
from beeai_framework.emitter import Emitter
from beeai_framework.runnable import Runnable, RunnableOutput, runnable_entry

import peer


def said(message):
    files = [(part.file.get('filename'), part.file.get('format'), '-') for part in message.content if part.type == 'file']
    return peer.described(message.text, files)


class Echo(Runnable[RunnableOutput]):
    """Says what it was told"""

    @property
    def emitter(self):
        return Emitter.root().child(namespace=['echo'], creator=self)

    @runnable_entry
    async def run(self, input, /, **_):
        text = peer.answer([said(message) for message in input if isinstance(message, UserMessage)])
        return RunnableOutput(output=[AssistantMessage(text)])


port = peer.free_port()
peer.listening_soon(f'http://127.0.0.1:{port}', '/health')
A2AServer(config=A2AServerConfig(host='127.0.0.1', port=port)).register(Echo()).serve()
