// The client of the SDK's 0.3.

import {
  ClientFactory,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
  TaskNotCancelableError,
  TaskNotFoundError,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';

import { main, seen, unique } from './suite.mjs';

const FACTORIES = { JSONRPC: JsonRpcTransportFactory, 'HTTP+JSON': RestTransportFactory, GRPC: GrpcTransportFactory };

const text = (parts) => parts.map((part) => (part.kind === 'text' ? part.text : '')).join('');

function plain(part) {
  if (part.kind === 'text') return { text: part.text };
  if (part.kind === 'data') return { data: part.data };
  const { bytes, uri, name, mimeType: type } = part.file;
  return uri === undefined ? { bytes, name, type } : { url: uri, name, type };
}

function made({ bytes, url, data, name, type: mimeType }) {
  if (bytes !== undefined) return { kind: 'file', file: { bytes, name, mimeType } };
  if (url !== undefined) return { kind: 'file', file: { uri: url, name, mimeType } };
  return { kind: 'data', data };
}

function seenTask({ id, contextId, status, artifacts, history }) {
  const parts = (artifacts ?? []).flatMap((artifact) => artifact.parts);
  const said = text(parts) || text(status.message?.parts ?? []);
  const kept = history?.length ?? 0;
  return seen('task', { id, context: contextId, state: status.state, text: said, parts: parts.map(plain), history: kept });
}

function seenEvent(event) {
  const { kind, taskId: id, contextId: context, status, artifact, parts } = event;
  switch (kind) {
    case 'task':
      return seenTask(event);
    case 'message':
      return seen('message', { id, context, text: text(parts) });
    case 'status-update':
      return seen('status', { id, context, state: status.state, text: text(status.message?.parts ?? []) });
    case 'artifact-update':
      return seen('artifact', { id, context, text: text(artifact.parts) });
    default:
      throw new Error(`an event of no known kind: ${JSON.stringify(event)}`);
  }
}

const brief = ({ name, skills }) => ({ name, skills: skills.map(({ id }) => id) });

class Client {
  cannotList = 'the client has no method for it';

  constructor(resolved, client) {
    Object.assign(this, { resolved, client });
  }

  async card() {
    const card = this.resolved();
    if (!card.url) throw new Error('the card has no `url`');
    return brief(card);
  }

  async extendedCard() {
    return brief(await this.client.getAgentCard());
  }

  request(words, { parts = [], task, context, wait = true, webhook } = {}) {
    return {
      message: {
        kind: 'message',
        messageId: unique(),
        role: 'user',
        taskId: task,
        contextId: context,
        parts: [{ kind: 'text', text: words }, ...parts.map(made)],
      },
      configuration: { blocking: wait, pushNotificationConfig: webhook },
    };
  }

  async send(words, options) {
    return seenEvent(await this.client.sendMessage(this.request(words, options)));
  }

  async *stream(words, options) {
    for await (const event of this.client.sendMessageStream(this.request(words, options))) yield seenEvent(event);
  }

  async get(task, historyLength) {
    return seenTask(await this.client.getTask({ id: task, historyLength }));
  }

  async cancel(task) {
    return seenTask(await this.client.cancelTask({ id: task }));
  }

  async *follow(task) {
    for await (const event of this.client.resubscribeTask({ id: task })) yield seenEvent(event);
  }

  async setPush(taskId, id, url, token) {
    const wanted = { taskId, pushNotificationConfig: { id, url, token } };
    const { pushNotificationConfig: config } = await this.client.setTaskPushNotificationConfig(wanted);
    return { id: config.id, url: config.url };
  }

  async getPush(taskId, pushNotificationConfigId) {
    const request = { id: taskId, pushNotificationConfigId };
    const { pushNotificationConfig: config } = await this.client.getTaskPushNotificationConfig(request);
    return { id: config.id, url: config.url };
  }

  async listPush(taskId) {
    const configs = await this.client.listTaskPushNotificationConfig({ id: taskId });
    return Object.fromEntries(configs.map(({ pushNotificationConfig: { id, url } }) => [id, url]));
  }

  async deletePush(taskId, pushNotificationConfigId) {
    await this.client.deleteTaskPushNotificationConfig({ id: taskId, pushNotificationConfigId });
  }

  notification(body) {
    return seenEvent(body);
  }

  error(error) {
    if (error instanceof TaskNotFoundError) return 'task-not-found';
    if (error instanceof TaskNotCancelableError) return 'not-cancelable';
    return `${error.name}: ${error.message}`;
  }
}

async function connect(url, binding) {
  const address = { JSONRPC: `${url}/a2a`, 'HTTP+JSON': url, GRPC: url.replace('http://', '') }[binding];
  let card;
  let failed;
  try {
    card = await new DefaultAgentCardResolver().resolve(url);
  } catch (error) {
    failed = error;
    card = {};
  }
  const resolved = () => {
    if (failed) throw failed;
    return card;
  };
  const byHand = { url: address, preferredTransport: binding, capabilities: { streaming: true }, supportsAuthenticatedExtendedCard: true };
  const factory = new ClientFactory({ transports: [new FACTORIES[binding]()] });
  return new Client(resolved, await factory.createFromAgentCard(card.url ? card : { ...card, ...byHand }));
}

await main(connect);
