"""An agent of AG2 with a scripted model, and its A2A server over JSON-RPC."""

from ag2 import Agent
from ag2.a2a import A2AServer
from ag2.config import ModelConfig
from ag2.events import ModelMessage, ModelMessageChunk, ModelRequest, ModelResponse
from ag2.events.input_events import BinaryInput, DataInput, TextInput

import peer


def said(request):
    texts = [part.content for part in request.parts if isinstance(part, TextInput)]
    blobs = [part for part in request.parts if isinstance(part, BinaryInput)]
    files = [(blob.vendor_metadata.get('filename'), blob.media_type, len(blob.data)) for blob in blobs]
    data = [part.data for part in request.parts if isinstance(part, DataInput)]
    return peer.described(' '.join(texts), files, data)


class Scripted(ModelConfig):
    def copy(self, **_):
        return self

    def create(self):
        return self

    async def __call__(self, messages, context, **_):
        text = peer.answer([said(message) for message in messages if isinstance(message, ModelRequest)])
        for word in peer.words(text):
            await context.send(ModelMessageChunk(word))
        message = ModelMessage(text)
        await context.send(message)
        return ModelResponse(message)


server = A2AServer(Agent('Echo', 'Says what it was told', config=Scripted()))
peer.serve(lambda host, port, url: server.build_jsonrpc(url=url))
