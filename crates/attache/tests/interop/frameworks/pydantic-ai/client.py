"""The client of fasta2a, which is Pydantic AI's implementation of A2A."""

import base64
import uuid

from fasta2a.client import A2AClient
from fasta2a.schema import Message

import peer


def reply(parts):
    """What parts in fasta2a's form contain."""
    seen = peer.Reply()
    for part in parts:
        if 'text' in part:
            seen.text += part['text']
        elif 'raw' in part:
            seen.files.append((part.get('filename'), part.get('media_type'), base64.b64decode(part['raw'])))
        elif 'data' in part:
            seen.data.append(part['data'])
    return seen


class Conversation:
    def __init__(self, url):
        self.client = A2AClient(url, fetch_card=True)
        self.context = None
        self.task = None

    async def card(self):
        card = self.client.agent_card
        return card['name'], [skill['id'] for skill in card['skills']]

    def message(self, text):
        message = Message(role='user', parts=[{'text': text}], message_id=str(uuid.uuid4()))
        if self.context:
            message['context_id'] = self.context
        if self.task:
            message['task_id'] = self.task
        return message

    async def say(self, text):
        response = await self.client.send_message(self.message(text))
        if 'error' in response:
            raise AssertionError(response['error'])
        result = response['result']
        if 'message' in result:
            return reply(result['message']['parts'])
        task = result['task']
        self.context = task['context_id']
        self.task = task['id'] if task['status']['state'] == 'input-required' else None
        artifacts = [part for artifact in task.get('artifacts', []) for part in artifact['parts']]
        return reply(artifacts or task['status'].get('message', {}).get('parts', []))

    async def stream(self, text):
        pieces = []
        async for response in self.client.stream_message(self.message(text)):
            if 'error' in response:
                raise AssertionError(response['error'])
            if update := response['result'].get('artifact_update'):
                pieces.append(reply(update['artifact']['parts']).text)
        return pieces


async def connect(url):
    return Conversation(url)


peer.client(connect)
