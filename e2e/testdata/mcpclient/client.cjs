// Drives the official TypeScript SDK's client against a core-api and prints what it saw as one JSON object; the Go test judges it.
//
//	node client.cjs http|stdio    with NODE_PATH, MCP_URL, MCP_TOKEN, SKILLS_DIR and, for stdio, SECBOX in the environment

const fs = require("node:fs");
const path = require("node:path");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { ToolListChangedNotificationSchema } = require("@modelcontextprotocol/sdk/types.js");

const { MCP_URL, MCP_TOKEN, SKILLS_DIR, SECBOX, HOME, PATH } = process.env;
const overStdio = process.argv[2] === "stdio";

function transport(dotted) {
  if (overStdio) {
    const args = ["mcp", "--server", MCP_URL];
    if (dotted) args.push("--names", "dotted");
    return new StdioClientTransport({ command: SECBOX, args, env: { HOME, PATH, SECBOX_TOKEN: MCP_TOKEN } });
  }
  const url = new URL(MCP_URL + "/mcp");
  if (dotted) url.searchParams.set("names", "dotted");
  return new StreamableHTTPClientTransport(url, { requestInit: { headers: { Authorization: "Bearer " + MCP_TOKEN } } });
}

async function connect(dotted) {
  const client = new Client({ name: "secbox-test", version: "1.0.0" });
  await client.connect(transport(dotted));
  return client;
}

async function failing(promise) {
  try {
    return { value: await promise };
  } catch (error) {
    return { error: { code: error.code, message: String(error.message) } };
  }
}

function within(seconds, promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("not within " + seconds + " s: " + what)), seconds * 1000);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function main() {
  const seen = {};
  const client = await connect(false);
  seen.server = client.getServerVersion();
  seen.capabilities = client.getServerCapabilities();
  seen.instructions = client.getInstructions();
  seen.tools = (await client.listTools()).tools; // also makes the client check results by the output schemas

  const shell = (script, options) =>
    client.callTool({ name: "skill_shell_run", arguments: { script } }, undefined, { timeout: 60000, ...options });

  seen.call = await shell("echo hi; echo oops >&2; mkdir -p /workspace/artifacts/d; printf 'left here' > '/workspace/artifacts/d/a b.txt'");
  seen.failed = await shell("echo so far; exit 3");
  seen.invalid = await client.callTool({ name: "skill_shell_run", arguments: { script: 5, more: true } });
  seen.unknown = await failing(client.callTool({ name: "skill_no_such", arguments: {} }));

  seen.progress = [];
  seen.slow = await shell("for n in 1 2 3; do echo line $n; sleep 1; done", { onprogress: (p) => seen.progress.push(p) });

  const stop = new AbortController();
  seen.cancel = { message: "" };
  seen.cancel.outcome = await failing(
    shell("sleep 300", {
      signal: stop.signal,
      onprogress: (p) => {
        if (seen.cancel.message === "") setTimeout(() => stop.abort("the user has changed their mind"), 500);
        seen.cancel.message = p.message;
      },
    }),
  );

  seen.templates = (await client.listResourceTemplates()).resourceTemplates;
  const link = seen.call.content.find((c) => c.type === "resource_link");
  seen.artifact = await failing(client.readResource({ uri: link ? link.uri : "exec://none/none" }));
  const execID = seen.call._meta["secbox/exec_id"];
  seen.stdout = await failing(client.readResource({ uri: "exec://" + execID + "/stdout.txt" }));
  seen.missing = await failing(client.readResource({ uri: "exec://" + execID + "/missing.txt" }));

  const told = new Promise((resolve) => client.setNotificationHandler(ToolListChangedNotificationSchema, () => resolve(true)));
  const folder = path.join(SKILLS_DIR, "added.later" + (overStdio ? "2" : "1"));
  fs.cpSync(path.join(SKILLS_DIR, "..", path.basename(folder)), folder, { recursive: true });
  seen.listChanged = await failing(within(30, told, "tools/list_changed"));
  seen.toolsLater = (await client.listTools()).tools.map((t) => t.name);
  await client.close();

  const dotted = await connect(true);
  seen.dotted = (await dotted.listTools()).tools.map((t) => t.name);
  seen.dottedCall = await dotted.callTool({ name: "skill.shell.run", arguments: { script: "echo hi", project_id: "other" } });
  await dotted.close();
  return seen;
}

main().then(
  (seen) => {
    process.stdout.write(JSON.stringify(seen) + "\n", () => process.exit(0));
  },
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
