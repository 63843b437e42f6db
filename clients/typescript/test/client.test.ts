import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { appendMessages, loadWindow } from "../src/ai_sdk.js";
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

test("a URL or a token that is refused is not said again", async () => {
  const isSilent = (error: Error) => error instanceof TypeError && !error.message.includes("s3cret");
  assert.throws(() => new Turnlog("http://ada:s3cret@127.0.0.1:1"), isSilent);
  await assert.rejects(new Turnlog("http://127.0.0.1:1", { token: "s3cret\nx" }).session("s").info(), isSilent);
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

test("sessions and messages are chosen by what the API knows", async () => {
  const session = log.session(`q-${crypto.randomUUID()}`);
  await session.create();
  await session.append([{ role: "user", content: "a" }]);
  const ids = async (query: Parameters<Turnlog["sessions"]>[0]) => {
    const listed: string[] = [];
    for await (const { session_id } of log.sessions(query)) listed.push(session_id);
    return listed;
  };
  assert.ok((await ids({ status: "active" })).includes(session.id));
  assert.ok(!(await ids({ status: "inactive" })).includes(session.id) && !(await ids({ status: "ended" })).includes(session.id));
  // @ts-expect-error: it is a status of run loops
  await assert.rejects(ids({ status: "closed" }), { status: 422 });
  const bodies: unknown[] = [];
  for await (const { body } of session.messages({ format: "anthropic", at: "2", in_view: true })) bodies.push(body["role"]);
  assert.deepEqual(bodies, ["user"]);
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

test("a call without an answer says why, and which key repeats it", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  await new Promise((resolve) => server.close(resolve));
  const session = new Turnlog(url, { maxTries: 1 }).session("s");
  await assert.rejects(session.info(), { code: "unreachable", problem: {}, message: /^can't reach http:\S+: connect ECONNREFUSED/ });
  const fails: typeof fetch = async () => { throw new TypeError("fetch failed", { cause: Object.assign(new AggregateError([]), { code: "ECONNREFUSED" }) }); };
  await assert.rejects(new Turnlog(url, { fetch: fails, maxTries: 1 }).session("s").info(), { message: `can't reach ${url}: ECONNREFUSED` });
  await assert.rejects(session.append([{ role: "user", content: "a" }], {}, { idempotencyKey: "turn-1" }), { problem: { idempotency_key: "turn-1" } });
  await assert.rejects(session.append([{ role: "user", content: "a" }]), (error: TurnlogError) => typeof error.problem["idempotency_key"] === "string");
});

test("a signal ends a call: before it, while it is answered, and between two tries", async () => {
  let tries = 0;
  const unanswered: typeof fetch = (_, options) => {
    tries += 1;
    return new Promise((_resolve, reject) => options?.signal?.addEventListener("abort", () => reject(options.signal?.reason)));
  };
  const busy: typeof fetch = async () => { tries += 1; return Response.json({ code: "busy" }, { status: 503 }); };
  const reason = new Error("the user has gone");
  for (const send of [unanswered, busy]) {
    const session = new Turnlog("http://127.0.0.1:8787", { fetch: send, pauseMs: 20_000 }).session("s");
    const calls = [
      (signal: AbortSignal) => session.append([{ role: "user", content: "a" }], {}, { signal }),
      (signal: AbortSignal) => session.context({}, { signal }),
      (signal: AbortSignal) => session.messages({}, { signal }).next(),
      (signal: AbortSignal) => loadWindow(session, {}, { signal }),
      (signal: AbortSignal) => appendMessages(session, [{ role: "user", content: "a" }], { signal, key: "k" }),
    ];
    for (const call of calls) {
      const ending = new AbortController();
      const ended = assert.rejects(call(ending.signal), reason);
      tries = 0;
      setTimeout(() => ending.abort(reason), 5);
      await ended;
      assert.ok(tries <= 1, "it was tried again");
    }
  }
  await assert.rejects(log.session("s").info({ signal: AbortSignal.abort(reason) }), reason);
});

test("an answer that is not Turnlog's is an error with a code, whatever its status", async () => {
  const bodies = ["<html>Sign in</html>", "", "null", '"hello"', "[1]"];
  for (const status of [200, 301, 303, 404, 500]) {
    for (const body of bodies) {
      const session = new Turnlog("http://127.0.0.1:8787", { fetch: async () => new Response(body, { status }) }).session("s");
      await assert.rejects(session.info(), { name: "TurnlogError", code: "not_turnlog", status });
    }
  }
});

test("a place of an answer that is no address is an error with a code", async () => {
  const send = async () => Response.json({ url: "//", status: 200 }, { status: 303 });
  const session = new Turnlog("http://127.0.0.1:8787", { fetch: send }).session("s");
  await assert.rejects(session.info(), { name: "TurnlogError", code: "not_turnlog", status: 303 });
});

test("a call whose answer breaks off is tried again", async () => {
  let tries = 0;
  const broken = () => new ReadableStream({ start: (stream) => stream.error(new TypeError("terminated")) });
  const send: typeof fetch = async () => ((tries += 1) === 1 ? new Response(broken()) : Response.json({ head: 3 }));
  assert.equal((await new Turnlog("http://127.0.0.1:8787", { fetch: send, pauseMs: 1 }).session("s").info()).head, 3);
});

test("a call waits as long as Retry-After says, in seconds or by a date, and is not tried again after more than 20 seconds", async (context) => {
  const pauses: number[] = [];
  const later = globalThis.setTimeout;
  context.mock.method(globalThis, "setTimeout", (work: () => void, wait: number) => { pauses.push(wait); return later(work, 0); });
  const after = async (header: string) => {
    pauses.length = 0;
    const send: typeof fetch = async () => Response.json({ code: "busy" }, { status: 503, headers: { "retry-after": header } });
    await assert.rejects(new Turnlog("http://127.0.0.1:8787", { fetch: send, maxTries: 3, pauseMs: 100 }).session("s").info(), (error: TurnlogError) => {
      assert.deepEqual([error.status, error.code], [503, "busy"]);
      pauses.push(error.retryAfterMs);
      return true;
    });
    return pauses;
  };
  assert.deepEqual(await after("7"), [7000, 7000, 7000]);
  assert.deepEqual(await after("3600"), [3_600_000]);
  const date = await after(new Date(Date.now() + 10_000).toUTCString());
  assert.ok(date.length === 3 && date.every((wait) => wait > 8000 && wait <= 10_000), String(date));
  for (const header of ["Wed, 21 Oct 2015 07:28:00 GMT", "soon", "-5"]) {
    const [first = 0, second = 0, said] = await after(header);
    assert.ok(first >= 50 && first <= 100 && second >= 100 && second <= 200 && said === 0, header);
  }
});

test("headers are sent as UTF-8, and one that HTTP can't have is a wrong argument at once", async () => {
  const user = new Turnlog(process.env["TURNLOG_URL"] ?? "http://127.0.0.1:8080", { token: process.env["TURNLOG_TOKEN"] ?? "secret", headers: { "X-Turnlog-User": "Зоя" } });
  const session = user.session(`u-${crypto.randomUUID()}`);
  assert.equal((await session.create()).user, "Зоя");
  const key = { idempotencyKey: "ключ" };
  const first = await session.append([{ role: "user", content: "a" }], {}, key);
  assert.deepEqual(await session.append([{ role: "user", content: "a" }], {}, key), first);
  let tries = 0;
  const send: typeof fetch = async () => Response.json({ head: (tries += 1) });
  await assert.rejects(new Turnlog("http://127.0.0.1:8787", { fetch: send, token: "a\nb" }).session("s").info(), TypeError);
  const sign = async () => { throw new Error("the credentials have expired"); };
  await assert.rejects(new Turnlog("http://127.0.0.1:8787", { fetch: send, sign }).session("s").info(), { message: "the credentials have expired" });
  assert.equal(tries, 0);
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

test("a large append goes up by the signed address first, and a large answer is fetched from its address", async () => {
  const seen: { url: string; method: string; body: string; headers: Headers }[] = [];
  const answers: Record<string, () => Response> = {
    "POST api.example.com 1": () => Response.json({ url: "https://bucket.example.com/up?signature=1" }),
    "PUT bucket.example.com 2": () => new Response(null, { status: 503 }),
    "PUT bucket.example.com 3": () => new Response(null, { status: 200 }),
    "POST api.example.com 4": () => Response.json({ url: "https://bucket.example.com/down?signature=2", status: 201 }, { status: 303 }),
    "GET bucket.example.com 5": () => Response.json({ head: 7 }),
  };
  const send: typeof fetch = async (input, options) => {
    const url = new URL(String(input));
    seen.push({ url: url.href, method: String(options?.method), body: String(options?.body ?? ""), headers: new Headers(options?.headers) });
    const answer = answers[`${options?.method} ${url.host} ${seen.length}`];
    return answer === undefined ? new Response("{}", { status: 500 }) : answer();
  };
  const session = new Turnlog("https://api.example.com/prod", { token: "secret", fetch: send, pauseMs: 1 }).session("s");
  const quoted = '"'.repeat(2_000_000); // 4 MB of JSON, and 6 MB in a function's event
  assert.equal((await session.append([{ role: "user", content: quoted }])).head, 7);
  const [ask, , put, reference] = seen;
  const { upload, size_bytes } = JSON.parse(ask?.body ?? "") as { upload: string; size_bytes: number };
  assert.equal(size_bytes, put?.body.length);
  assert.equal((JSON.parse(put?.body ?? "") as { messages: { content: string }[] }).messages[0]?.content, quoted);
  assert.deepEqual(JSON.parse(reference?.body ?? ""), { upload });
  assert.equal(ask?.headers.get("idempotency-key"), reference?.headers.get("idempotency-key"));
  for (const { headers } of seen.filter(({ url }) => url.includes("bucket"))) {
    assert.equal(headers.get("authorization"), null, "the token is the service's alone");
  }
  const refused: typeof fetch = async () => Response.json({ code: "too_large", detail: "too large" }, { status: 413 });
  const other = new Turnlog("https://api.example.com/prod", { fetch: refused }).session("s");
  await assert.rejects(other.append([{ role: "user", content: quoted }]), { code: "too_large", status: 413 });
});

test("a service without addresses takes a large append as it is", async () => {
  const bodies: string[] = [];
  const send: typeof fetch = async (_input, options) => {
    bodies.push(String(options?.body));
    return Response.json(bodies.length === 1 ? { url: null } : { head: 2 }, { status: bodies.length === 1 ? 200 : 201 });
  };
  const session = new Turnlog("http://127.0.0.1:8787", { fetch: send }).session("s");
  assert.equal((await session.append([{ role: "user", content: "order 7 ".repeat(600_000) }])).head, 2);
  assert.equal(bodies.length, 2);
  assert.ok((bodies[1] ?? "").length > 4_800_000);
});
