"""What a client is asked to do with the agent of the interop tests, whatever the version of the SDK and the binding.

A client is an adapter around the SDK's own: it says what it saw in the words below, and everything else is the SDK's. Each
feature is tried on its own and reported in a line of JSON.
"""

import asyncio
import json
import sys
import threading
import traceback
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# How long a feature may take. Only what is broken reaches it.
PATIENCE = 15


@dataclass
class Seen:
    """A task, a message or a change of a task, as an SDK shows it."""

    kind: str
    id: str = ''
    context: str = ''
    state: str = ''
    text: str = ''
    parts: list = field(default_factory=list)
    history: int = 0


class Absent(Exception):
    """The SDK has no such thing."""


def expect(actual, expected, what):
    if actual != expected:
        raise AssertionError(f'{what}: expected {expected!r}, got {actual!r}')


def unique():
    return str(uuid.uuid4())


async def card(client, _):
    seen = await client.card()
    expect(seen, ('Interop', ['interop']), 'name and skills')


async def extended_card(client, _):
    seen = await client.extended_card()
    expect(seen, ('Interop', ['interop', 'extended']), 'name and skills')


async def send(client, _):
    task = await client.send('say hello')
    expect((task.kind, task.state, task.text), ('task', 'completed', 'hello'), 'the answer')


async def direct_message(client, _):
    message = await client.send('direct')
    expect((message.kind, message.text), ('message', 'a direct answer'), 'the answer')


async def stream(client, _):
    seen = [event async for event in client.stream('stream')]
    chunks = [event.text for event in seen if event.kind == 'artifact']
    expect(chunks, ['one ', 'two ', 'three'], 'the pieces')
    states = [event.state for event in seen if event.state]
    expect(states[-1], 'completed', f'the last of {states}')
    expect(len({event.id for event in seen}), 1, 'the number of tasks')
    task = await client.get(seen[0].id)
    expect((task.state, task.text), ('completed', 'one two three'), 'the task afterwards')


async def asked(client):
    task = await client.send('ask')
    expect((task.kind, task.state, task.text), ('task', 'input-required', 'Which colour?'), 'the question')
    answered = await client.send('blue', task=task.id, context=task.context)
    expect((answered.state, answered.text), ('completed', 'blue it is'), 'the answer')
    expect((answered.id, answered.context), (task.id, task.context), 'the task of the answer')
    return answered


async def multi_turn(client, _):
    await asked(client)
    seen = [event async for event in client.stream('ask')]
    expect(seen[-1].state, 'input-required', 'the end of the stream')
    first = seen[0]
    seen = [event async for event in client.stream('red', task=first.id, context=first.context)]
    expect(seen[-1].state, 'completed', 'the end of the second stream')
    expect({event.id for event in seen}, {first.id}, 'the task of the second stream')


async def get(client, _):
    task = await asked(client)
    whole = await client.get(task.id)
    expect((whole.id, whole.context, whole.state), (task.id, task.context, 'completed'), 'the task')
    if whole.history < 2:
        raise AssertionError(f'both messages are history, but there is {whole.history}')
    expect((await client.get(task.id, history=1)).history, 1, 'a history of one')


async def list_tasks(client, _):
    if client.cannot_list:
        raise Absent(client.cannot_list)
    context = unique()
    tasks = [await client.send(f'say {word}', context=context) for word in ('first', 'second')]
    await client.send('say elsewhere')
    listed = await client.list(context)
    expect([task.id for task in listed], [task.id for task in reversed(tasks)], 'the tasks, latest first')


async def cancel(client, _):
    task = await client.send('hold', wait=False)
    canceled = await client.cancel(task.id)
    expect((canceled.id, canceled.state), (task.id, 'canceled'), 'the answer')
    expect((await client.get(task.id)).state, 'canceled', 'the task afterwards')


async def release(client, task):
    message = await client.send(f'release {task}')
    expect(message.kind, 'message', 'the answer to a release')


async def resubscribe(client, _):
    task = await client.send('hold', wait=False)
    seen = []
    async for event in client.follow(task.id):
        seen.append(event)
        if len(seen) == 1:
            await release(client, task.id)
    expect({event.id for event in seen}, {task.id}, 'the task')
    expect([event.text for event in seen if event.kind == 'artifact'], ['released'], 'the artifacts')
    expect(seen[-1].state, 'completed', 'the end')


async def push_configs(client, _):
    task = await client.send('hold', wait=False)
    kept = {}
    for name in ('a', 'b'):
        url = f'http://127.0.0.1:9/{name}'
        expect(await client.set_push(task.id, name, url, 'secret'), (name, url), 'what was set')
        kept[name] = url
    expect(await client.get_push(task.id, 'b'), ('b', kept['b']), 'what was got')
    if client.manages_push:
        expect(await client.list_push(task.id), kept, 'what is listed')
        await client.delete_push(task.id, 'b')
        expect(await client.list_push(task.id), {'a': kept['a']}, 'what is listed after one is deleted')
        expect(await failure(client, client.get_push(task.id, 'b')), 'task-not-found', 'what is deleted')
    await client.cancel(task.id)


async def webhook(client, receiver):
    task = await client.send('hold', wait=False, webhook=(receiver.url, 'shared secret'))
    await release(client, task.id)
    while True:
        headers, body = await receiver.next()
        expect(headers.get('X-A2A-Notification-Token'), 'shared secret', 'the token')
        seen = client.notification(body)
        expect(seen.id, task.id, 'the task')
        if seen.state == 'completed':
            return


async def files(client, _):
    sent = [
        {'bytes': b'\x00\xffbytes', 'name': 'a.bin', 'type': 'application/octet-stream'},
        {'url': 'https://files.example/b.pdf', 'name': 'b.pdf', 'type': 'application/pdf'},
    ]
    task = await client.send('echo', parts=sent)
    expect(task.parts, sent, 'what came back')


async def data(client, _):
    sent = [{'data': {'name': 'Zoë', 'list': [1, 2.5, None, True], 'nested': {'empty': {}}}}]
    task = await client.send('echo', parts=sent)
    expect(task.parts, sent, 'what came back')


async def failure(client, call):
    try:
        await call
    except Exception as error:
        return client.error(error)
    raise AssertionError('it did not fail')


async def errors(client, _):
    unknown = unique()
    expect(await failure(client, client.get(unknown)), 'task-not-found', 'get of an unknown task')
    expect(await failure(client, client.cancel(unknown)), 'task-not-found', 'cancel of an unknown task')
    expect(await failure(client, client.send('on', task=unknown)), 'task-not-found', 'a message to an unknown task')
    task = await client.send('say done')
    expect(await failure(client, client.cancel(task.id)), 'not-cancelable', 'cancel of a task that has ended')
    broken = await client.send('fail')
    expect((broken.state, broken.text), ('failed', 'it broke'), 'a task that fails')


async def begin(client, _):
    """Not a feature: the first half of a test in which others go on."""
    return (await client.send('hold', wait=False)).id


FEATURES = {
    'card': card,
    'extended card': extended_card,
    'send': send,
    'direct message': direct_message,
    'stream': stream,
    'multi-turn': multi_turn,
    'get': get,
    'list': list_tasks,
    'cancel': cancel,
    'resubscribe': resubscribe,
    'push configs': push_configs,
    'webhook': webhook,
    'files': files,
    'data': data,
    'errors': errors,
    'begin': begin,
}


class Receiver:
    """Where notifications arrive."""

    def __init__(self, loop):
        received = asyncio.Queue()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers['Content-Length']))
                loop.call_soon_threadsafe(received.put_nowait, (self.headers, body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f'http://127.0.0.1:{server.server_port}/hook'
        self.next = received.get


def report(**line):
    print(json.dumps(line), flush=True)


async def follow(client, task):
    """Not a feature either: says what is seen of a task as it is seen."""
    async for event in client.follow(task):
        report(seen=event.kind, state=event.state, text=event.text)


async def attempt(client, feature, receiver):
    try:
        detail = await asyncio.wait_for(FEATURES[feature](client, receiver), PATIENCE)
        report(feature=feature, ok=True, detail=detail or '')
    except Absent as absent:
        report(feature=feature, ok=False, absent=True, detail=str(absent))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        detail = f'{type(error).__name__}: {error} ({where.filename.rsplit("/", 1)[-1]}:{where.lineno})'
        report(feature=feature, ok=False, detail=detail)


async def main(connect):
    url, binding, version, *features = sys.argv[1:]
    client = await connect(url, binding, version)
    receiver = Receiver(asyncio.get_running_loop())
    for feature in features:
        if feature.startswith('follow='):
            await follow(client, feature.removeprefix('follow='))
        else:
            await attempt(client, feature, receiver)
