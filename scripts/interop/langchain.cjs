// LangChain's adapter for MCP: an agent's tools from a core-api, over HTTP and stdio, each called with arguments as models write them.
//
// Environment: NODE_PATH, URL (of core-api) and SECBOX (the program).

const assert = require("node:assert/strict");
const { MultiServerMCPClient } = require("@langchain/mcp-adapters");
const { end, URL: server } = require("./lib.cjs");

async function main() {
  const client = new MultiServerMCPClient({
    throwOnLoadError: true,
    mcpServers: {
      http: { transport: "http", url: `${server}/mcp?project_id=interop~langchain${process.pid}` },
      stdio: { transport: "stdio", command: process.env.SECBOX, args: ["mcp", "--server", server, "--project", "interop"] },
    },
  });
  for (const name of ["http", "stdio"]) {
    const tools = Object.fromEntries((await client.getTools(name)).map((tool) => [tool.name, tool]));
    for (const one of Object.keys(tools)) assert.match(one, /^[a-zA-Z0-9_-]{1,64}$/); // as OpenAI's API takes functions
    const said = await tools.skill_python_run.invoke({ code: "print(6 * 7)", timeout_ms: 20000 });
    assert.match(JSON.stringify(said), /42/);
    await assert.rejects(tools.skill_shell_run.invoke({ script: "echo so far; exit 3" }), /exit code 3/);
    if (name === "stdio") continue;
    await tools.files_write.invoke({ path: "chain.txt", content: "one link\n" });
    assert.match(JSON.stringify(await tools.files_read.invoke({ path: "chain.txt" })), /one link/);
  }
  await client.close();
}

end(main());
