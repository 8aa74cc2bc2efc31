"""The client of the SDK's 0.3."""

import asyncio
import base64
import json

import grpc
import httpx
from a2a import types
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError

import suite
from suite import Seen

# An error is a code (whatever it is, the SDK reads it as its `JSONRPCError`), a status, or the name that its details begin with.
BY_CODE = {-32001: 'task-not-found', -32002: 'not-cancelable'}
BY_HTTP = {404: 'task-not-found', 409: 'not-cancelable'}
BY_NAME = {'TaskNotFoundError': 'task-not-found', 'TaskNotCancelableError': 'not-cancelable'}


def text(parts):
    return ''.join(part.root.text for part in parts if part.root.kind == 'text')


def plain(part):
    part = part.root
    if part.kind == 'text':
        return {'text': part.text}
    if part.kind == 'data':
        return {'data': part.data}
    file = part.file
    content = {'bytes': base64.b64decode(file.bytes)} if hasattr(file, 'bytes') else {'url': file.uri}
    return {**content, 'name': file.name, 'type': file.mime_type}


def made(part):
    if 'bytes' in part:
        content = base64.b64encode(part['bytes']).decode()
        file = types.FileWithBytes(bytes=content, name=part['name'], mime_type=part['type'])
        return types.Part(root=types.FilePart(file=file))
    if 'url' in part:
        file = types.FileWithUri(uri=part['url'], name=part['name'], mime_type=part['type'])
        return types.Part(root=types.FilePart(file=file))
    return types.Part(root=types.DataPart(data=part['data']))


def said(status):
    return text(status.message.parts) if status.message else ''


def seen_task(task):
    artifacts = [part for artifact in task.artifacts or [] for part in artifact.parts]
    parts = [plain(part) for part in artifacts]
    words = text(artifacts) or said(task.status)
    return Seen('task', task.id, task.context_id, task.status.state.value, words, parts, len(task.history or []))


def seen(event):
    if isinstance(event, types.Message):
        return Seen('message', event.task_id, event.context_id, text=text(event.parts))
    task, update = event
    if isinstance(update, types.TaskStatusUpdateEvent):
        status = update.status
        return Seen('status', update.task_id, update.context_id, status.state.value, said(status))
    if isinstance(update, types.TaskArtifactUpdateEvent):
        return Seen('artifact', update.task_id, update.context_id, text=text(update.artifact.parts))
    return seen_task(task)


class Client:
    # It has methods to set a webhook and to get it, and none to list or delete.
    manages_push = False
    cannot_list = 'the client has no method for it'

    def __init__(self, resolved, client):
        self.resolved = resolved
        self.client = client
        self.streaming = client(True)
        self.waiting = client(False)

    async def card(self):
        card = self.resolved()
        return card.name, [skill.id for skill in card.skills]

    async def extended_card(self):
        card = await self.waiting.get_card()
        return card.name, [skill.id for skill in card.skills]

    def request(self, words, parts, task, context):
        return types.Message(
            message_id=suite.unique(),
            role=types.Role.user,
            task_id=task,
            context_id=context,
            parts=[types.Part(root=types.TextPart(text=words)), *(made(part) for part in parts)],
        )

    async def send(self, words, parts=(), task=None, context=None, wait=True, webhook=None):
        # A webhook is a matter of the client, not of the call.
        client = self.client(False, *webhook) if webhook else self.waiting
        configuration = types.MessageSendConfiguration(blocking=wait)
        request = self.request(words, parts, task, context)
        answers = client.send_message(request, configuration=configuration)
        [answer] = [event async for event in answers]
        return seen(answer)

    async def stream(self, words, task=None, context=None):
        async for event in self.streaming.send_message(self.request(words, (), task, context)):
            yield seen(event)

    async def get(self, task, history=None):
        return seen_task(await self.waiting.get_task(types.TaskQueryParams(id=task, history_length=history)))

    async def cancel(self, task):
        return seen_task(await self.waiting.cancel_task(types.TaskIdParams(id=task)))

    async def follow(self, task):
        async for event in self.streaming.resubscribe(types.TaskIdParams(id=task)):
            yield seen(event)

    async def set_push(self, task, name, url, token):
        config = types.PushNotificationConfig(id=name, url=url, token=token)
        wanted = types.TaskPushNotificationConfig(task_id=task, push_notification_config=config)
        config = (await self.waiting.set_task_callback(wanted)).push_notification_config
        return config.id, config.url

    async def get_push(self, task, name):
        request = types.GetTaskPushNotificationConfigParams(id=task, push_notification_config_id=name)
        config = (await self.waiting.get_task_callback(request)).push_notification_config
        return config.id, config.url

    def notification(self, body):
        return seen_task(types.Task.model_validate(json.loads(body)))

    def error(self, error):
        if isinstance(error, A2AClientJSONRPCError):
            return BY_CODE.get(error.error.code, repr(error))
        if isinstance(error, A2AClientHTTPError):
            return BY_HTTP.get(error.status_code, repr(error))
        if isinstance(error, grpc.aio.AioRpcError):
            return BY_NAME.get(error.details().split(':')[0], repr(error))
        return repr(error)


async def connect(url, binding, _version):
    http = httpx.AsyncClient(timeout=suite.PATIENCE)
    address = {'JSONRPC': f'{url}/a2a', 'HTTP+JSON': url, 'GRPC': url.removeprefix('http://')}[binding]

    failed = None
    try:
        card = await A2ACardResolver(http, url).get_agent_card()
    except Exception as error:
        failed = error
        card = types.AgentCard(
            name='Interop',
            description='',
            version='',
            url=address,
            preferred_transport=binding,
            capabilities=types.AgentCapabilities(streaming=True),
            default_input_modes=[],
            default_output_modes=[],
            skills=[],
            supports_authenticated_extended_card=True,
        )

    def resolved():
        if failed:
            raise failed
        return card

    def client(streaming, webhook=None, token=None):
        config = ClientConfig(
            streaming=streaming,
            httpx_client=http,
            grpc_channel_factory=grpc.aio.insecure_channel,
            supported_transports=[binding],
            push_notification_configs=[types.PushNotificationConfig(url=webhook, token=token)] if webhook else [],
        )
        return ClientFactory(config).create(card)

    return Client(resolved, client)


asyncio.run(suite.main(connect))
