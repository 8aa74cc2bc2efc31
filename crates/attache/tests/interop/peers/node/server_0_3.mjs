// A server of the SDK's 0.3, over one binding.

import {
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

const text = (text) => ({ kind: 'text', text });

const message = ({ taskId, contextId }, words) => ({
  kind: 'message',
  messageId: unique(),
  taskId,
  contextId,
  role: 'agent',
  parts: [text(words)],
});

const status = (context, state, words) => ({
  state,
  message: words === undefined ? undefined : message(context, words),
  timestamp: new Date().toISOString(),
});

const ENDS = ['completed', 'canceled', 'failed', 'input-required'];

const words = {
  text,
  said: ({ parts }) => parts[0].text,
  message: (context, words) => ({ ...message(context, words), taskId: undefined }),
  task: (context) => {
    const { taskId: id, contextId, userMessage } = context;
    return { kind: 'task', id, contextId, status: status(context, 'submitted'), history: [userMessage] };
  },
  again: ({ task }) => task,
  status: (context, state, words) => {
    const { taskId, contextId } = context;
    const final = ENDS.includes(state);
    return { kind: 'status-update', taskId, contextId, status: status(context, state, words), final };
  },
  artifact: ({ taskId, contextId }, parts, { append = false, lastChunk = false } = {}) => {
    const artifact = { artifactId: 'answer', name: 'answer', parts };
    return { kind: 'artifact-update', taskId, contextId, artifact, append, lastChunk };
  },
};

const card = (url, preferredTransport, ...skills) => ({
  name: 'Interop',
  description: 'Does what it is told',
  version: '1',
  protocolVersion: '0.3.0',
  url,
  preferredTransport,
  capabilities: { streaming: true, pushNotifications: true },
  defaultInputModes: ['*/*'],
  defaultOutputModes: ['*/*'],
  skills: skills.map((id) => ({ id, name: id, description: id, tags: ['test'] })),
  supportsAuthenticatedExtendedCard: true,
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
