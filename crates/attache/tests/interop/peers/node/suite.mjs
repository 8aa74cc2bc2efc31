// What a client is asked to do with the agent of the interop tests, whatever the version of the SDK and the binding.
//
// A client is an adapter around the SDK's own: it says what it saw in the words below, and everything else is the SDK's. Each
// feature is tried on its own and reported in a line of JSON.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

// How long a feature may take. Only what is broken reaches it.
const PATIENCE = 15_000;

/** The SDK has no such thing. */
export class Absent extends Error {}

export const unique = () => randomUUID();

/** A task, a message or a change of a task, as an SDK shows it. */
export const seen = (kind, members) => ({ kind, id: '', context: '', state: '', text: '', parts: [], history: 0, ...members });

async function all(events) {
  const seen = [];
  for await (const event of events) seen.push(event);
  return seen;
}

async function failure(client, call) {
  try {
    await call;
  } catch (error) {
    return client.error(error);
  }
  throw new Error('it did not fail');
}

async function release(client, task) {
  const message = await client.send(`release ${task}`);
  assert.equal(message.kind, 'message', 'the answer to a release');
}

async function asked(client) {
  const task = await client.send('ask');
  assert.deepEqual([task.kind, task.state, task.text], ['task', 'input-required', 'Which colour?'], 'the question');
  const answered = await client.send('blue', { task: task.id, context: task.context });
  assert.deepEqual([answered.state, answered.text], ['completed', 'blue it is'], 'the answer');
  assert.deepEqual([answered.id, answered.context], [task.id, task.context], 'the task of the answer');
  return answered;
}

const FEATURES = {
  async card(client) {
    assert.deepEqual(await client.card(), { name: 'Interop', skills: ['interop'] });
  },

  async 'extended card'(client) {
    assert.deepEqual(await client.extendedCard(), { name: 'Interop', skills: ['interop', 'extended'] });
  },

  async send(client) {
    const task = await client.send('say hello');
    assert.deepEqual([task.kind, task.state, task.text], ['task', 'completed', 'hello']);
  },

  async 'direct message'(client) {
    const message = await client.send('direct');
    assert.deepEqual([message.kind, message.text], ['message', 'a direct answer']);
  },

  async stream(client) {
    const events = await all(client.stream('stream'));
    const chunks = events.filter(({ kind }) => kind === 'artifact').map(({ text }) => text);
    assert.deepEqual(chunks, ['one ', 'two ', 'three'], 'the pieces');
    assert.equal(events.map(({ state }) => state).findLast((state) => state), 'completed', 'the last state');
    assert.equal(new Set(events.map(({ id }) => id)).size, 1, 'the number of tasks');
    const task = await client.get(events[0].id);
    assert.deepEqual([task.state, task.text], ['completed', 'one two three'], 'the task afterwards');
  },

  async 'multi-turn'(client) {
    await asked(client);
    let events = await all(client.stream('ask'));
    assert.equal(events.at(-1).state, 'input-required', 'the end of the stream');
    const { id, context } = events[0];
    events = await all(client.stream('red', { task: id, context }));
    assert.equal(events.at(-1).state, 'completed', 'the end of the second stream');
    assert.deepEqual([...new Set(events.map((event) => event.id))], [id], 'the task of the second stream');
  },

  async get(client) {
    const task = await asked(client);
    const whole = await client.get(task.id);
    assert.deepEqual([whole.id, whole.context, whole.state], [task.id, task.context, 'completed']);
    assert.ok(whole.history >= 2, `both messages are history, but there is ${whole.history}`);
    assert.equal((await client.get(task.id, 1)).history, 1, 'a history of one');
  },

  async list(client) {
    if (client.cannotList) throw new Absent(client.cannotList);
    const context = unique();
    const first = await client.send('say first', { context });
    const second = await client.send('say second', { context });
    await client.send('say elsewhere');
    const listed = await client.list(context);
    assert.deepEqual(listed.map(({ id }) => id), [second.id, first.id], 'the tasks, latest first');
  },

  async cancel(client) {
    const task = await client.send('hold', { wait: false });
    const canceled = await client.cancel(task.id);
    assert.deepEqual([canceled.id, canceled.state], [task.id, 'canceled'], 'the answer');
    assert.equal((await client.get(task.id)).state, 'canceled', 'the task afterwards');
  },

  async resubscribe(client) {
    const task = await client.send('hold', { wait: false });
    const events = [];
    for await (const event of client.follow(task.id)) {
      events.push(event);
      if (events.length === 1) await release(client, task.id);
    }
    assert.deepEqual([...new Set(events.map(({ id }) => id))], [task.id], 'the task');
    const artifacts = events.filter(({ kind }) => kind === 'artifact').map(({ text }) => text);
    assert.deepEqual(artifacts, ['released'], 'the artifacts');
    assert.equal(events.at(-1).state, 'completed', 'the end');
  },

  async 'push configs'(client) {
    const task = await client.send('hold', { wait: false });
    const kept = {};
    for (const id of ['a', 'b']) {
      const url = `http://127.0.0.1:9/${id}`;
      assert.deepEqual(await client.setPush(task.id, id, url, 'secret'), { id, url }, 'what was set');
      kept[id] = url;
    }
    assert.deepEqual(await client.getPush(task.id, 'b'), { id: 'b', url: kept.b }, 'what was got');
    assert.deepEqual(await client.listPush(task.id), kept, 'what is listed');
    await client.deletePush(task.id, 'b');
    assert.deepEqual(await client.listPush(task.id), { a: kept.a }, 'what is listed after one is deleted');
    assert.equal(await failure(client, client.getPush(task.id, 'b')), 'task-not-found', 'what is deleted');
    await client.cancel(task.id);
  },

  async webhook(client, receiver) {
    const task = await client.send('hold', { wait: false, webhook: { url: receiver.url, token: 'shared secret' } });
    await release(client, task.id);
    for (;;) {
      const { headers, body } = await receiver.next();
      assert.equal(headers['x-a2a-notification-token'], 'shared secret', 'the token');
      const event = client.notification(JSON.parse(body));
      assert.equal(event.id, task.id, 'the task');
      if (event.state === 'completed') return;
    }
  },

  async files(client) {
    const sent = [
      { bytes: Buffer.from('00ff6279746573', 'hex').toString('base64'), name: 'a.bin', type: 'application/octet-stream' },
      { url: 'https://files.example/b.pdf', name: 'b.pdf', type: 'application/pdf' },
    ];
    assert.deepEqual((await client.send('echo', { parts: sent })).parts, sent);
  },

  async data(client) {
    const sent = [{ data: { name: 'Zoë', list: [1, 2.5, null, true], nested: { empty: {} } } }];
    assert.deepEqual((await client.send('echo', { parts: sent })).parts, sent);
  },

  async errors(client) {
    const unknown = unique();
    assert.equal(await failure(client, client.get(unknown)), 'task-not-found', 'get of an unknown task');
    assert.equal(await failure(client, client.cancel(unknown)), 'task-not-found', 'cancel of an unknown task');
    const lost = client.send('on', { task: unknown });
    assert.equal(await failure(client, lost), 'task-not-found', 'a message to an unknown task');
    const task = await client.send('say done');
    assert.equal(await failure(client, client.cancel(task.id)), 'not-cancelable', 'cancel of a task that has ended');
    const broken = await client.send('fail');
    assert.deepEqual([broken.state, broken.text], ['failed', 'it broke'], 'a task that fails');
  },

  /** Not a feature: the first half of a test in which others go on. */
  async begin(client) {
    return (await client.send('hold', { wait: false })).id;
  },
};

/** Where notifications arrive. */
async function receiver() {
  const received = [];
  let arrived = () => {};
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    received.push({ headers: request.headers, body });
    response.writeHead(204).end();
    arrived();
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  return {
    url: `http://127.0.0.1:${server.address().port}/hook`,
    async next() {
      while (received.length === 0) await new Promise((resolve) => (arrived = resolve));
      return received.shift();
    },
  };
}

const report = (line) => console.log(JSON.stringify(line));

function within(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${PATIENCE} ms`)), PATIENCE);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function attempt(client, feature, receiver) {
  try {
    report({ feature, ok: true, detail: (await within(FEATURES[feature](client, receiver))) ?? '' });
  } catch (error) {
    const where = error.stack?.split('\n').find((line) => line.includes('.mjs:'))?.replace(/^.*\//, '(') ?? '';
    const words = error.code === 'ERR_ASSERTION'
      ? `${error.message.split('\n')[0]}: expected ${JSON.stringify(error.expected)}, got ${JSON.stringify(error.actual)}`
      : `${error.name}: ${error.message}`;
    report({ feature, ok: false, absent: error instanceof Absent, detail: `${words} ${where}` });
  }
}

/** Not a feature either: says what is seen of a task as it is seen. */
async function follow(client, task) {
  for await (const { kind, state, text } of client.follow(task)) report({ seen: kind, state, text });
}

export async function main(connect) {
  const [url, binding, version, ...features] = process.argv.slice(2);
  const client = await connect(url, binding, version);
  const webhooks = await receiver();
  for (const feature of features) {
    if (feature.startsWith('follow=')) await follow(client, feature.slice('follow='.length));
    else await attempt(client, feature, webhooks);
  }
  // Connections that are kept open would keep the process.
  process.exit();
}
