"""The class for remote agents of Google's Agent Development Kit, as the root agent of a runner."""

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.runners import InMemoryRunner
from google.genai import types

import peer


class Conversation:
    def __init__(self, runner, session):
        self.runner = runner
        self.session = session

    async def events(self, text, mode):
        content = types.Content(role='user', parts=[types.Part(text=text)])
        run = self.runner.run_async(
            user_id='user',
            session_id=self.session.id,
            new_message=content,
            run_config=RunConfig(streaming_mode=mode),
        )
        async for event in run:
            if event.error_message:
                raise AssertionError(event.error_message)
            yield event

    async def say(self, text):
        seen = peer.Reply()
        async for event in self.events(text, StreamingMode.NONE):
            for part in event.content.parts if event.content else []:
                # A status on the way is a thought.
                if part.text and not part.thought:
                    seen.text += part.text
                elif part.function_call:
                    # A question is a call of a function that the user is to answer.
                    seen.text += part.function_call.args.get('input_required', '')
                elif part.inline_data:
                    blob = part.inline_data
                    seen.files.append((blob.display_name, blob.mime_type, blob.data))
        return seen

    # Data becomes text for a model, with a marker around it.
    shows_data = False

    async def stream(self, text):
        pieces = []
        async for event in self.events(text, StreamingMode.SSE):
            for part in event.content.parts if event.content else []:
                if part.text and not part.thought:
                    pieces.append(part.text)
        return pieces


async def connect(url):
    agent = RemoteA2aAgent(name='remote', agent_card=f'{url}/.well-known/agent-card.json')
    runner = InMemoryRunner(agent=agent, app_name='interop')
    session = await runner.session_service.create_session(app_name='interop', user_id='user')
    return Conversation(runner, session)


peer.client(connect)
