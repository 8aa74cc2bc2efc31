// A language model as an A2A agent: an iii worker that passes messages to a chat completion endpoint and streams the reply.
// Works with every endpoint that has the API of OpenAI. Set OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL.

import { registerWorker } from 'iii-sdk'

const engine = process.env.III_URL ?? 'ws://127.0.0.1:49134'
const baseUrl = (process.env.OPENAI_BASE_URL ?? 'https://api.openai.com/v1').replace(/\/+$/, '')
const model = process.env.OPENAI_MODEL ?? 'gpt-4o-mini'
const roles = { user: 'user', agent: 'assistant' }

const iii = registerWorker(engine, { workerName: 'llm', otel: { enabled: false } })

const textOf = ({ parts }) => parts.map((part) => part.text).filter(Boolean).join('\n')

// The pieces of the model's reply.
async function* completion(messages) {
  const response = await fetch(`${baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${process.env.OPENAI_API_KEY ?? ''}` },
    body: JSON.stringify({ model, messages, stream: true }),
  })
  if (!response.ok) throw new Error(`the model endpoint responded with ${response.status}`)
  let rest = ''
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + chunk).split('\n')
    rest = lines.pop()
    for (const line of lines) {
      if (!line.startsWith('data:') || line.includes('[DONE]')) continue
      for (const { delta } of JSON.parse(line.slice(5)).choices) if (delta.content) yield delta.content
    }
  }
}

// `history` has the earlier messages of the conversation, `input` the text of this one.
async function reply({ input, history = [], response }) {
  const messages = [
    { role: 'system', content: 'You are a helpful agent. Be brief.' },
    ...history.map((message) => ({ role: roles[message.role], content: textOf(message) })),
    { role: 'user', content: input },
  ]
  for await (const piece of completion(messages)) response.stream.write(piece)
  response.stream.end()
  return null
}

iii.registerFunction('llm::reply', reply, {
  description: 'Talk with a language model',
  metadata: { 'a2a.expose': true, 'a2a.stream': true, 'a2a.timeoutMs': 120_000 },
})

console.log(`llm::reply is registered with ${engine}; Ctrl-C ends this`)
