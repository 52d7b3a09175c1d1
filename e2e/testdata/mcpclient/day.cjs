// Does an agent's work in a user's workspace with the official TypeScript SDK: finds a bug, reads, edits and runs the tests. It prints the results as
// one JSON object; the Go test judges it.
//
//	node tools.cjs    with NODE_PATH, MCP_URL, MCP_TOKEN and PROJECT in the environment

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");

const { MCP_URL, MCP_TOKEN, PROJECT } = process.env;

const repository = `mkdir -p calc/src calc/docs
for n in $(seq 300); do echo "helper $n" > calc/docs/page$n.md; done
printf 'add() {\\n  echo $(($1 - $2))\\n}\\n' > calc/src/add.sh
printf '. src/add.sh\\n[ "$(add 2 3)" = 5 ] || { echo "2 + 3 = $(add 2 3)"; exit 1; }\\necho ok\\n' > calc/test.sh`;

async function main() {
  const url = new URL(MCP_URL + "/mcp");
  url.searchParams.set("project_id", PROJECT);
  const client = new Client({ name: "secbox-test", version: "1.0.0" });
  await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers: { Authorization: "Bearer " + MCP_TOKEN } } }));
  const seen = { tools: (await client.listTools()).tools };
  const call = async (key, name, args, options) => {
    seen[key] = await client.callTool({ name, arguments: args }, undefined, { timeout: 120000, ...options });
  };

  await call("checkout", "shell", { command: repository });
  await call("cd", "files.cd", { path: "calc/src" });
  await call("up", "files.cd", { path: ".." });
  await call("broken", "shell", { command: "sh test.sh" });
  await call("glob", "files.glob", { pattern: "src/*.sh" });
  await call("grep", "files.grep", { pattern: "\\$1 \\S \\$2", output_mode: "content" });
  await call("unread", "files.write", { path: "src/add.sh", content: "" });
  await call("read", "files.read", { path: "src/add.sh" });
  await call("wrong", "files.edit", { path: "src/add.sh", edits: [{ old: "echo $(($1 * $2))", new: "" }] });
  await call("edit", "files.edit", { path: "src/add.sh", edits: [{ old: "$1 - $2", new: "$1 + $2" }] });
  seen.progress = [];
  await call("test", "shell", { command: "sh test.sh" }, { onprogress: (p) => seen.progress.push(p.message) });
  await call("report", "files.write", { path: "reports/today.md", content: "fixed\n" });
  await call("skill", "skills.read", { name: "shell.run" });
  await call("outside", "files.read", { path: "/etc/passwd" });
  await client.close();
  process.stdout.write(JSON.stringify(seen));
}

main().catch((error) => {
  process.stderr.write(String(error && error.stack) + "\n");
  process.exit(1);
});
