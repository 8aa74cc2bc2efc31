// What the client of a framework for JavaScript is asked to do with our servers, as `peer.py` asks those for Python, and
// how the server of one says where it is.

import net from 'node:net';

const PATIENCE = 30_000;
const STORY = 'Once upon a time there was an envoy who carried every word exactly once and in order';

export class Absent extends Error {}

function expect(actual, expected, what) {
  const [seen, wanted] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (seen !== wanted) throw new Error(`${what}: expected ${wanted}, got ${seen}`);
}

function expectIn(part, whole, what) {
  if (!whole.includes(part)) throw new Error(`${what}: expected ${JSON.stringify(part)} in ${JSON.stringify(whole)}`);
}

function method(conversation, name) {
  if (!conversation[name]) throw new Absent(`the client has no ${name}`);
  return conversation[name].bind(conversation);
}

const FEATURES = {
  async card(connect, servers) {
    const seen = await method(await connect(servers.story), 'card')();
    expect(seen, ['Storyteller', ['story']], 'name and skills');
  },
  async send(connect, servers) {
    const reply = await (await connect(servers.demo)).say('demo::count {"to": 3}');
    expect(reply.text.split(/\s+/).filter(Boolean), ['1', '2', '3'], 'the answer');
  },
  async 'direct message'(connect, servers) {
    const reply = await (await connect(servers.assistant)).say('hello');
    expect(reply.text, 'I know `weather CITY` and `report`. You said: hello', 'the answer');
  },
  async stream(connect, servers) {
    const pieces = await method(await connect(servers.story), 'stream')('tell me a story');
    expectIn(STORY, pieces.join(''), 'the story');
    if (pieces.length < STORY.split(' ').length) {
      throw new Error(`the story came in ${pieces.length} pieces: ${JSON.stringify(pieces)}`);
    }
  },
  async 'multi-turn'(connect, servers) {
    const conversation = await connect(servers.tables);
    if (conversation.continues === false) throw new Absent('the client cannot continue a conversation');
    for (const [text, answer] of [
      ['a table please', 'For how many people?'],
      ['4', 'At what time?'],
      ['eight', 'A table for 4 at eight.'],
    ]) {
      expectIn(answer, (await conversation.say(text)).text, `the answer to \`${text}\``);
    }
  },
  async files(connect, servers) {
    const conversation = await connect(servers.assistant);
    if (conversation.showsFiles === false) throw new Absent('the client shows no files');
    const { files } = await conversation.say('report');
    const seen = files.map(([name, type, bytes]) => [name, type, Buffer.from(bytes).toString()]);
    expect(seen, [['visitors.csv', 'text/csv', 'day,visitors\nmon,3\ntue,5\n']], 'the files');
  },
  async data(connect, servers) {
    const conversation = await connect(servers.assistant);
    if (conversation.showsData === false) throw new Absent('the client shows no data');
    const { data } = await conversation.say('weather Oslo');
    expect(data, [{ city: 'Oslo', sky: 'clear', wind: 'calm' }], 'the data');
  },
};

function report(line) {
  process.stdout.write(`\n${JSON.stringify(line)}\n`);
}

// The interfaces that the client has used, such as `JSONRPC 1.0`.
const used = new Set();

function watchFetch() {
  const original = globalThis.fetch;
  globalThis.fetch = (input, options = {}) => {
    const { pathname } = new URL(typeof input === 'string' || input instanceof URL ? input : input.url);
    let called;
    try {
      called = JSON.parse(options.body);
    } catch {
      // A request without JSON is not a call.
    }
    if (called?.method) used.add(called.method.includes('/') ? 'JSONRPC 0.3' : 'JSONRPC 1.0');
    else if (/:(send|stream)$/.test(pathname)) used.add(pathname.includes('/0.3/') ? 'HTTP+JSON 0.3' : 'HTTP+JSON 1.0');
    return original(input, options);
  };
}

async function attempt(feature, connect, servers) {
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`no answer after ${PATIENCE / 1000} s`)), PATIENCE).unref();
  });
  try {
    await Promise.race([FEATURES[feature](connect, servers), late]);
    report({ feature, ok: true });
  } catch (error) {
    if (process.env.ATTACHE_TRACE) console.error(error);
    report({ feature, ok: false, absent: error instanceof Absent, detail: `${error.name}: ${error.message}` });
  }
}

export async function client(connect) {
  const [servers, ...features] = process.argv.slice(2);
  watchFetch();
  for (const feature of features) await attempt(feature, connect, JSON.parse(servers));
  report({ interfaces: [...used] });
  process.exit(0);
}

export function freePort() {
  return new Promise((resolve) => {
    const listener = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = listener.address();
      listener.close(() => resolve(port));
    });
  });
}

export function listening(url) {
  report({ listening: url });
}

// What a user's message contains.
export function described(text, files = [], data = []) {
  return [
    text,
    ...files.map((file) => `[file ${file.join(' ')}]`),
    ...data.map((value) => `[data ${JSON.stringify(value)}]`),
  ].join(' ');
}

// What the agent of a server says to the messages of the user that it can see.
export function answer(userMessages) {
  return `turn ${userMessages.length}: You said: ${userMessages.at(-1)}`;
}

// The pieces in which the agent streams an answer.
export function words(text) {
  return text.split(/(?<= )/);
}
