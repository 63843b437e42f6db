/**
 * Sessions for Vercel's AI SDK: load the window before a call, append what it said behind it.
 *
 *     await appendMessages(session, [{ role: "user", content: "Where is my order?" }]);
 *     const result = streamText({ model, tools, ...(await loadWindow(session, { budget: 8000 })), onFinish: onFinish(session) });
 */
import type { ModelMessage, UIMessage } from "ai";

import type { Appended, CallOptions, Schemas, SessionClient } from "./client.js";

const FORMAT = "ai_sdk";
const MOST = 25;

/** Return `system` and `messages` for `generateText` or `streamText`: the session's window, within its budget. */
export async function loadWindow(
  session: SessionClient,
  request: Omit<Schemas["BuildContext"], "format"> = {},
  options: CallOptions = {},
): Promise<{ system?: string; messages: ModelMessage[] }> {
  const window = await session.context({ ...request, format: FORMAT }, options);
  const messages = window.messages as unknown as ModelMessage[];
  return typeof window.system === "string" ? { system: window.system, messages } : { messages };
}

/** Append model messages, or messages of the user interface (`useChat`), in commits of 25. A repeated `key` appends them once. */
export async function appendMessages(
  session: SessionClient,
  messages: readonly (ModelMessage | UIMessage)[],
  options: { key?: string; signal?: AbortSignal } = {},
): Promise<Appended[]> {
  const { key, ...ending } = options;
  const appended: Appended[] = [];
  for (let start = 0; start < messages.length; start += MOST) {
    const part = messages.slice(start, start + MOST).map((message) => plain(message) as object);
    const repeated = key === undefined ? {} : { idempotencyKey: `${key}-${start}` };
    appended.push(await session.append(part, { format: FORMAT }, { ...ending, ...repeated }));
  }
  return appended;
}

/** Return a callback for `onFinish` of `streamText` that appends what the model and its tools said in all steps. */
export function onFinish(session: SessionClient, options: { key?: string } = {}) {
  return async (event: { readonly response: { readonly messages: readonly ModelMessage[] } }): Promise<void> => {
    await appendMessages(session, event.response.messages, options);
  };
}

/** Return a value as JSON has it: bytes in base64, addresses as texts. */
function plain(value: unknown): unknown {
  if (value instanceof ArrayBuffer) return plain(new Uint8Array(value));
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  if (value instanceof URL) return value.href;
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null || value instanceof Date) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, plain(item)]));
}
