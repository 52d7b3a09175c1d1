// The programs of docs/agents.md against a core-api, each as it stands on the page, with a scripted model in place of the provider's. It throws at what is wrong.
//
// Environment: URL (of core-api), PACKAGES (a directory with node_modules of this folder's lock file) and WORK (a directory in which it may write).

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { promisify } from "node:util";

const { URL: server, PACKAGES, WORK } = process.env;

const asked = [];
let plan; // made of the first request's tools

// steps are the calls that the model makes, by the tools that it has. Its answer is the last result, so that only a program that runs commands says 42.
function steps(names) {
  const shell = names.find((one) => one.endsWith("skill_shell_run"));
  if (shell) return [{ name: shell, input: { script: "expr 6 '*' 7" } }];
  const file_path = "/workspace/work/numbers";
  return [
    { name: "write_file", input: { file_path, content: "expr 6 '*' 7\n" } },
    { name: "read_file", input: { file_path } },
    { name: "execute", input: { command: `bash ${file_path}` } },
  ];
}

// words returns all texts in a value.
const words = (value) => (typeof value === "string" ? value : value && typeof value === "object" ? Object.values(value).map(words).join(" ") : "");

const said = (result) => `The tool says ${words(result).match(/\b42\b/)?.[0] ?? words(result)}.`;

function messages(body) {
  const results = body.messages.flatMap((one) => (Array.isArray(one.content) ? one.content : [])).filter((block) => block.type === "tool_result");
  plan ??= steps(body.tools.map((tool) => tool.name));
  const next = plan[results.length];
  return {
    id: `msg_${asked.length}`, type: "message", role: "assistant", model: body.model, stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 },
    stop_reason: next ? "tool_use" : "end_turn",
    content: next ? [{ type: "tool_use", id: `toolu_${asked.length}`, ...next }] : [{ type: "text", text: said(results.at(-1)) }],
  };
}

function responses(body) {
  const last = body.input.at(-1);
  const answer = { id: `resp_${asked.length}`, object: "response", created_at: 0, model: body.model, status: "completed", usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 } };
  if (last.type === "function_call_output") {
    return { ...answer, output: [{ type: "message", id: `msg_${asked.length}`, role: "assistant", status: "completed", content: [{ type: "output_text", text: said(last.output), annotations: [] }] }] };
  }
  const [{ name, input }] = steps(body.tools.map((tool) => tool.name));
  return { ...answer, output: [{ type: "function_call", id: "fc_1", call_id: "call_1", name, arguments: JSON.stringify(input), status: "completed" }] };
}

// model answers as the providers' APIs do: first with a call of a tool, then with what the tool has said.
const model = http.createServer(async (req, res) => {
  let text = "";
  for await (const part of req.setEncoding("utf8")) text += part;
  const kind = new URL(req.url, "http://model").pathname.split("/").pop();
  asked.push(`${req.method} ${req.url}`);
  const answers = { messages, responses };
  if (!answers[kind]) {
    res.writeHead(404).end();
    return;
  }
  try {
    const answer = JSON.stringify(answers[kind](JSON.parse(text)));
    res.writeHead(200, { "Content-Type": "application/json" }).end(answer);
  } catch (error) {
    res.writeHead(400, { "Content-Type": "application/json" }).end(JSON.stringify({ error: { type: "invalid_request_error", message: String(error) } }));
  }
});

async function main() {
  await new Promise((next) => model.listen(0, "127.0.0.1", next));
  const provider = `http://127.0.0.1:${model.address().port}`;
  const page = fs.readFileSync(path.join(import.meta.dirname, "../../../docs/agents.md"), "utf8");
  const programs = [...page.matchAll(/^### (.*)\n(?:(?!^###)[^])*?```js\n([^]*?)```/gm)];
  assert.ok(programs.length >= 5, "docs/agents.md has lost its programs");
  fs.symlinkSync(path.join(PACKAGES, "node_modules"), path.join(WORK, "node_modules"));
  for (const [, title, program] of programs) {
    if (program.split("\n")[0].includes("not run here")) continue;
    const file = path.join(WORK, `${title.replace(/\W+/g, "-")}.mjs`);
    fs.writeFileSync(file, program.replaceAll("http://127.0.0.1:8003", server));
    asked.length = 0;
    plan = undefined;
    const env = {
      ...process.env, OPENAI_API_KEY: "scripted", OPENAI_BASE_URL: `${provider}/v1`, OPENAI_AGENTS_DISABLE_TRACING: "1", ANTHROPIC_API_KEY: "scripted",
      ANTHROPIC_BASE_URL: title.startsWith("Vercel") ? `${provider}/v1` : provider, LANGSMITH_TRACING: "false",
    };
    const { stdout } = await promisify(execFile)(process.execPath, [file], { env, timeout: 60_000 }).catch((error) => {
      throw new Error(`${title}: ${error.stderr?.split("\n").filter((line) => /Error/.test(line))[0] ?? error.message}; asked ${asked}`);
    });
    assert.equal(stdout, "The tool says 42.\n", `${title} printed ${stdout}`);
    console.log(`${title}: ${asked.length} requests of the model`);
  }
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(String(error.message).split("\n").slice(0, 3).join(" "));
    process.exit(1);
  },
);
