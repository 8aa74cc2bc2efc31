// The class for remote agents of Google's Agent Development Kit for JavaScript, as the root agent of a runner.

import { InMemoryRunner, RemoteA2AAgent, StreamingMode } from '@google/adk';

import * as peer from './peer.mjs';

class Conversation {
  // Data becomes text for a model.
  showsData = false;

  constructor(runner, session) {
    this.runner = runner;
    this.session = session;
  }

  async *events(text, streamingMode) {
    const run = this.runner.runAsync({
      userId: 'user',
      sessionId: this.session.id,
      newMessage: { role: 'user', parts: [{ text }] },
      runConfig: { streamingMode },
    });
    for await (const event of run) {
      if (event.errorMessage) throw new Error(event.errorMessage);
      for (const part of event.content?.parts ?? []) {
        if (!part.thought) yield part;
      }
    }
  }

  async say(words) {
    const seen = { text: '', files: [] };
    for await (const part of this.events(words, StreamingMode.NONE)) {
      if (part.text) seen.text += part.text;
      else if (part.inlineData) {
        const { displayName, mimeType, data } = part.inlineData;
        seen.files.push([displayName, mimeType, Buffer.from(data, 'base64')]);
      }
    }
    return seen;
  }

  async stream(words) {
    const pieces = [];
    for await (const part of this.events(words, StreamingMode.SSE)) {
      if (part.text) pieces.push(part.text);
    }
    return pieces;
  }
}

await peer.client(async (url) => {
  const agent = new RemoteA2AAgent({ name: 'remote', agentCard: url });
  const runner = new InMemoryRunner({ agent, appName: 'interop' });
  const session = await runner.sessionService.createSession({ appName: 'interop', userId: 'user' });
  return new Conversation(runner, session);
});
