// The provider with which Vercel's AI SDK uses a remote agent as a model.

import { randomUUID } from 'node:crypto';

import { a2a } from 'a2a-ai-provider';
import { generateText, streamText } from 'ai';

import * as peer from './peer.mjs';

class Conversation {
  // Data is not shown, and a message names a conversation but no task.
  showsData = false;
  continues = false;

  constructor(url) {
    this.options = {
      model: a2a(`${url}/.well-known/agent-card.json`),
      providerOptions: { a2a: { contextId: randomUUID() } },
      maxRetries: 0,
    };
  }

  async say(prompt) {
    const { text, files } = await generateText({ ...this.options, prompt });
    return { text, files: files.map((file) => [file.filename, file.mediaType, file.uint8Array]) };
  }

  async stream(prompt) {
    let failed;
    const onError = ({ error }) => {
      failed = error;
    };
    const pieces = [];
    for await (const piece of streamText({ ...this.options, prompt, onError }).textStream) pieces.push(piece);
    if (failed) throw failed;
    return pieces;
  }
}

await peer.client(async (url) => new Conversation(url));
