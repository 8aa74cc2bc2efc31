// The chat completion endpoint of aimock, with what it replies to the messages of the tests.

import { LLMock } from "@copilotkit/aimock";

const endpoint = new LLMock({ host: "127.0.0.1", port: 0, chunkSize: 8, logLevel: "silent" });

endpoint.onMessage("hello", { content: "Good morning to you." });
endpoint.on({ userMessage: "and now", turnIndex: 1 }, { content: "Still morning." });

const add = { name: "add", arguments: '{"a": 2, "b": 3}' };
endpoint.on({ userMessage: "sum", hasToolResult: false }, { toolCalls: [add] });
endpoint.on({ userMessage: "sum", hasToolResult: true, toolResultContains: '"sum":5' }, { content: "It is 5." });

const overloaded = { error: { message: "slow down", type: "rate_limit_error" }, status: 429, retryAfter: 0 };
endpoint.on({ userMessage: "busy", sequenceIndex: 0 }, overloaded);
endpoint.on({ userMessage: "busy", sequenceIndex: 1 }, { content: "Now." });

endpoint.onMessage("refused", { error: { message: "a secret", type: "invalid_request_error" }, status: 400 });
endpoint.onMessage("cut", { content: "This reply does not end." }, { truncateAfterChunks: 3, latency: 50 });
endpoint.onMessage("slow", { content: "A reply that takes its time." }, { latency: 10000 });

await endpoint.start();
console.log(`Listening on ${endpoint.url}`);
