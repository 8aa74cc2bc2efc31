"""An agent of Google's Agent Development Kit with a scripted model, served by `to_a2a`."""

import json

from google.adk.agents import LlmAgent
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types

import peer


# Data reaches a model as text between these.
OPENING, CLOSING = b'<a2a_datapart_json>', b'</a2a_datapart_json>'


def said(content):
    text = ' '.join(part.text for part in content.parts if part.text)
    files, data = [], []
    for blob in (part.inline_data for part in content.parts if part.inline_data):
        if blob.data.startswith(OPENING):
            data.append(json.loads(blob.data.removeprefix(OPENING).removesuffix(CLOSING)))
        else:
            files.append((blob.display_name, blob.mime_type, len(blob.data)))
    return peer.described(text, files, data)


def response(text, **options):
    return LlmResponse(content=types.Content(role='model', parts=[types.Part(text=text)]), **options)


class Scripted(BaseLlm):
    async def generate_content_async(self, request, stream=False):
        text = peer.answer([said(content) for content in request.contents if content.role == 'user'])
        if stream:
            for word in peer.words(text):
                yield response(word, partial=True)
        yield response(text)


agent = LlmAgent(name='echo', description='Says what it was told', model=Scripted(model='scripted'))
peer.serve(lambda host, port, url: to_a2a(agent, host=host, port=port))
