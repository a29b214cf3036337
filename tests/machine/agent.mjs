// An ACP agent of Node's, which does in its one turn what a hardened service forbids most easily.
import { createInterface } from "node:readline";
import { networkInterfaces } from "node:os";
import { writeFileSync } from "node:fs";

const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");

function tryAll() {
  const interfaces = Object.keys(networkInterfaces()).join(",");
  // A module that returns 42: compiled code must be executable.
  const wasm = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 127, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0, 0, 10, 6, 1, 4, 0, 65, 42, 11]);
  const compiled = new WebAssembly.Instance(new WebAssembly.Module(wasm)).exports.f();
  writeFileSync("written.txt", "yes");
  let outside = "written";
  try {
    writeFileSync("/home/alice/../../var/tmp/outside.txt", "no");
  } catch (error) {
    outside = error.code;
  }
  return `interfaces: ${interfaces}; compiled: ${compiled}; written: yes; outside: ${outside}`;
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (method === "initialize") {
    send({ id, result: { protocolVersion: 1, agentCapabilities: {}, authMethods: [] } });
  } else if (method === "session/new") {
    send({ id, result: { sessionId: "one" } });
  } else if (method === "session/prompt") {
    const content = { type: "text", text: tryAll() };
    send({ method: "session/update", params: { sessionId: params.sessionId, update: { sessionUpdate: "agent_message_chunk", content } } });
    send({ id, result: { stopReason: "end_turn" } });
  }
}
