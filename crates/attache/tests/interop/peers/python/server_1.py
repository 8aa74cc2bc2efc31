"""A server of the SDK's 1.x, which speaks 1.0 over one binding."""

import asyncio
import sys

import httpx
from a2a.helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.request_handlers import DefaultRequestHandlerV2, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import BasePushNotificationSender, InMemoryPushNotificationConfigStore, InMemoryTaskStore
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from starlette.applications import Starlette

import agent


class Words:
    def text(self, text):
        return new_text_part(text)

    def reply(self, context, text):
        return new_text_message(text, context_id=context.context_id, role=pb.ROLE_AGENT)

    def task(self, context):
        return new_task_from_user_message(context.message)


def card(address, binding, *skills):
    return pb.AgentCard(
        name='Interop',
        description='Does what it is told',
        version='1',
        supported_interfaces=[pb.AgentInterface(url=address, protocol_binding=binding, protocol_version='1.0')],
        capabilities=pb.AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        default_input_modes=['*/*'],
        default_output_modes=['*/*'],
        skills=[pb.AgentSkill(id=skill, name=skill, description=skill, tags=['test']) for skill in skills],
    )


def make(binding):
    def made(address, server):
        public = card(address, binding, 'interop')
        webhooks = InMemoryPushNotificationConfigStore()
        handler = DefaultRequestHandlerV2(
            agent_executor=agent.Agent(Words()),
            task_store=InMemoryTaskStore(),
            agent_card=public,
            push_config_store=webhooks,
            push_sender=BasePushNotificationSender(httpx.AsyncClient(), webhooks),
            extended_agent_card=card(address, binding, 'interop', 'extended'),
        )
        add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
        return Starlette(
            routes=[
                *create_agent_card_routes(public),
                *create_jsonrpc_routes(handler, '/rpc'),
                *create_rest_routes(handler),
            ]
        )

    return made


binding = sys.argv[1]
asyncio.run(agent.serve(make(binding), binding))
