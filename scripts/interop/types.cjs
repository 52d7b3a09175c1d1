// TypeScript types that openapi-typescript generates from core-api's contract, against the calls of README.md and docs/: each body that they send must
// have the type of its route, and the answer must have what README reads of it, also as the data of openapi-fetch, whose type has all answers of a
// route.
//
// Environment: NODE_PATH, URL (of core-api) and WORK, a directory.

const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const { end, get } = require("./lib.cjs");

const root = path.join(__dirname, "../..");

// callsOf returns the bodies of JSON objects that the curl commands of a page send, with their paths.
function* callsOf(page) {
  const text = fs.readFileSync(path.join(root, page), "utf8");
  for (const [command] of text.matchAll(/\bcurl (?:[^\\\n']|\\\n|'[^']*')*/g)) {
    const [, route] = command.match(/http:\/\/127\.0\.0\.1:8003(\/[^\s'"?]*)/) ?? [];
    const [, body] = command.match(/ -d '(\{[^']*\})'/) ?? [];
    if (!route || !body || route === "/mcp") continue; // messages of MCP are not described in the contract
    yield { page, route, body, method: /-X PUT/.test(command) ? "put" : "post" };
  }
}

async function main() {
  const contract = await get("/openapi.json");
  const file = path.join(process.env.WORK, "contract.json");
  fs.writeFileSync(file, JSON.stringify(contract));
  const bin = (name) => path.join(process.env.NODE_PATH, name);
  execFileSync("node", [bin("openapi-typescript/bin/cli.js"), file, "-o", path.join(process.env.WORK, "contract.d.ts")], { stdio: "pipe" });

  fs.symlinkSync(process.env.NODE_PATH, path.join(process.env.WORK, "node_modules"));
  const lines = ['import createClient from "openapi-fetch";', 'import type { paths } from "./contract";'];
  const pages = ["README.md", ...fs.readdirSync(path.join(root, "docs")).filter((name) => name.endsWith(".md")).map((name) => `docs/${name}`)];
  const calls = pages.flatMap((page) => [...callsOf(page)]);
  if (!calls.some(({ page }) => page === "README.md") || calls.length < 10) throw new Error(`only ${calls.length} calls are found in the pages`);
  for (const { page, route, body, method } of calls) {
    const found = Object.keys(contract.paths).filter((one) => new RegExp(`^${one.replace(/\{[^}]*\}/g, "[^/]+")}$`).test(route));
    const template = found.find((one) => one === route) ?? found[0];
    if (!template) throw new Error(`${page} calls ${route}, which the contract does not have`);
    lines.push(`// ${page}`, `{ const body: NonNullable<paths[${JSON.stringify(template)}]["${method}"]["requestBody"]>["content"]["application/json"] = ${body}; void body; }`);
  }
  lines.push(
    'declare const answer: paths["/sandbox/execs"]["post"]["responses"]["200"]["content"]["application/json"];',
    "export const read: [string, string, number | null, string, [string, number, string][]] =",
    "  [answer.exec_id, answer.status, answer.exit_code, answer.stdout, answer.artifacts.map((one) => [one.path, one.size, one.sha256])];",
    'const client = createClient<paths, `application/${string}json`>({ baseUrl: "" }); // events are no JSON',
    "export async function fetched() {",
    '  const ran = await client.POST("/sandbox/execs", { body: { project_id: "demo", exec: { script: "echo hi" } } });',
    '  const invoked = await client.POST("/skills/{id}/invoke", { params: { path: { id: "a" } }, body: { project_id: "demo", inputs: {} } });',
    "  if (ran.error || invoked.error) throw new Error(ran.error?.detail ?? invoked.error?.detail);",
    "  const { data } = ran;",
    "  const read: [string, string, number | null, string | undefined, string[] | undefined] =",
    "    [data.exec_id, data.status, data.exit_code, data.stdout, data.artifacts?.map((one) => one.path)];",
    "  const output: string | undefined = invoked.data.exec?.stdout;",
    "  return [read, output, invoked.data.outputs];",
    "}",
    "export async function anyType() {",
    '  const { data } = await createClient<paths>({ baseUrl: "" }).POST("/sandbox/execs", { body: { project_id: "demo", exec: { script: "echo hi" } } });',
    "  return data?.stdout;",
    "}",
  );
  fs.writeFileSync(path.join(process.env.WORK, "calls.ts"), lines.join("\n") + "\n");
  try {
    const options = ["--strict", "--exactOptionalPropertyTypes", "--noEmit", "--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022"];
    execFileSync("node", [bin("typescript/bin/tsc"), ...options, "calls.ts"], { cwd: process.env.WORK, stdio: "pipe" });
  } catch (error) {
    throw new Error(`tsc: ${error.stdout}`);
  }
}

end(main());
