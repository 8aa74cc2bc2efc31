"""An agent of CrewAI with a scripted model, run by its executor for A2A on the official SDK's server."""

from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore
from crewai import Agent, BaseLLM
from crewai.a2a.config import A2AServerConfig
from crewai.a2a.utils.task import cancel, execute

import peer


class Scripted(BaseLLM):
    def call(self, messages, *_, **__):
        # The description of the task stands between these lines of the prompt.
        prompt = messages[-1]['content']
        words = prompt.split('Current Task: ')[-1].split('\n\nThis is the expected')[0].strip()
        files = [(name, '-', '-') for message in messages for name in message.get('files') or {}]
        # A task is made of one message, so that there is never more than one to count.
        text = peer.answer([peer.described(words, files)])
        return f'Thought: I now can give a great answer\nFinal Answer: {text}'

    async def acall(self, messages, *arguments, **options):
        return self.call(messages, *arguments, **options)

    def supports_function_calling(self):
        return False


agent = Agent(
    role='Echo',
    goal='Say what you were told',
    backstory='You repeat.',
    llm=Scripted(model='scripted'),
    a2a=A2AServerConfig(name='Echo', description='Says what it was told'),
)


class Executor(AgentExecutor):
    async def execute(self, context, event_queue):
        await execute(agent, context, event_queue)

    async def cancel(self, context, event_queue):
        return await cancel(context, event_queue)


def make(host, port, url):
    handler = DefaultRequestHandler(agent_executor=Executor(), task_store=InMemoryTaskStore())
    return A2AStarletteApplication(agent_card=agent.to_agent_card(url), http_handler=handler).build()


peer.serve(make)
