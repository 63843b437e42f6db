/** Signatures for an API with IAM, by the signer of AWS (`@smithy/signature-v4`, `@aws-crypto/sha256-js`). */
import { Sha256 } from "@aws-crypto/sha256-js";
import { SignatureV4, type SignatureV4Init } from "@smithy/signature-v4";

import type { Request } from "./client.js";

/** Return a function for `Options.sign`. `credentials` are keys, or a provider of them from `@aws-sdk/credential-providers`. */
export function signer(options: {
  region: string;
  credentials: SignatureV4Init["credentials"];
}): (request: Request) => Promise<Record<string, string>> {
  const signature = new SignatureV4({ ...options, service: "execute-api", sha256: Sha256 });
  return async ({ method, url, headers, body }) => {
    const signed = await signature.sign({
      method,
      protocol: url.protocol,
      hostname: url.hostname,
      path: url.pathname,
      query: Object.fromEntries(url.searchParams),
      headers: { ...headers, host: url.host },
      body,
    });
    const { host: _host, ...rest } = signed.headers as Record<string, string>;
    return rest;
  };
}
