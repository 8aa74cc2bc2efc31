// The functions that the tests ask for, in JavaScript. Started as `worker.mjs ENGINE_URL NAME`; its ids begin with the name.

import { setTimeout as sleep } from 'node:timers/promises'
import { registerWorker, TriggerAction } from 'iii-sdk'

const [engine, name] = process.argv.slice(2)
const iii = registerWorker(engine, { workerName: name, otel: { enabled: false } })
const registered = new Map()

/** Registers a function that is a skill. */
function skill(id, handler, { metadata = {}, ...about } = {}) {
  const options = { ...about, metadata: { 'a2a.expose': true, ...metadata } }
  registered.set(id, iii.registerFunction(`${name}::${id}`, handler, options))
}

const call = (function_id, payload, action) => iii.trigger({ function_id, payload, action })

function route(id, path, method = 'GET') {
  const config = { api_path: path, http_method: method }
  iii.registerTrigger({ type: 'http', function_id: `${name}::${id}`, config })
}

const quote = async ({ sku, quantity }) => ({ price: 21 * quantity, sku })

skill('quote', quote, {
  description: 'Quote a price',
  metadata: { 'a2a.examples': [`${name}::quote {"sku": "A-1", "quantity": 2}`] },
  request_format: {
    type: 'object',
    properties: { sku: { type: 'string' }, quantity: { type: 'integer' } },
    required: ['sku', 'quantity'],
  },
})

skill('fail', async () => {
  throw new Error('the shop is closed')
})

async function slow() {
  console.log('slow began')
  await sleep(60_000)
  return { late: true }
}

skill('slow', slow)
skill('late', slow, { metadata: { 'a2a.timeoutMs': 300 } })

/** Calls another function, and waits for what it returns unless it is told not to. */
skill('relay', async ({ function_id, payload, void: forget }) => ({
  returned: (await call(function_id, payload, forget ? TriggerAction.Void() : undefined)) ?? null,
}))

skill('remember', async ({ key, value }) => call('state::set', { scope: name, key, value }))

/** Writes to its channel piece by piece. */
async function tell({ words, response }) {
  for (const word of words) await new Promise((done) => response.stream.write(word, done))
  await new Promise((done) => response.stream.end(done))
  return null
}

skill('tell', tell, { metadata: { 'a2a.stream': true } })

/** Writes to its channel in text frames, and has something to return as well. */
async function tellText({ words, response }) {
  for (const word of words) response.sendMessage(word)
  response.close()
  return { words: words.length }
}

skill('tell_text', tellText, { metadata: { 'a2a.stream': true } })

iii.registerFunction(`${name}::item`, async ({ path_params, query_params, method, body }) => ({
  status_code: 201,
  headers: { 'x-shop': name },
  body: { id: path_params.id, q: query_params.q ?? null, body, method },
}))
route('item', `${name}/items/:id`)
route('item', `${name}/items/:id`, 'POST')

/** Streams its response. */
iii.registerFunction(`${name}::feed`, async ({ path_params, response }) => {
  response.sendMessage(JSON.stringify({ type: 'set_status', status_code: 202 }))
  const headers = { 'content-type': 'text/event-stream' }
  response.sendMessage(JSON.stringify({ type: 'set_headers', headers }))
  for (let number = 0; number < path_params.count; number++) response.stream.write(`data: ${number}\n\n`)
  response.stream.end()
})
route('feed', `/${name}/feed/:count`)

/** Reads a body that is not JSON. */
iii.registerFunction(`${name}::upload`, async ({ request_body }) => {
  const chunks = []
  for await (const chunk of request_body.stream) chunks.push(chunk)
  const body = Buffer.concat(chunks)
  return { body: { length: body.length, begins: body.toString('utf8', 0, 5) } }
})
route('upload', `${name}/upload`, 'POST')

/** Registers and unregisters a function while the worker runs. */
skill('change', async ({ name: id, wanted }) => {
  if (wanted) return void skill(id, quote)
  registered.get(id).unregister()
})

iii.registerFunction(`${name}::changed`, async ({ event, functions }) => {
  const seen = functions.map(({ function_id }) => function_id)
  await call('state::set', { scope: name, key: 'seen', value: { event, functions: seen } })
})
iii.registerTrigger({ type: 'engine::functions-available', function_id: `${name}::changed`, config: {} })

// A type of triggers: whoever has one is called when the bell is rung.
const bells = new Map()
iii.registerTriggerType(
  { id: `${name}-bell`, description: 'A bell' },
  {
    registerTrigger: async (bell) => {
      if (bell.config.broken) throw new Error('a broken bell cannot be rung')
      bells.set(bell.id, bell)
    },
    unregisterTrigger: async ({ id }) => void bells.delete(id),
  },
)
skill('ring', () =>
  Promise.all([...bells.values()].map(({ function_id, config }) => call(function_id, { rung: config.at }))),
)
iii.registerFunction(`${name}::rung`, async ({ rung }) => ({ heard: rung, by: name }))
iii.registerTrigger({ type: `${name}-bell`, function_id: `${name}::rung`, config: { at: 'the door' } })
