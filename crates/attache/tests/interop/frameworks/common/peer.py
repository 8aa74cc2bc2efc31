"""What the client of a framework is asked to do with our servers, and how the server of a framework is started.

A client is an adapter around the framework's own class for remote agents: `connect(url)` returns a conversation with
`say(text)`, and with `stream(text)` and `card()` if the framework has them. Each feature is tried on its own and reported
in a line of JSON. A server answers with `answer`, so that the caller sees what has reached the agent.
"""

import asyncio
import json
import os
import socket
import sys
import threading
import time
import traceback
import urllib.request
from dataclasses import dataclass, field

# How long a feature may take. Only a broken one takes that long.
PATIENCE = 30

STORY = 'Once upon a time there was an envoy who carried every word exactly once and in order'


@dataclass
class Reply:
    """What a framework shows of an answer."""

    text: str = ''
    files: list = field(default_factory=list)
    data: list = field(default_factory=list)


class Absent(Exception):
    """The framework has no such thing."""


def expect(actual, expected, what):
    if actual != expected:
        raise AssertionError(f'{what}: expected {expected!r}, got {actual!r}')


def expect_in(part, whole, what):
    if part not in whole:
        raise AssertionError(f'{what}: expected {part!r} in {whole!r}')


def method(conversation, name):
    if not hasattr(conversation, name):
        raise Absent(f'the client has no {name}')
    return getattr(conversation, name)


async def card(connect, servers):
    name, skills = await method(await connect(servers['story']), 'card')()
    expect(name, 'Storyteller', 'the name')
    # A framework may leave the skills out.
    if skills is not None:
        expect(skills, ['story'], 'the skills')


async def send(connect, servers):
    reply = await (await connect(servers['demo'])).say('demo::count {"to": 3}')
    expect(reply.text.split(), ['1', '2', '3'], 'the answer')


async def direct_message(connect, servers):
    reply = await (await connect(servers['assistant'])).say('hello')
    expect(reply.text, 'I know `weather CITY` and `report`. You said: hello', 'the answer')


async def stream(connect, servers):
    pieces = await method(await connect(servers['story']), 'stream')('tell me a story')
    expect_in(STORY, ''.join(pieces), 'the story')
    if len(pieces) < len(STORY.split()):
        raise AssertionError(f'the story came in {len(pieces)} pieces: {pieces!r}')


async def multi_turn(connect, servers):
    conversation = await connect(servers['tables'])
    if not getattr(conversation, 'continues', True):
        raise Absent('the client cannot continue a conversation')
    turns = [
        ('a table please', 'For how many people?'),
        ('4', 'At what time?'),
        ('eight', 'A table for 4 at eight.'),
    ]
    for text, answer in turns:
        expect_in(answer, (await conversation.say(text)).text, f'the answer to {text!r}')


async def files(connect, servers):
    conversation = await connect(servers['assistant'])
    if not getattr(conversation, 'shows_files', True):
        raise Absent('the client shows no files')
    reply = await conversation.say('report')
    csv = b'day,visitors\nmon,3\ntue,5\n'
    expect(reply.files, [('visitors.csv', 'text/csv', csv)], 'the files')


async def data(connect, servers):
    conversation = await connect(servers['assistant'])
    if not getattr(conversation, 'shows_data', True):
        raise Absent('the client shows no data')
    reply = await conversation.say('weather Oslo')
    expect(reply.data, [{'city': 'Oslo', 'sky': 'clear', 'wind': 'calm'}], 'the data')


FEATURES = {
    'card': card,
    'send': send,
    'direct message': direct_message,
    'stream': stream,
    'multi-turn': multi_turn,
    'files': files,
    'data': data,
}


def report(**line):
    # In one piece and on a line of its own, whatever the threads of a framework print at the same time.
    sys.stdout.flush()
    os.write(1, f'\n{json.dumps(line)}\n'.encode())


async def attempt(name, connect, servers):
    try:
        await asyncio.wait_for(FEATURES[name](connect, servers), PATIENCE)
        report(feature=name, ok=True)
    except Absent as absent:
        report(feature=name, ok=False, absent=True, detail=str(absent))
    except Exception as error:
        if os.environ.get('ATTACHE_TRACE'):
            traceback.print_exc()
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f'{frame.filename.rsplit("/", 1)[-1]}:{frame.lineno}'
        report(feature=name, ok=False, detail=f'{type(error).__name__}: {error} ({place})')


# The interfaces that the client has used, such as `JSONRPC 1.0`.
used = []


def use(url, headers, body):
    """Notes the interface that a request belongs to."""
    path = url.split('?')[0]
    try:
        called = json.loads(body or b'null')
    except ValueError:
        called = None
    interface = None
    if isinstance(called, dict) and 'method' in called:
        interface = 'JSONRPC 0.3' if '/' in called['method'] else 'JSONRPC 1.0'
    elif ':send' in path or ':stream' in path:
        interface = 'HTTP+JSON 0.3' if '/v1/' in path else 'HTTP+JSON 1.0'
    if interface and interface not in used:
        used.append(interface)
    if record := os.environ.get('ATTACHE_RECORD'):
        with open(record, 'a') as file:
            version = headers.get('A2A-Version')
            file.write(f'> {url} {version}\n{(body or b"").decode(errors="replace")}\n')


def watch_httpx():
    """Makes every client of httpx report its requests to `use`."""
    try:
        import httpx
    except ImportError:
        return
    for transport, name in ((httpx.AsyncHTTPTransport, 'handle_async_request'), (httpx.HTTPTransport, 'handle_request')):
        original = getattr(transport, name)

        def watched(self, request, original=original):
            try:
                body = request.content
            except httpx.RequestNotRead:
                body = b''
            use(str(request.url), request.headers, body)
            return original(self, request)

        setattr(transport, name, watched)


def client(connect):
    """Tries the features that the arguments name at the servers that the first argument names."""
    servers, features = json.loads(sys.argv[1]), sys.argv[2:]
    watch_httpx()

    async def run():
        for feature in features:
            await attempt(feature, connect, servers)

    asyncio.run(run())
    report(interfaces=used)
    # Threads that a framework has started would keep the process alive.
    sys.stdout.flush()
    os._exit(0)


def free_port():
    with socket.create_server(('127.0.0.1', 0)) as listener:
        return listener.getsockname()[1]


def listening(url):
    report(listening=url)


def listening_soon(url, path):
    """Reports the URL of a server that its framework starts, once the path answers."""

    def wait():
        while True:
            try:
                urllib.request.urlopen(f'{url}{path}', timeout=5).close()
                break
            except OSError:
                time.sleep(0.2)
        listening(url)

    threading.Thread(target=wait, daemon=True).start()


def serve(make, path=''):
    """Serves the ASGI application that `make` makes for a host, a port and a URL."""
    import uvicorn

    port = free_port()
    url = f'http://127.0.0.1:{port}{path}'
    config = uvicorn.Config(make('127.0.0.1', port, url), host='127.0.0.1', port=port, log_level='warning')
    server = uvicorn.Server(config)
    started = server.startup

    async def startup(*arguments, **options):
        await started(*arguments, **options)
        listening(url)

    server.startup = startup
    server.run()


def described(text='', files=(), data=()):
    """What a user's message contains."""
    files = [f'[file {name} {kind} {size}]' for name, kind, size in files]
    data = [f'[data {json.dumps(value, sort_keys=True)}]' for value in data]
    return ' '.join([text, *files, *data])


def answer(user_messages):
    """What the agent of a server says to the messages of the user that it can see."""
    return f'turn {len(user_messages)}: You said: {user_messages[-1]}'


def words(text):
    """The pieces in which the agent streams an answer."""
    *first, last = text.split(' ')
    return [f'{word} ' for word in first] + [last]
