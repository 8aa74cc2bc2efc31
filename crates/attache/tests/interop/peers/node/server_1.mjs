// A server of the SDK's 1.x, which speaks 1.0 over one binding.

import { Role, TaskState } from '@a2a-js/sdk';
import {
  AgentEvent,
  DefaultExecutionEventBusManager,
  DefaultPushNotificationSender,
  DefaultRequestHandler,
  InMemoryPushNotificationStore,
  InMemoryTaskStore,
} from '@a2a-js/sdk/server';
import { agentCardHandler, jsonRpcHandler, restHandler } from '@a2a-js/sdk/server/express';
import { A2AService, grpcService } from '@a2a-js/sdk/server/grpc';

import { Agent, serve, userBuilder } from './agent.mjs';
import { unique } from './suite.mjs';

const text = (value) => ({ content: { $case: 'text', value }, metadata: undefined, filename: '', mediaType: '' });

const message = ({ taskId, contextId }, words) => ({
  messageId: unique(),
  taskId,
  contextId,
  role: Role.ROLE_AGENT,
  parts: [text(words)],
  metadata: undefined,
  extensions: [],
  referenceTaskIds: [],
});

const status = (context, state, words) => ({
  state: TaskState[`TASK_STATE_${state.toUpperCase().replaceAll('-', '_')}`],
  message: words === undefined ? undefined : message(context, words),
  timestamp: new Date().toISOString(),
});

const words = {
  text,
  said: ({ parts }) => parts[0].content.value,
  message: (context, words) => AgentEvent.message({ ...message(context, words), taskId: '' }),
  task: (context) => {
    const { taskId: id, contextId, userMessage } = context;
    const history = [userMessage];
    return AgentEvent.task({ id, contextId, status: status(context, 'submitted'), artifacts: [], history, metadata: undefined });
  },
  again: ({ task }) => AgentEvent.task(task),
  status: (context, state, words) => {
    const { taskId, contextId } = context;
    return AgentEvent.statusUpdate({ taskId, contextId, status: status(context, state, words), metadata: undefined });
  },
  artifact: ({ taskId, contextId }, parts, { append = false, lastChunk = false } = {}) => {
    const artifact = { artifactId: 'answer', name: 'answer', description: '', parts, metadata: undefined, extensions: [] };
    return AgentEvent.artifactUpdate({ taskId, contextId, artifact, append, lastChunk, metadata: undefined });
  },
};

const card = (url, protocolBinding, ...skills) => ({
  name: 'Interop',
  description: 'Does what it is told',
  version: '1',
  supportedInterfaces: [{ url, protocolBinding, protocolVersion: '1.0', tenant: '' }],
  capabilities: { streaming: true, pushNotifications: true, extendedAgentCard: true, extensions: [] },
  provider: undefined,
  securitySchemes: {},
  securityRequirements: [],
  defaultInputModes: ['*/*'],
  defaultOutputModes: ['*/*'],
  skills: skills.map((id) => ({
    id,
    name: id,
    description: id,
    tags: ['test'],
    examples: [],
    inputModes: [],
    outputModes: [],
    securityRequirements: [],
  })),
  signatures: [],
});

await serve((address, binding, app, server) => {
  const webhooks = new InMemoryPushNotificationStore();
  const requestHandler = new DefaultRequestHandler(
    card(address, binding, 'interop'),
    new InMemoryTaskStore(),
    new Agent(words),
    new DefaultExecutionEventBusManager(),
    webhooks,
    new DefaultPushNotificationSender(webhooks),
    card(address, binding, 'interop', 'extended'),
  );
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
  app.use('/rpc', jsonRpcHandler({ requestHandler, userBuilder }));
  app.use('/rest', restHandler({ requestHandler, userBuilder }));
  server.addService(A2AService, grpcService({ requestHandler, userBuilder }));
});
