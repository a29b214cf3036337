// Sends what the CLI asks of Google to the stand-in, where nothing tells it of another address: with a key alone, and for logins.
import http from "node:http";
import https from "node:https";
import { syncBuiltinESMExports } from "node:module";

const { fetch } = globalThis;
const standIn = (address) => {
  const { pathname, search } = new URL(address);
  return new URL(pathname + search, process.env.ACPD_TEST_STAND_IN);
};

globalThis.fetch = (input, init) =>
  input instanceof Request ? fetch(new Request(standIn(input.url), input), init) : fetch(standIn(input), init);

https.request = (address, options, callback) =>
  http.request(standIn(address), { ...options, agent: undefined }, callback);
syncBuiltinESMExports();
