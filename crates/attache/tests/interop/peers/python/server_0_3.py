"""A server of the SDK's 0.3, over one binding."""

import asyncio
import sys

import httpx
from a2a import types
from a2a.grpc.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import BasePushNotificationSender, InMemoryPushNotificationConfigStore, InMemoryTaskStore
from a2a.utils import new_agent_text_message, new_task

import agent


class Words:
    def text(self, text):
        return types.Part(root=types.TextPart(text=text))

    def reply(self, context, text):
        return new_agent_text_message(text, context_id=context.context_id)

    def task(self, context):
        return new_task(context.message)


def card(address, binding, *skills):
    return types.AgentCard(
        name='Interop',
        description='Does what it is told',
        version='1',
        url=address,
        preferred_transport=binding,
        capabilities=types.AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=['*/*'],
        default_output_modes=['*/*'],
        skills=[types.AgentSkill(id=skill, name=skill, description=skill, tags=['test']) for skill in skills],
        supports_authenticated_extended_card=True,
    )


def make(binding):
    def made(address, server):
        public = card(address, binding, 'interop')
        extended = card(address, binding, 'interop', 'extended')
        webhooks = InMemoryPushNotificationConfigStore()
        handler = DefaultRequestHandler(
            agent_executor=agent.Agent(Words()),
            task_store=InMemoryTaskStore(),
            push_config_store=webhooks,
            push_sender=BasePushNotificationSender(httpx.AsyncClient(), webhooks),
        )
        add_A2AServiceServicer_to_server(GrpcHandler(extended, handler), server)
        if binding == 'HTTP+JSON':
            return A2ARESTFastAPIApplication(public, handler, extended_agent_card=extended).build()
        return A2AStarletteApplication(public, handler, extended_agent_card=extended).build(rpc_url='/rpc')

    return made


binding = sys.argv[1]
asyncio.run(agent.serve(make(binding), binding))
