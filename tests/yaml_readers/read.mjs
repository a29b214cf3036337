// Reads a YAML document with the npm package `yaml`, and compares it with its JSON:
// `read.mjs NODE_MODULES DOCUMENT.yaml DOCUMENT.json`.

import assert from "node:assert";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [packages, document, expected] = process.argv.slice(2);
const { parse } = createRequire(`${packages}/`)("yaml");
const meant = JSON.parse(readFileSync(expected, "utf8"));
// The last is how Relavium reads a workflow.
const relavium = { version: "1.2", schema: "core", resolveKnownTags: false, merge: false, stringKeys: true, maxAliasCount: 0 };
for (const options of [{ version: "1.1" }, { version: "1.2" }, relavium]) {
    assert.deepStrictEqual(parse(readFileSync(document, "utf8"), { strict: true, ...options }), meant, JSON.stringify(options));
}
