"""A conversation with the client of the SDK's 0.3: two turns, a request for permission, and the download of a file.

With `iac-code` after the URL, the server behaves like iac-code: turns end with `input-required`, and permissions have its form."""

import asyncio
import hashlib
import sys
import uuid

import httpx
from a2a import types
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory


async def main(url, mode='own'):
    like_iac_code = mode == 'iac-code'
    ended = types.TaskState.input_required if like_iac_code else types.TaskState.completed
    http = httpx.AsyncClient(timeout=30)
    card = await A2ACardResolver(http, url).get_agent_card()
    client = ClientFactory(ClientConfig(streaming=False, httpx_client=http)).create(card)

    async def send(words, task=None, context=None, data=None):
        part = types.TextPart(text=words) if data is None else types.DataPart(data=data)
        message = types.Message(
            message_id=uuid.uuid4().hex,
            role=types.Role.user,
            task_id=task,
            context_id=context,
            parts=[types.Part(root=part)],
        )
        [(answer, _)] = [event async for event in client.send_message(message)]
        return answer

    first = await send('hello')
    assert first.status.state == ended, first
    asked = await send('apply', context=first.context_id)
    assert asked.status.state == types.TaskState.input_required, asked
    assert (asked.context_id, asked.id != first.id) == (first.context_id, True), asked
    data = [part.root.data for part in asked.status.message.parts if part.root.kind == 'data']
    answer = None
    if like_iac_code:
        [question] = [item for item in data if item.get('kind') == 'permission']
        assert question['toolName'] == 'aliyun_ros', question
        answer = {
            'schemaVersion': 1,
            'kind': 'permission',
            'requestTaskId': asked.id,
            'inputId': question['inputId'],
            'toolUseId': question['toolUseId'],
            'decision': 'allow_once',
        }
    else:
        assert data[0]['permission']['tool'] == 'aliyun_ros', data
    done = await send('yes', task=asked.id, context=asked.context_id, data=answer)
    assert (done.id, done.status.state) == (asked.id, ended), done
    [part] = [part.root for part in done.artifacts[0].parts]
    response = await http.get(part.file.uri)
    assert response.content == b'StackId: stack-1\n', response
    assert hashlib.sha256(response.content).hexdigest() == part.metadata['sha256'], part
    assert (part.file.name, part.file.mime_type) == ('stack.yml', 'text/yaml'), part
    print('passed', flush=True)


asyncio.run(main(*sys.argv[1:]))
