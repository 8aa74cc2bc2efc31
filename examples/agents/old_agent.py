"""An agent of protocol 0.3: it keeps its tasks in memory, and speaks JSON-RPC of 0.3 only. `old_agent.yml` puts it behind a gateway."""

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TextPart
from a2a.utils import new_task


class Shout(AgentExecutor):
    async def execute(self, context, event_queue):
        task = context.current_task or new_task(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        text = context.get_user_input().upper()
        await updater.add_artifact([Part(root=TextPart(text=text))], name='answer')
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name='Shout', description='Says it louder', version='0.1', url='http://127.0.0.1:9999/',
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=['text/plain'], default_output_modes=['text/plain'],
    skills=[AgentSkill(id='shout', name='Shout', description='Says it louder', tags=['text'])],
)
handler = DefaultRequestHandler(agent_executor=Shout(), task_store=InMemoryTaskStore())
uvicorn.run(A2AStarletteApplication(agent_card=card, http_handler=handler).build(), port=9999)
