"""The official command line for Rust, `a2acli`, which says in JSON what it saw."""

import asyncio
import base64
import json
import os

import peer


async def a2acli(*arguments):
    process = await asyncio.create_subprocess_exec(
        os.environ['A2ACLI'],
        *arguments,
        '--transport',
        'jsonrpc',
        '--a2a-version',
        '1.0',
        '--output',
        'json',
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    # An unanswered question is no failure of the command.
    if process.returncode and not out:
        raise AssertionError(error.decode().strip())
    return out.decode()


def reply(parts):
    seen = peer.Reply()
    for part in parts:
        if 'text' in part:
            seen.text += part['text']
        elif 'raw' in part:
            seen.files.append((part.get('filename'), part.get('mediaType'), base64.b64decode(part['raw'])))
        elif 'data' in part:
            seen.data.append(part['data'])
    return seen


class Conversation:
    def __init__(self, url):
        self.agent = ['--agent-card', url]
        self.task = []

    async def card(self):
        card = json.loads(await a2acli('card', 'get', *self.agent))
        return card['name'], [skill['id'] for skill in card['skills']]

    async def say(self, text):
        answer = json.loads(await a2acli('send', *self.agent, *self.task, text))
        if message := answer.get('message'):
            return reply(message['parts'])
        task = answer.get('task', answer)
        self.task = ['--task-id', task['id']]
        artifacts = [part for artifact in task.get('artifacts', []) for part in artifact['parts']]
        return reply(artifacts or task['status'].get('message', {}).get('parts', []))

    async def stream(self, text):
        events = map(json.loads, (await a2acli('send', '--stream', *self.agent, text)).splitlines())
        updates = [event['artifactUpdate'] for event in events if 'artifactUpdate' in event]
        return [reply(update['artifact']['parts']).text for update in updates]


async def connect(url):
    return Conversation(url)


# What the flags above demand.
peer.used.append('JSONRPC 1.0')
peer.client(connect)
