"""A server of fasta2a, which does what the first word of a message says."""

import asyncio
import contextlib
import socket

import uvicorn
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage


class Agent(Worker):
    async def run_task(self, params):
        task, context, message = params['id'], params['context_id'], params['message']
        turn = (await self.storage.load_context(context) or 0) + 1
        await self.storage.update_context(context, turn)
        await self.storage.update_task(task, state='working')
        await self.publish_status(task, context, 'working')
        word, _, rest = message['parts'][0]['text'].partition(' ')
        if word == 'fail':
            raise RuntimeError('it broke')
        if word == 'stop':
            await self.storage.update_task(task, state='canceled')
            return
        parts = {
            'say': [{'text': rest}],
            'keep': [{'text': rest}],
            'turn': [{'text': f'turn {turn}'}],
            'stream': [{'text': text} for text in ('one ', 'two ', 'three')],
            'echo': message['parts'][1:],
        }[word]
        artifact = {'artifact_id': 'answer', 'name': 'Answer', 'parts': parts}
        # An answer that is only kept is in the task and not in its stream.
        for number, part in enumerate(parts if word != 'keep' else []):
            last = number == len(parts) - 1
            await self.publish_artifact(task, context, {**artifact, 'parts': [part]}, append=number > 0, last_chunk=last)
        await self.storage.update_task(task, state='completed', new_artifacts=[artifact])

    async def cancel_task(self, params):
        await self.storage.update_task(params['id'], state='canceled')

    def build_message_history(self, history):
        return history

    def build_artifacts(self, result):
        return []


@contextlib.asynccontextmanager
async def working(app):
    async with app.task_manager, worker.run():
        yield


listener = socket.create_server(('127.0.0.1', 0))
url = f'http://127.0.0.1:{listener.getsockname()[1]}'
storage, broker = InMemoryStorage(), InMemoryBroker()
worker = Agent(storage=storage, broker=broker)
modes = ['text/plain', 'application/octet-stream']
app = FastA2A(
    storage=storage,
    broker=broker,
    name='Interop',
    url=url,
    skills=[{'id': 'interop', 'name': 'interop', 'description': 'interop', 'tags': ['test']}],
    default_input_modes=modes,
    default_output_modes=modes,
    lifespan=working,
)
print(f'Listening on {url}', flush=True)
asyncio.run(uvicorn.Server(uvicorn.Config(app, log_level='warning')).serve(sockets=[listener]))
