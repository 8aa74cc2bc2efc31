"""The client of the SDK's 1.x, which speaks 1.0 and, to an agent that offers nothing else, 0.3."""

import asyncio
import json

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as types_0_3
from a2a.helpers import new_data_part, new_raw_part, new_text_part, new_url_part
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors
from google.protobuf.json_format import MessageToDict, Parse

import suite
from suite import Seen

ERRORS = {
    errors.TaskNotFoundError: 'task-not-found',
    errors.TaskNotCancelableError: 'not-cancelable',
}


def state(status):
    name = pb.TaskState.Name(status.state)
    return name.removeprefix('TASK_STATE_').lower().replace('_', '-')


def text(parts):
    return ''.join(part.text for part in parts)


def plain(part):
    match part.WhichOneof('content'):
        case 'text':
            return {'text': part.text}
        case 'raw':
            return {'bytes': part.raw, 'name': part.filename, 'type': part.media_type}
        case 'url':
            return {'url': part.url, 'name': part.filename, 'type': part.media_type}
        case 'data':
            return {'data': MessageToDict(part.data)}


def made(part):
    if 'bytes' in part:
        return new_raw_part(part['bytes'], filename=part['name'], media_type=part['type'])
    if 'url' in part:
        return new_url_part(part['url'], filename=part['name'], media_type=part['type'])
    return new_data_part(part['data'])


def seen_task(task):
    artifacts = [part for artifact in task.artifacts for part in artifact.parts]
    said = text(artifacts) or text(task.status.message.parts)
    parts = [plain(part) for part in artifacts]
    return Seen('task', task.id, task.context_id, state(task.status), said, parts, len(task.history))


def seen(response):
    match response.WhichOneof('payload'):
        case 'task':
            return seen_task(response.task)
        case 'message':
            message = response.message
            return Seen('message', message.task_id, message.context_id, text=text(message.parts))
        case 'status_update':
            update = response.status_update
            said = text(update.status.message.parts)
            return Seen('status', update.task_id, update.context_id, state(update.status), said)
        case 'artifact_update':
            update = response.artifact_update
            return Seen('artifact', update.task_id, update.context_id, text=text(update.artifact.parts))


class Client:
    manages_push = True

    def __init__(self, version, resolved, streaming, waiting):
        self.version = version
        self.resolved = resolved
        self.streaming = streaming
        self.waiting = waiting

    async def card(self):
        card = self.resolved()
        return card.name, [skill.id for skill in card.skills]

    async def extended_card(self):
        card = await self.waiting.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
        return card.name, [skill.id for skill in card.skills]

    def request(self, words, parts, task, context, wait, webhook):
        message = pb.Message(
            message_id=suite.unique(),
            role=pb.ROLE_USER,
            task_id=task,
            context_id=context,
            parts=[new_text_part(words), *(made(part) for part in parts)],
        )
        request = pb.SendMessageRequest(message=message)
        request.configuration.return_immediately = not wait
        if webhook:
            url, token = webhook
            push = pb.TaskPushNotificationConfig(url=url, token=token)
            request.configuration.task_push_notification_config.CopyFrom(push)
        return request

    async def send(self, words, parts=(), task=None, context=None, wait=True, webhook=None):
        request = self.request(words, parts, task, context, wait, webhook)
        [answer] = [response async for response in self.waiting.send_message(request)]
        return seen(answer)

    async def stream(self, words, task=None, context=None):
        request = self.request(words, (), task, context, True, None)
        async for response in self.streaming.send_message(request):
            yield seen(response)

    async def get(self, task, history=None):
        return seen_task(await self.waiting.get_task(pb.GetTaskRequest(id=task, history_length=history)))

    async def list(self, context):
        listed = await self.waiting.list_tasks(pb.ListTasksRequest(context_id=context))
        return [seen_task(task) for task in listed.tasks]

    async def cancel(self, task):
        return seen_task(await self.waiting.cancel_task(pb.CancelTaskRequest(id=task)))

    async def follow(self, task):
        async for response in self.streaming.subscribe(pb.SubscribeToTaskRequest(id=task)):
            yield seen(response)

    async def set_push(self, task, name, url, token):
        config = pb.TaskPushNotificationConfig(task_id=task, id=name, url=url, token=token)
        config = await self.waiting.create_task_push_notification_config(config)
        return config.id, config.url

    async def get_push(self, task, name):
        request = pb.GetTaskPushNotificationConfigRequest(task_id=task, id=name)
        config = await self.waiting.get_task_push_notification_config(request)
        return config.id, config.url

    async def list_push(self, task):
        request = pb.ListTaskPushNotificationConfigsRequest(task_id=task)
        listed = await self.waiting.list_task_push_notification_configs(request)
        return {config.id: config.url for config in listed.configs}

    async def delete_push(self, task, name):
        request = pb.DeleteTaskPushNotificationConfigRequest(task_id=task, id=name)
        await self.waiting.delete_task_push_notification_config(request)

    def notification(self, body):
        if self.version == '0.3':
            task = types_0_3.Task.model_validate(json.loads(body))
            return seen_task(conversions.to_core_task(task))
        return seen(Parse(body, pb.StreamResponse()))

    def error(self, error):
        return ERRORS.get(type(error), repr(error))


async def connect(url, binding, version):
    http = httpx.AsyncClient(timeout=suite.PATIENCE)

    failed = None
    try:
        card = await A2ACardResolver(http, url).get_agent_card()
    except Exception as error:
        failed = error
        card = pb.AgentCard(name='Interop')

    def resolved():
        if failed:
            raise failed
        return card

    # What the client speaks is the best that the card offers, so the card offers only the tested one.
    offered = pb.AgentCard()
    offered.CopyFrom(card)
    offered.capabilities.streaming = True
    del offered.supported_interfaces[:]
    offered.supported_interfaces.extend(
        interface
        for interface in card.supported_interfaces
        if interface.protocol_binding == binding and interface.protocol_version.startswith(version)
    )
    if version == '0.3' and not offered.supported_interfaces:
        # A card that offers 1.0 need not offer the same in 0.3 to clients that know both.
        address = {'JSONRPC': f'{url}/a2a', 'HTTP+JSON': url, 'GRPC': url.removeprefix('http://')}[binding]
        offered.supported_interfaces.add(url=address, protocol_binding=binding, protocol_version=version)

    def client(streaming):
        config = ClientConfig(
            streaming=streaming,
            httpx_client=http,
            grpc_channel_factory=grpc.aio.insecure_channel,
            supported_protocol_bindings=[binding],
        )
        return ClientFactory(config).create(offered)

    made = Client(version, resolved, client(True), client(False))
    # What 0.3 has no operation for, and what its transport over HTTP+JSON leaves out, raises `NotImplementedError`.
    made.cannot_list = version == '0.3' and 'there is no such operation in 0.3'
    made.manages_push = (binding, version) != ('HTTP+JSON', '0.3')
    return made


asyncio.run(suite.main(connect))
