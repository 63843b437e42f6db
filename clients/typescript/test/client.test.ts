import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { signer } from "../src/aws.js";
import { Turnlog, TurnlogError, type Appended } from "../src/client.js";

const log = new Turnlog(process.env["TURNLOG_URL"] ?? "http://127.0.0.1:8080", { token: process.env["TURNLOG_TOKEN"] ?? "secret" });

test("a session is created once, appended to and read in pages", async () => {
  const session = log.session(`team/${crypto.randomUUID()}`);
  const created = await session.create({ title: "Desk" });
  assert.equal((await session.create()).created_at, created.created_at);
  for (let start = 0; start < 30; start += 10) {
    const part = Array.from({ length: 10 }, (_, index) => ({ role: "user", content: `message ${start + index}` }));
    const answer: Appended = await session.append(part, { loop: "new" });
    assert.equal(answer.last - answer.first, 9);
  }
  const read: unknown[] = [];
  for await (const message of session.messages({ limit: 7 })) read.push(message.body["content"]);
  assert.deepEqual(read, Array.from({ length: 30 }, (_, index) => `message ${index}`));
  const window = await session.context({ format: "openai_chat", budget: 4000, policy: "run_loops" });
  assert.ok(window.tokens <= 4000 && window.messages.length > 0);
  const ids: string[] = [];
  for await (const listed of log.sessions({ limit: 1 })) ids.push(listed.session_id);
  assert.ok(ids.includes(session.id));
});

test("a repeated key appends once, and an error has the service's code", async () => {
  const session = log.session(`k-${crypto.randomUUID()}`);
  await assert.rejects(session.append([{ role: "user", content: "a" }]), (error: TurnlogError) => error.status === 404 && error.code === "not_found");
  await session.create();
  const key = { idempotencyKey: "turn-1" };
  const first = await session.append([{ role: "user", content: "a" }], {}, key);
  assert.deepEqual(await session.append([{ role: "user", content: "a" }], {}, key), first);
  await assert.rejects(session.append([{ role: "user", content: "b" }], {}, key), { code: "idempotency_mismatch", status: 422 });
});

test("a call is tried again with the same key", async () => {
  const keys: unknown[] = [];
  const server = createServer((request, response) => {
    keys.push(request.headers["idempotency-key"]);
    if (keys.length === 1) request.socket.destroy();
    else response.writeHead(keys.length === 2 ? 503 : 201, { "content-type": "application/json" }).end('{"head": 2}');
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/stage`;
  const session = new Turnlog(url, { pauseMs: 1 }).session("s");
  assert.equal((await session.append([{ role: "user", content: "a" }])).head, 2);
  assert.equal(keys.length, 3);
  assert.equal(new Set(keys).size, 1);
  await new Promise((resolve) => server.close(resolve));
  await assert.rejects(new Turnlog(url, { pauseMs: 1, maxTries: 2 }).session("s").info(), { code: "unreachable" });
});

test("requests are signed for IAM", async () => {
  const seen: Headers[] = [];
  const sign = signer({ region: "eu-central-1", credentials: { accessKeyId: "AKIDEXAMPLE", secretAccessKey: "secret" } });
  const send: typeof fetch = async (_url, options) => {
    seen.push(new Headers(options?.headers));
    return new Response('{"head": 1}', { status: 200 });
  };
  await new Turnlog("https://api.example.com/prod", { sign, fetch: send }).session("a/b").info();
  assert.match(seen[0]?.get("authorization") ?? "", /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\/\d{8}\/eu-central-1\/execute-api\/aws4_request/);
});
