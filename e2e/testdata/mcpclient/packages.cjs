// Opens a session for each of two users with the official TypeScript SDK, ann's over HTTP and bob's through `secbox mcp`, changes ann's packages
// meanwhile, and prints what both saw as one JSON object; the Go test judges it.
//
//	node packages.cjs    with NODE_PATH, MCP_URL, MCP_TOKEN, SECBOX and EDITED in the environment

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { ToolListChangedNotificationSchema } = require("@modelcontextprotocol/sdk/types.js");

const { MCP_URL, MCP_TOKEN, SECBOX, EDITED, HOME, PATH } = process.env;
const headers = { Authorization: "Bearer " + MCP_TOKEN };

async function connect(transport) {
  const client = new Client({ name: "secbox-test", version: "1.0.0" });
  const user = { client, heard: false };
  user.changed = new Promise((resolve) => {
    client.setNotificationHandler(ToolListChangedNotificationSchema, () => {
      user.heard = true;
      resolve();
    });
  });
  await client.connect(transport);
  return user;
}

// The packages among the tools: the built-in skills are everybody's.
async function packages(user) {
  const names = (await user.client.listTools()).tools.map((tool) => tool.name);
  return names.filter((name) => name.startsWith("skill_anns_") || name === "skill_text_version").sort();
}

async function send(method, path, body) {
  const answer = await fetch(MCP_URL + path, { method, headers: { ...headers, "Content-Type": "text/plain" }, body });
  if (!answer.ok) throw new Error(method + " " + path + ": " + answer.status + " " + (await answer.text()));
}

async function main() {
  const url = new URL(MCP_URL + "/mcp?project_id=ag~ann");
  const ann = await connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }));
  const bob = await connect(
    new StdioClientTransport({ command: SECBOX, args: ["mcp", "--server", MCP_URL, "--project", "ag~bob"], env: { HOME, PATH, SECBOX_TOKEN: MCP_TOKEN } }),
  );
  const seen = { ann: { before: await packages(ann) }, bob: { before: await packages(bob) } };

  await send("DELETE", "/v1/skills/ann/ag/anns.own");
  await ann.changed;
  await send("PUT", "/v1/skills/ann/ag/text.version/edit?path=run.sh", EDITED);
  seen.ann.after = await packages(ann);
  seen.bob.after = await packages(bob);

  for (const [name, user] of Object.entries({ ann, bob })) {
    const result = await user.client.callTool({ name: "skill.text.version", arguments: {} });
    seen[name].version = result.structuredContent && result.structuredContent.version;
    seen[name].exec_id = result._meta["secbox/exec_id"];
  }
  seen.bob.unknown = await bob.client.callTool({ name: "skill.anns.own", arguments: {} }).then(
    () => 0,
    (error) => error.code,
  );
  seen.bob.heard = bob.heard;
  await ann.client.close();
  await bob.client.close();
  process.stdout.write(JSON.stringify(seen));
}

main().catch((error) => {
  process.stderr.write(String(error && error.stack) + "\n");
  process.exit(1);
});
