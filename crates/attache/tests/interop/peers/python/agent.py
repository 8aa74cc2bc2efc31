"""The agent of the servers here: the one that our own server has in these tests, in the SDK's words."""

import asyncio
import socket
from collections import defaultdict

import grpc
import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import TaskUpdater


class Agent(AgentExecutor):
    """Does what the first word of a message says. What differs between versions of the SDK is made by `words`."""

    def __init__(self, words):
        self.words = words
        self.released = defaultdict(asyncio.Event)

    async def execute(self, context, event_queue):
        word, _, rest = context.get_user_input().split('\n')[0].partition(' ')
        if word == 'direct':
            await event_queue.enqueue_event(self.words.reply(context, 'a direct answer'))
            return
        if word == 'release':
            self.released[rest].set()
            await event_queue.enqueue_event(self.words.reply(context, 'released'))
            return
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task:
            await task.add_artifact([self.words.text(f'{word} it is')], name='answer')
            await task.complete()
            return
        await event_queue.enqueue_event(self.words.task(context))
        await self.obey(word, rest, context, task)

    async def obey(self, word, rest, context, task):
        def said(text):
            return task.new_agent_message([self.words.text(text)])

        if word == 'ask':
            await task.requires_input(said('Which colour?'))
            return
        if word == 'fail':
            await task.failed(said('it broke'))
            return
        await task.start_work()
        if word == 'say':
            await task.add_artifact([self.words.text(rest)], name='answer')
        elif word == 'stream':
            for number, chunk in enumerate(['one ', 'two ', 'three']):
                await task.add_artifact(
                    [self.words.text(chunk)], artifact_id='answer', append=number > 0, last_chunk=number == 2
                )
        elif word == 'hold':
            await self.released[context.task_id].wait()
            await task.add_artifact([self.words.text('released')], name='answer')
        elif word == 'echo':
            await task.add_artifact(list(context.message.parts)[1:], name='echo')
        await task.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def serve(make, binding):
    """Serves what `make` makes of where it is: an application for HTTP, and what is to be added to a server of gRPC's."""
    listener = socket.create_server(('127.0.0.1', 0))
    url = f'http://127.0.0.1:{listener.getsockname()[1]}'
    server = grpc.aio.server()
    port = server.add_insecure_port('127.0.0.1:0')
    address = {'JSONRPC': f'{url}/rpc', 'HTTP+JSON': url, 'GRPC': f'127.0.0.1:{port}'}[binding]
    app = make(address, server)
    await server.start()
    http = uvicorn.Server(uvicorn.Config(app, log_level='warning'))
    print(f'Listening on {url}', flush=True)
    await http.serve(sockets=[listener])
