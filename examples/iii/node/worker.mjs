// An iii worker whose functions are A2A skills: a quote, and a story that is streamed word by word.
// Works with iii-sdk 0.22.1 as well as 0.11.6.

import { setTimeout as sleep } from 'node:timers/promises'
import { registerWorker } from 'iii-sdk'

const engine = process.env.III_URL ?? 'ws://127.0.0.1:49134'
const iii = registerWorker(engine, { workerName: 'node-example', otel: { enabled: false } })

const prices = { 'A-1': 21, 'B-2': 8 }

async function quote({ sku, quantity = 1 }) {
  // The message of the error is the message of the failed task.
  if (!(sku in prices)) throw new Error(`there is no ${sku}; try one of ${Object.keys(prices).join(', ')}`)
  return { sku, price: prices[sku] * quantity }
}

// `a2a.expose` makes a function a skill. Its description, examples and schema are in the card. A payload that does not match
// the schema is rejected before the call.
iii.registerFunction('node::quote', quote, {
  description: 'Quote a price',
  request_format: {
    type: 'object',
    properties: { sku: { type: 'string' }, quantity: { type: 'integer', minimum: 1 } },
    required: ['sku'],
  },
  metadata: { 'a2a.expose': true, 'a2a.examples': ['node::quote {"sku": "A-1", "quantity": 2}'] },
})

// `response` is a channel. Each chunk written to it is sent at once as a chunk of an artifact.
async function story({ about = 'a snail', response }) {
  for (const word of `Once upon a time there was ${about} .`.split(' ')) {
    response.stream.write(`${word} `)
    await sleep(200)
  }
  response.stream.end()
  return null
}

iii.registerFunction('node::story', story, {
  description: 'Tell a story, word by word',
  metadata: { 'a2a.expose': true, 'a2a.stream': true, 'a2a.examples': ['node::story {"about": "a crab"}'] },
})

// The same over plain HTTP: GET /node/quotes/A-1. Not a skill, because its metadata has no `a2a.expose`.
iii.registerFunction('node::quote_over_http', async ({ path_params }) => {
  try {
    return { body: await quote(path_params) }
  } catch (error) {
    return { status_code: 404, body: { error: error.message } }
  }
})
iii.registerTrigger({
  type: 'http',
  function_id: 'node::quote_over_http',
  config: { api_path: 'node/quotes/:sku', http_method: 'GET' },
})

console.log(`node::quote and node::story are registered with ${engine}; Ctrl-C ends this`)
