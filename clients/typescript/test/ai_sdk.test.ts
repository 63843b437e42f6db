import assert from "node:assert/strict";
import { test } from "node:test";

import { convertToModelMessages, modelMessageSchema, stepCountIs, streamText, tool, type UIMessage } from "ai";
import { MockLanguageModelV3, simulateReadableStream } from "ai/test";
import { z } from "zod";

import { appendMessages, loadWindow, onFinish } from "../src/ai_sdk.js";
import { Turnlog } from "../src/client.js";

const log = new Turnlog(process.env["TURNLOG_URL"] ?? "http://127.0.0.1:8080", { token: process.env["TURNLOG_TOKEN"] ?? "secret" });
const USAGE = {
  inputTokens: { total: 3, noCache: 3, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 3, text: 3, reasoning: 0 },
};
type Stream = Awaited<ReturnType<MockLanguageModelV3["doStream"]>>;
type Chunk = Stream["stream"] extends ReadableStream<infer Part> ? Part : never;

function said(text: string, calls: [string, string, object][] = []): Chunk[] {
  return [
    { type: "stream-start", warnings: [] },
    { type: "reasoning-start", id: "r" },
    { type: "reasoning-delta", id: "r", delta: "think" },
    { type: "reasoning-end", id: "r", providerMetadata: { anthropic: { signature: "c2ln" } } },
    { type: "text-start", id: "t" },
    { type: "text-delta", id: "t", delta: text },
    { type: "text-end", id: "t" },
    ...calls.map(([toolCallId, toolName, input]): Chunk => ({ type: "tool-call", toolCallId, toolName, input: JSON.stringify(input) })),
    { type: "finish", finishReason: { unified: calls.length ? "tool-calls" : "stop", raw: undefined }, usage: USAGE },
  ];
}

function scripted(...answers: Chunk[][]) {
  let call = 0;
  return new MockLanguageModelV3({
    doStream: async () => ({ stream: simulateReadableStream({ chunks: answers[call++] ?? [] }) }),
  });
}

const tools = {
  look: tool({ inputSchema: z.object({ id: z.string() }), execute: async ({ id }) => ({ id, city: "Berlin" }) }),
  fail: tool({
    inputSchema: z.object({}),
    execute: async (): Promise<string> => {
      throw new Error("no route");
    },
  }),
};

test("a run of streamText is appended and comes back as the window of the next call", async () => {
  const session = log.session(`ai-${crypto.randomUUID()}`);
  await session.create({ system: "Be kind.", recall: "never" });
  const image = new Uint8Array(Buffer.from("iVBORw0KGgo=", "base64"));
  await appendMessages(session, [
    { role: "user", content: [{ type: "text", text: "Where is it?" }, { type: "image", image, mediaType: "image/png" }] },
  ]);
  const model = scripted(said("I look.", [["c1", "look", { id: "W-1" }], ["c2", "fail", {}]]), said("In Berlin."), said("You are welcome."));
  const options = { model, tools, stopWhen: stepCountIs(4) };
  await streamText({ ...options, ...(await loadWindow(session)), onFinish: onFinish(session, { key: "run-1" }) }).consumeStream();

  const { system, messages } = await loadWindow(session, { budget: 8000 });
  assert.equal(system, "Be kind.");
  assert.deepEqual(messages.map((message) => message.role), ["user", "assistant", "tool", "assistant"]);
  for (const message of messages) modelMessageSchema.parse(message);
  const parts = messages[1]?.content;
  assert.deepEqual(Array.isArray(parts) && parts[0], { type: "reasoning", text: "think", providerOptions: { anthropic: { signature: "c2ln" } } });

  await appendMessages(session, [{ role: "user", content: "Thanks" }]);
  await streamText({ ...options, ...(await loadWindow(session)), onFinish: onFinish(session, { key: "run-2" }) }).consumeStream();
  const prompt = JSON.stringify(model.doStreamCalls.at(-1)?.prompt);
  for (const text of ["Where is it?", "Berlin", "no route", "In Berlin.", "Thanks", "Be kind."]) assert.ok(prompt.includes(text), text);
  const anthropic = await session.context({ format: "anthropic" });
  assert.deepEqual(anthropic.open_calls, []);
  assert.ok(JSON.stringify(anthropic.messages).includes("You are welcome."));
});

test("messages of useChat are stored as they are, and the model gets those that the SDK makes of them", async () => {
  const session = log.session(`ui-${crypto.randomUUID()}`);
  await session.create({ recall: "never" });
  const ui: UIMessage[] = [
    { id: "u", role: "user", parts: [{ type: "text", text: "Where is it?" }] },
    {
      id: "a",
      role: "assistant",
      parts: [
        { type: "step-start" },
        { type: "text", text: "I look." },
        { type: "dynamic-tool", toolName: "look", toolCallId: "c", state: "output-available", input: { id: "W-1" }, output: "Berlin" },
        { type: "step-start" },
        { type: "text", text: "In Berlin." },
      ],
    },
  ];
  await appendMessages(session, ui);
  const stored: unknown[] = [];
  for await (const message of session.messages()) stored.push(message.body);
  assert.deepEqual(stored, ui);
  const { messages } = await loadWindow(session);
  for (const message of messages) modelMessageSchema.parse(message);
  const made = await convertToModelMessages(ui);
  const texts = (list: typeof made) => JSON.stringify(list.map(({ role, content }) => [role, typeof content === "string" ? [{ type: "text", text: content }] : content]));
  assert.equal(texts(messages), texts(made));
});

test("a window of many messages keeps its budget and stays valid for the SDK", async () => {
  const session = log.session(`long-${crypto.randomUUID()}`);
  await session.create();
  for (let turn = 0; turn < 12; turn += 1) {
    await appendMessages(session, [
      { role: "user", content: `Order ${turn}? ${"please ".repeat(50)}` },
      { role: "assistant", content: [{ type: "tool-call", toolCallId: `c${turn}`, toolName: "look", input: { id: `W-${turn}` } }] },
      { role: "tool", content: [{ type: "tool-result", toolCallId: `c${turn}`, toolName: "look", output: { type: "text", value: "x ".repeat(200) } }] },
      { role: "assistant", content: `It is in town ${turn}.` },
    ]);
  }
  const { messages } = await loadWindow(session, { budget: 2000 });
  for (const message of messages) modelMessageSchema.parse(message);
  assert.ok(messages.length < 48);
  assert.ok(JSON.stringify(messages.at(-1)).includes("town 11"));
});

test("a history with large files is appended in as many commits as its bytes take", async () => {
  const session = log.session(`files-${crypto.randomUUID()}`);
  await session.create();
  const messages = Array.from({ length: 25 }, (_, index) => {
    const data = new Uint8Array(1_100_000).fill(index);
    return { role: "user" as const, content: [{ type: "file" as const, data, mediaType: "application/pdf" }] };
  });
  const appended = await appendMessages(session, messages, { key: "history" });
  assert.deepEqual(appended.map(({ first, last }) => last - first + 1), [...Array(12).fill(2), 1]);
  assert.deepEqual(await appendMessages(session, messages.slice(0, 4), { key: "history" }), appended.slice(0, 2));
  // A quote takes four bytes in a function's event: two, each escaped again.
  const quoted = Array.from({ length: 5 }, () => ({ role: "user" as const, content: '"'.repeat(600_000) }));
  assert.deepEqual((await appendMessages(session, quoted)).map(({ first, last }) => last - first + 1), [1, 1, 1, 1, 1]);
});
