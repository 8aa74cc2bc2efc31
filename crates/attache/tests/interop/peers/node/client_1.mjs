// The client of the SDK's 1.x, which speaks 1.0 and, where it is told to, 0.3.

import { Role, StreamResponse, taskStateToJSON } from '@a2a-js/sdk';
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import { legacyPushNotificationToV1StreamResponse } from '@a2a-js/sdk/compat/v0_3';
import { TaskNotCancelableError, TaskNotFoundError } from '@a2a-js/sdk/errors';

import { main, seen, unique } from './suite.mjs';

const FACTORIES = { JSONRPC: JsonRpcTransportFactory, 'HTTP+JSON': RestTransportFactory, GRPC: GrpcTransportFactory };

const state = (status) => taskStateToJSON(status.state).replace('TASK_STATE_', '').toLowerCase().replaceAll('_', '-');

const text = (parts) => parts.map(({ content }) => (content.$case === 'text' ? content.value : '')).join('');

function plain({ content, filename: name, mediaType: type }) {
  switch (content.$case) {
    case 'text':
      return { text: content.value };
    case 'raw':
      return { bytes: Buffer.from(content.value).toString('base64'), name, type };
    case 'url':
      return { url: content.value, name, type };
    case 'data':
      return { data: content.value };
  }
}

function made({ bytes, url, data, name = '', type = '' }) {
  const part = (content) => ({ content, metadata: undefined, filename: name, mediaType: type });
  if (bytes !== undefined) return part({ $case: 'raw', value: Buffer.from(bytes, 'base64') });
  if (url !== undefined) return part({ $case: 'url', value: url });
  return part({ $case: 'data', value: data });
}

function seenTask({ id, contextId, status, artifacts, history }) {
  const parts = artifacts.flatMap((artifact) => artifact.parts);
  const said = text(parts) || text(status.message?.parts ?? []);
  return seen('task', { id, context: contextId, state: state(status), text: said, parts: parts.map(plain), history: history.length });
}

const seenMessage = ({ taskId, contextId, parts }) => seen('message', { id: taskId, context: contextId, text: text(parts) });

function seenEvent({ payload: { $case, value } }) {
  const { taskId: id, contextId: context } = value;
  switch ($case) {
    case 'task':
      return seenTask(value);
    case 'message':
      return seenMessage(value);
    case 'statusUpdate':
      return seen('status', { id, context, state: state(value.status), text: text(value.status.message?.parts ?? []) });
    case 'artifactUpdate':
      return seen('artifact', { id, context, text: text(value.artifact.parts) });
  }
}

const brief = ({ name, skills }) => ({ name, skills: skills.map(({ id }) => id) });

class Client {
  constructor(version, resolved, client) {
    Object.assign(this, { version, resolved, client });
    if (version === '0.3') this.cannotList = 'there is no such operation in 0.3';
  }

  async card() {
    return brief(this.resolved());
  }

  async extendedCard() {
    return brief(await this.client.getAgentCard());
  }

  request(words, { parts = [], task = '', context = '', wait = true, webhook } = {}) {
    const first = { content: { $case: 'text', value: words }, metadata: undefined, filename: '', mediaType: '' };
    return {
      tenant: '',
      metadata: undefined,
      message: {
        messageId: unique(),
        contextId: context,
        taskId: task,
        role: Role.ROLE_USER,
        parts: [first, ...parts.map(made)],
        metadata: undefined,
        extensions: [],
        referenceTaskIds: [],
      },
      configuration: {
        acceptedOutputModes: [],
        returnImmediately: !wait,
        taskPushNotificationConfig: webhook && { tenant: '', id: '', taskId: '', authentication: undefined, ...webhook },
      },
    };
  }

  async send(words, options) {
    const answer = await this.client.sendMessage(this.request(words, options));
    return 'messageId' in answer ? seenMessage(answer) : seenTask(answer);
  }

  async *stream(words, options) {
    for await (const event of this.client.sendMessageStream(this.request(words, options))) yield seenEvent(event);
  }

  async get(task, historyLength) {
    return seenTask(await this.client.getTask({ tenant: '', id: task, historyLength }));
  }

  async list(contextId) {
    const request = { tenant: '', contextId, status: 0, pageToken: '', statusTimestampAfter: undefined };
    return (await this.client.listTasks(request)).tasks.map(seenTask);
  }

  async cancel(task) {
    return seenTask(await this.client.cancelTask({ tenant: '', id: task, metadata: undefined }));
  }

  async *follow(task) {
    for await (const event of this.client.resubscribeTask({ tenant: '', id: task })) yield seenEvent(event);
  }

  async setPush(taskId, name, url, token) {
    const wanted = { tenant: '', id: name, taskId, url, token, authentication: undefined };
    const config = await this.client.createTaskPushNotificationConfig(wanted);
    return { id: config.id, url: config.url };
  }

  async getPush(taskId, name) {
    const config = await this.client.getTaskPushNotificationConfig({ tenant: '', taskId, id: name });
    return { id: config.id, url: config.url };
  }

  async listPush(taskId) {
    const request = { tenant: '', taskId, pageSize: 0, pageToken: '' };
    const { configs } = await this.client.listTaskPushNotificationConfig(request);
    return Object.fromEntries(configs.map(({ id, url }) => [id, url]));
  }

  async deletePush(taskId, name) {
    await this.client.deleteTaskPushNotificationConfig({ tenant: '', taskId, id: name });
  }

  notification(body) {
    const legacy = this.version === '0.3';
    return seenEvent(legacy ? legacyPushNotificationToV1StreamResponse(body) : StreamResponse.fromJSON(body));
  }

  error(error) {
    if (error instanceof TaskNotFoundError) return 'task-not-found';
    if (error instanceof TaskNotCancelableError) return 'not-cancelable';
    return `${error.name}: ${error.message}`;
  }
}

async function connect(url, binding, version) {
  const legacyCompat = { enabled: version === '0.3' };
  let card;
  let failed;
  try {
    card = await new DefaultAgentCardResolver({ legacyCompat }).resolve(url);
  } catch (error) {
    failed = error;
    card = { name: 'Interop', supportedInterfaces: [], skills: [] };
  }
  const resolved = () => {
    if (failed) throw failed;
    return card;
  };
  // What the client speaks is the best that the card offers, so the card offers the one that is to be tried.
  const wanted = ({ protocolBinding, protocolVersion }) => protocolBinding === binding && protocolVersion.startsWith(version);
  const supportedInterfaces = card.supportedInterfaces.filter(wanted);
  if (version === '0.3' && supportedInterfaces.length === 0) {
    // A card that offers 1.0 need not offer the same in 0.3 to those who know both.
    const address = { JSONRPC: `${url}/a2a`, 'HTTP+JSON': url, GRPC: url.replace('http://', '') }[binding];
    supportedInterfaces.push({ url: address, protocolBinding: binding, protocolVersion: version, tenant: '' });
  }
  const capabilities = { extensions: [], ...card.capabilities, streaming: true, extendedAgentCard: true };
  const offered = { ...card, capabilities, supportedInterfaces };
  const factory = new ClientFactory({ transports: [new FACTORIES[binding]({ legacyCompat })] });
  return new Client(version, resolved, await factory.createFromAgentCard(offered));
}

await main(connect);
