// An agent of Google's Agent Development Kit for JavaScript with a scripted model, served by `toA2a`.

import { BaseLlm, LlmAgent, toA2a } from '@google/adk';

import * as peer from './peer.mjs';

function said({ parts }) {
  const files = parts.filter((part) => part.inlineData).map(({ inlineData: { displayName, mimeType, data } }) => {
    return [displayName, mimeType, Buffer.from(data, 'base64').length];
  });
  return peer.described(parts.map((part) => part.text ?? '').filter(Boolean).join(' '), files);
}

class Scripted extends BaseLlm {
  async *generateContentAsync({ contents }, stream = false) {
    const text = peer.answer(contents.filter(({ role }) => role === 'user').map(said));
    if (stream) {
      for (const word of peer.words(text)) yield { content: { role: 'model', parts: [{ text: word }] }, partial: true };
    }
    yield { content: { role: 'model', parts: [{ text }] } };
  }

  async connect() {
    throw new Error('there is no live connection');
  }
}

const model = new Scripted({ model: 'scripted' });
const agent = new LlmAgent({ name: 'echo', description: 'Says what it was told', model });
const port = await peer.freePort();
const app = await toA2a(agent, { host: '127.0.0.1', port, allowUnauthenticated: true });
app.listen(port, '127.0.0.1', () => peer.listening(`http://127.0.0.1:${port}`));
