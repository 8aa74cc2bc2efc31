// The agent of the servers here: the one that our own server has in these tests, in the SDK's words.

import * as grpc from '@grpc/grpc-js';
import express from 'express';

/** Does what the first word of a message says. What differs between versions of the SDK is made by `words`. */
export class Agent {
  released = new Map();

  constructor(words) {
    this.words = words;
  }

  async execute(context, bus) {
    const { words } = this;
    const [word, ...rest] = words.said(context.userMessage).split(' ');
    if (word === 'direct') {
      bus.publish(words.message(context, 'a direct answer'));
    } else if (word === 'release') {
      this.held(rest.join(' ')).release();
      bus.publish(words.message(context, 'released'));
    } else if (context.task) {
      bus.publish(words.again(context));
      bus.publish(words.artifact(context, [words.text(`${word} it is`)]));
      bus.publish(words.status(context, 'completed'));
    } else {
      bus.publish(words.task(context));
      await this.obey(word, rest.join(' '), context, bus);
    }
    bus.finished();
  }

  async obey(word, rest, context, bus) {
    const { words } = this;
    if (word === 'ask') return bus.publish(words.status(context, 'input-required', 'Which colour?'));
    if (word === 'fail') return bus.publish(words.status(context, 'failed', 'it broke'));
    bus.publish(words.status(context, 'working'));
    if (word === 'say') {
      bus.publish(words.artifact(context, [words.text(rest)]));
    } else if (word === 'stream') {
      bus.publish(words.artifact(context, [words.text('one ')]));
      bus.publish(words.artifact(context, [words.text('two ')], { append: true }));
      bus.publish(words.artifact(context, [words.text('three')], { append: true, lastChunk: true }));
    } else if (word === 'hold') {
      if ((await this.held(context.taskId).over) === 'canceled') return bus.publish(words.status(context, 'canceled'));
      bus.publish(words.artifact(context, [words.text('released')]));
    } else if (word === 'echo') {
      bus.publish(words.artifact(context, context.userMessage.parts.slice(1)));
    }
    bus.publish(words.status(context, 'completed'));
  }

  /** What a task that is held waits for. */
  held(task) {
    if (!this.released.has(task)) {
      const held = {};
      held.over = new Promise((over) => {
        held.release = () => over('released');
        held.cancel = () => over('canceled');
      });
      this.released.set(task, held);
    }
    return this.released.get(task);
  }

  async cancelTask(task) {
    this.held(task).cancel();
  }
}

/** The extended card is for those who are known. */
export const userBuilder = async () => ({ isAuthenticated: true, userName: 'interop' });

/** Serves what `make` makes of where it is: it mounts an application for HTTP and adds services of gRPC's. */
export async function serve(make) {
  const binding = process.argv[2];
  const server = new grpc.Server();
  const port = await new Promise((bound, failed) => {
    const credentials = grpc.ServerCredentials.createInsecure();
    server.bindAsync('127.0.0.1:0', credentials, (error, port) => (error ? failed(error) : bound(port)));
  });
  const app = express();
  const http = await new Promise((listening) => {
    const http = app.listen(0, '127.0.0.1', () => listening(http));
  });
  const url = `http://127.0.0.1:${http.address().port}`;
  const address = { JSONRPC: `${url}/rpc`, 'HTTP+JSON': `${url}/rest`, GRPC: `127.0.0.1:${port}` }[binding];
  make(address, binding, app, server);
  console.log(`Listening on ${url}`);
}
