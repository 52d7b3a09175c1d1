// The official TypeScript SDK against a core-api, over HTTP and as a desktop host starts secbox: what hosts of models need. It throws at what is wrong.
//
// Environment: NODE_PATH, URL (of core-api) and SECBOX (the program).

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");

const { end, URL: server } = require("./lib.cjs");

const { SECBOX } = process.env;
const workspace = `interop~ann${process.pid}`; // files from an earlier run would have to be read first

async function connect(transport) {
  const client = new Client({ name: "secbox-interop", version: "1.0.0" });
  await client.connect(transport);
  return client;
}

const overHTTP = (query) => connect(new StreamableHTTPClientTransport(new URL(`${server}/mcp?${query}`)));

// desktop is the configuration of docs/mcp.md, with this program and this server.
function desktop() {
  const page = fs.readFileSync(path.join(__dirname, "../../docs/mcp.md"), "utf8");
  const block = page.match(/```json\n(\{\n {2}"mcpServers": [^]*?)\n```/);
  const { command, args, env } = JSON.parse(block[1]).mcpServers.secbox;
  assert.equal(path.basename(command), "secbox");
  const at = args.indexOf("--server");
  assert.match(args[at + 1], /^http:\/\/127\.0\.0\.1:\d+$/);
  return { command: SECBOX, args: args.with(at + 1, server), env };
}

const text = (result) => result.content.map((one) => one.text ?? "").join("\n");

async function call(client, name, args) {
  const result = await client.callTool({ name, arguments: args });
  assert.ok(!result.isError, `${name}: ${text(result)}`);
  return result;
}

// singleTypes checks that no schema in a document has a list of types.
function singleTypes(schema, where) {
  if (!schema || typeof schema !== "object") return;
  assert.ok(!Array.isArray(schema.type), `${where} has a list of types`);
  for (const [name, value] of Object.entries(schema)) singleTypes(value, `${where}/${name}`);
}

async function list(client, pattern) {
  const { tools } = await client.listTools(); // the client compiles the output schemas
  assert.ok(tools.length > 0);
  for (const tool of tools) {
    assert.match(tool.name, pattern);
    assert.match(tool.inputSchema.description, /may be null/, `${tool.name} does not state the rule`);
    singleTypes(tool.inputSchema, tool.name);
    singleTypes(tool.outputSchema, `${tool.name}, output`);
  }
  return tools.map((tool) => tool.name);
}

const plain = /^[a-zA-Z0-9_-]{1,64}$/;

async function skills(client) {
  assert.ok((await list(client, plain)).includes("skill_shell_run"));
  for (const name of ["skill_shell_run", "skill.shell.run"]) {
    const result = await call(client, name, {
      script: "echo hi; : > /workspace/artifacts/empty.txt", timeout_ms: "30000", project_id: null, description: "say hi",
    });
    assert.equal(result.structuredContent.stdout, "hi\n");
    const link = result.content.find((one) => one.type === "resource_link" && one.name.endsWith("empty.txt"));
    const { contents } = await client.readResource({ uri: link.uri });
    assert.equal(contents[0].text ?? contents[0].blob, "");
  }
  const refused = await client.callTool({ name: "skill_shell_run", arguments: { script: "true", timeout_ms: "soon", more: 1 } });
  assert.ok(refused.isError && /timeout_ms/.test(text(refused)), text(refused));
}

async function files(client) {
  const names = await list(client, plain);
  for (const name of ["files_read", "files_edit", "files_upload", "shell", "skill_shell_run"]) assert.ok(names.includes(name), name);
  await call(client, "files_write", { path: "notes.txt", content: "one\ntwo\nthree\n", description: "notes" });
  const read = await call(client, "files_read", { path: "notes.txt", offset: 2.0, limit: "1", description: null });
  assert.ok(text(read).includes("two") && !text(read).includes("three"), text(read));
  await call(client, "files.edit", { path: "notes.txt", edits: '[{"old": "two", "new": "2", "all": "false"}]' });
  await call(client, "shell", { command: "cat notes.txt", timeout_ms: 5e3 });
}

const headers = { "Content-Type": "application/json", Accept: "application/json, text/event-stream" };
const initialize = (version) => ({
  jsonrpc: "2.0", id: 1, method: "initialize",
  params: { protocolVersion: version, capabilities: {}, clientInfo: { name: "interop", version: "1" } },
});

async function post(message, more) {
  return fetch(`${server}/mcp`, { method: "POST", headers: { ...headers, ...more }, body: JSON.stringify(message) });
}

// versions checks that an error about the protocol's version names only versions that are taken.
async function versions() {
  const refused = await post(initialize("2025-06-18"), { "Mcp-Protocol-Version": "1999-01-01" });
  const answer = await refused.text();
  assert.equal(refused.status, 400, answer);
  for (const version of new Set(answer.match(/\d{4}-\d{2}-\d{2}/g))) {
    if (version === "1999-01-01") continue;
    const opened = await post(initialize(version), { "Mcp-Protocol-Version": version });
    assert.equal(opened.status, 200, `${version} is named, and is refused: ${answer}`);
    assert.ok((await opened.text()).includes(version), version);
  }
}

// resumes breaks the stream of a call at its first event, and asks for the rest.
async function resumes() {
  const opened = await post(initialize("2025-11-25"));
  const session = { "Mcp-Session-Id": opened.headers.get("mcp-session-id"), "Mcp-Protocol-Version": "2025-11-25" };
  await opened.text();
  await post({ jsonrpc: "2.0", method: "notifications/initialized" }, session);
  const stop = new AbortController();
  const stream = await fetch(`${server}/mcp`, {
    method: "POST", headers: { ...headers, ...session }, signal: stop.signal,
    body: JSON.stringify({ jsonrpc: "2.0", id: 2, method: "tools/call", params: { name: "skill_shell_run", arguments: { script: "sleep 2; echo late" } } }),
  });
  let seen = "";
  for await (const part of stream.body.pipeThrough(new TextDecoderStream())) {
    if ((seen += part).includes("\n\n")) break;
  }
  stop.abort();
  const id = seen.match(/^id: *(\S+)/m)?.[1];
  assert.ok(id, `no event id in ${seen}`);
  for (let tries = 0; ; tries++) { // 409 until core-api has noticed the break
    const rest = await fetch(`${server}/mcp`, { headers: { ...headers, ...session, "Last-Event-ID": id } });
    if (rest.status === 409 && tries < 100) {
      await rest.text();
      await new Promise((next) => setTimeout(next, 100));
      continue;
    }
    assert.equal(rest.status, 200);
    let more = "";
    for await (const part of rest.body.pipeThrough(new TextDecoderStream())) {
      if ((more += part).includes('"id":2')) break;
    }
    assert.ok(more.includes("late"), more);
    return;
  }
}

// endOfInput gives secbox all messages at once, as a script does, and then the end of its input.
async function endOfInput({ command, args }) {
  const program = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  const shell = (id) => ({ jsonrpc: "2.0", id, method: "tools/call", params: { name: "skill_shell_run", arguments: { script: `sleep 1; echo answer ${id}` } } });
  program.stdin.end([initialize("2025-06-18"), { jsonrpc: "2.0", method: "notifications/initialized" }, shell(2), shell(3)].map((one) => JSON.stringify(one) + "\n").join(""));
  let out = "";
  for await (const part of program.stdout.setEncoding("utf8")) out += part;
  const ids = out.trim().split("\n").map((line) => JSON.parse(line).id).filter(Boolean);
  assert.deepEqual(ids.sort(), [1, 2, 3], out);
}

async function main() {
  const host = desktop();
  const clients = [await overHTTP(""), await connect(new StdioClientTransport(host)), await overHTTP(`project_id=${workspace}`), await overHTTP("names=dotted")];
  await skills(clients[0]);
  await skills(clients[1]);
  await files(clients[2]);
  assert.ok((await list(clients[3], /^[a-z0-9.-]+$/)).includes("skill.shell.run"));
  await versions();
  await resumes();
  await endOfInput(host);
  for (const client of clients) await client.close();
}

end(main());
