// Does an agent's work in a user's workspace with the official TypeScript SDK: finds a bug in a large repository, edits, runs the tests and writes a report,
// while the test cuts a connection. It prints the results as one JSON object; the Go test judges it.
//
//	node day.cjs runner|client    which connection is cut; with NODE_PATH, MCP_URL, MCP_TOKEN, PROJECT, FILES and CABLE in the environment

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");

const { MCP_URL, MCP_TOKEN, PROJECT, FILES, CABLE } = process.env;
const cutsRunner = process.argv[2] === "runner";

const logo = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

// The repository comes from one pack, which costs half of what `git add` does.
const repository = `cat >make.py <<'END'
import base64, sys
out = sys.stdout.buffer
def data(content):
    return b"data %d\\n%s\\n" % (len(content), content)
def put(name, content):
    out.write(b"M 100644 inline %s\\n%s" % (name.encode(), data(content)))
out.write(b"commit refs/heads/main\\ncommitter Shop <shop@example.com> 1700000000 +0000\\n" + data(b"The shop"))
put(".gitignore", b"__pycache__/\\n.ended\\n.go\\n.runs\\n")
put("shop/cart.py", b"def total(items):\\n    result = 0\\n    for price, count in items:\\n        result += price + count\\n    return result\\n")
put("tests/test_cart.py", b"import unittest\\nfrom shop.cart import total\\n\\nclass Total(unittest.TestCase):\\n    def test_counts(self):\\n        self.assertEqual(total([(3, 4), (5, 1)]), 17)\\n")
put("docs/logo.png", base64.b64decode("${logo}"))
for n in range(${FILES} - 4):
    put("rules/region%03d/rule%05d.py" % (n // 100, n), b"RATE = %d\\n\\n\\ndef price(amount):\\n    return amount * RATE // 1000\\n" % n)
END
git init -q -b main shop-repo && cd shop-repo && python3 ../make.py | git fast-import --quiet && git checkout -q main && git ls-files | wc -l && rm ../make.py`;

const tests = "python3 -m unittest tests.test_cart";

async function ask(what) {
  const response = await fetch(CABLE + "/" + what, { method: "POST" });
  if (!response.ok) throw new Error(what + ": " + response.status);
}

async function main() {
  const url = new URL(MCP_URL + "/mcp");
  url.searchParams.set("project_id", PROJECT);
  const client = new Client({ name: "secbox-test", version: "1.0.0" });
  const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers: { Authorization: "Bearer " + MCP_TOKEN } } });
  await client.connect(transport);
  const seen = { tools: (await client.listTools()).tools.map((tool) => tool.name), took: {} };
  const call = async (key, name, args, options) => {
    const begun = Date.now();
    seen[key] = await client.callTool({ name, arguments: args }, undefined, { timeout: 240000, ...options });
    seen.took[key] = Date.now() - begun;
  };

  await call("checkout", "shell", { command: repository });
  await call("cd", "files.cd", { path: "shop-repo/shop" });
  await call("up", "files.cd", { path: ".." });
  await call("broken", "shell", { command: tests });
  await call("glob", "files.glob", { pattern: "**/test_*.py" });
  await call("grep", "files.grep", { pattern: "def total\\(|price \\S count", output_mode: "content", glob: "*.py" });
  await call("unread", "files.write", { path: "shop/cart.py", content: "" });
  await call("read", "files.read", { path: "shop/cart.py" });
  await call("image", "files.read", { path: "docs/logo.png" });
  await call("wrong", "files.edit", { path: "shop/cart.py", edits: [{ old: "result += price - count", new: "" }] });

  // A change whose answer does not arrive on the first link.
  if (cutsRunner) await ask("change");
  await call("edit", "files.edit", { path: "shop/cart.py", edits: [{ old: "price + count", new: "price * count" }] });

  // The tests run until they are told to go on, by a file that comes when their output has arrived here.
  let told = Promise.resolve();
  const goOn = async () => {
    if (cutsRunner) return ask("command");
    await client.callTool({ name: "files.write", arguments: { path: ".go", content: "" } });
  };
  seen.progress = [];
  const onprogress = (p) => {
    if (seen.progress.push(p.message) === 1) told = goOn();
  };
  await call("test", "shell", { command: `echo begun; echo once >> .runs; until [ -e .go ]; do sleep 0.05; done; ${tests} && cat .runs && : >.ended` }, { onprogress });
  await told;

  // A command whose caller is cut off. The session stays.
  if (!cutsRunner) {
    const away = new AbortController();
    transport.onerror = () => away.abort("the connection broke");
    const cut = () => void (told = ask("client"));
    const lost = call("lost", "shell", { command: "echo begun; sleep 1000; echo wrong > shop/cart.py" }, { signal: away.signal, onprogress: cut });
    seen.outcome = await lost.then(() => "answered", (error) => String(error.message));
    await told;
  }

  const again = () => call("again", "files.read", { path: "shop/cart.py" });
  await again().catch(again); // the first one may use a connection that is cut, too
  await call("status", "shell", { command: "git status --short; git diff --shortstat" });
  await call("report", "files.write", { path: "reports/cart.md", content: "# Cart\n\nThe total added prices and counts; it multiplies them now.\n" });
  await call("skill", "skills.read", { name: "shell.run" });
  await call("outside", "files.read", { path: "/etc/passwd" });
  await client.close();
  process.stdout.write(JSON.stringify(seen));
}

main().catch((error) => {
  process.stderr.write(String(error && error.stack) + "\n");
  process.exit(1);
});
