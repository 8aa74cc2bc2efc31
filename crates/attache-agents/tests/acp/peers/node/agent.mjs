// A small coding agent, written with the SDK of the protocol.

import { Readable, Writable } from "node:stream";
import { agent, methods, ndJsonStream } from "@agentclientprotocol/sdk";

const cancelled = new Map();

async function answer({ params, client }) {
  const { sessionId, prompt } = params;
  const text = prompt.map((block) => block.text ?? "").join("");
  const say = (said) =>
    client.notify(methods.client.session.update, {
      sessionId,
      update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text: said } },
    });
  if (text === "hang") {
    await say("hanging");
    await new Promise((resolve) => cancelled.set(sessionId, resolve));
    return { stopReason: "cancelled" };
  }
  if (text.startsWith("write ")) {
    const path = text.slice("write ".length);
    const toolCall = { toolCallId: "t1", title: `Write ${path}`, kind: "edit", status: "pending" };
    await client.notify(methods.client.session.update, {
      sessionId,
      update: { sessionUpdate: "tool_call", ...toolCall },
    });
    const { outcome } = await client.request(methods.client.session.requestPermission, {
      sessionId,
      toolCall,
      options: [
        { optionId: "allow", name: "Allow", kind: "allow_once" },
        { optionId: "reject", name: "Reject", kind: "reject_once" },
      ],
    });
    if (outcome.outcome !== "selected" || outcome.optionId !== "allow") {
      await say("not written");
      return { stopReason: "end_turn" };
    }
    await client.request(methods.client.fs.writeTextFile, { sessionId, path, content: "from the SDK" });
    const { content } = await client.request(methods.client.fs.readTextFile, { sessionId, path });
    await say(`written: ${content}`);
    return { stopReason: "end_turn" };
  }
  await say("you said: ");
  await say(text);
  return { stopReason: "end_turn" };
}

agent({ name: "sdk-agent" })
  .onRequest(methods.agent.initialize, () => ({
    protocolVersion: 1,
    agentCapabilities: { promptCapabilities: { image: true } },
    agentInfo: { name: "sdk-agent", version: "0.1.0" },
  }))
  .onRequest(methods.agent.session.new, () => ({ sessionId: crypto.randomUUID() }))
  .onRequest(methods.agent.session.prompt, answer)
  .onNotification(methods.agent.session.cancel, ({ params }) => cancelled.get(params.sessionId)?.())
  .connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
