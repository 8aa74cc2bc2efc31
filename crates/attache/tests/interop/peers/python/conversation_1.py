"""A conversation with the client of the SDK's 1.x: two turns, a request for permission, and the download of a file.

With `iac-code` after the URL, the server behaves like iac-code: turns end with `input-required`, and permissions have its form."""

import asyncio
import hashlib
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers import new_data_part, new_text_part
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict


async def main(url, mode='own'):
    like_iac_code = mode == 'iac-code'
    ended = pb.TASK_STATE_INPUT_REQUIRED if like_iac_code else pb.TASK_STATE_COMPLETED
    http = httpx.AsyncClient(timeout=30)
    card = await A2ACardResolver(http, url).get_agent_card()
    client = ClientFactory(ClientConfig(streaming=False, httpx_client=http)).create(card)

    async def send(words, task='', context='', data=None):
        part = new_text_part(words) if data is None else new_data_part(data)
        message = pb.Message(
            message_id=uuid.uuid4().hex,
            role=pb.ROLE_USER,
            task_id=task,
            context_id=context,
            parts=[part],
        )
        [answer] = [event async for event in client.send_message(pb.SendMessageRequest(message=message))]
        return answer.task

    first = await send('hello')
    assert first.status.state == ended, first
    asked = await send('apply', context=first.context_id)
    assert asked.status.state == pb.TASK_STATE_INPUT_REQUIRED, asked
    assert (asked.context_id, asked.id != first.id) == (first.context_id, True), asked
    data = [MessageToDict(part.data) for part in asked.status.message.parts if part.HasField('data')]
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
    [part] = done.artifacts[0].parts
    metadata = MessageToDict(part.metadata)
    response = await http.get(part.url)
    assert response.content == b'StackId: stack-1\n', response
    assert hashlib.sha256(response.content).hexdigest() == metadata['sha256'], metadata
    assert (part.filename, part.media_type) == ('stack.yml', 'text/yaml'), part
    print('passed', flush=True)


asyncio.run(main(*sys.argv[1:]))
