"""An agent of AG2 whose model is a remote agent."""

import asyncio

from ag2 import Agent, MemoryStream
from ag2.a2a import A2AConfig
from ag2.events import HumanInputRequest, ModelMessageChunk

import peer


class Conversation:
    # An answer is the text of a model.
    shows_files = False
    shows_data = False

    def __init__(self, url):
        self.stream_of_events = MemoryStream()
        self.questions = asyncio.Queue()
        self.answers = asyncio.Queue()
        self.turn = None
        self.last = None
        config = A2AConfig(card_url=url)
        self.agent = Agent('remote', config=config, hitl_hook=self.ask_user)

    async def ask_user(self, event: HumanInputRequest) -> str:
        await self.questions.put(event.content)
        return await self.answers.get()

    async def say(self, text):
        """The next question or the answer: a turn with questions goes on until they are answered."""
        if self.turn:
            await self.answers.put(text)
        else:
            asked = self.last.ask(text) if self.last else self.agent.ask(text, stream=self.stream_of_events)
            self.turn = asyncio.ensure_future(asked)
        question = asyncio.ensure_future(self.questions.get())
        await asyncio.wait([self.turn, question], return_when=asyncio.FIRST_COMPLETED)
        if question.done():
            return peer.Reply(question.result())
        question.cancel()
        turn, self.turn = self.turn, None
        self.last = turn.result()
        return peer.Reply(self.last.body or '')

    async def stream(self, text):
        pieces = []

        @self.stream_of_events.where(ModelMessageChunk).subscribe
        async def seen(chunk: ModelMessageChunk):
            pieces.append(chunk.content)

        await self.say(text)
        return pieces


async def connect(url):
    return Conversation(url)


peer.client(connect)
