// A worker: takes jobs from a file of JSON lines, runs them, and adds a line with the result of each to another file.
//
//   node worker.js jobs.jsonl results.jsonl
//
// A job is a line such as {"id": "1", "script": "echo hello"}. Its id is its key, so a worker that starts again after a
// crash gets the results of the first execs, and no job runs twice. SECBOX_SERVER and SECBOX_TOKEN name core-api; --once
// ends the worker when each job has a result.

import { appendFile, readFile } from "node:fs/promises";
import { ApiError, ConnectionFailed, Secbox } from "secbox";
import { nodeFetch } from "secbox/node";

interface Job {
  id: string;
  script: string;
}
interface Outcome {
  id: string;
  status: string;
  exit_code?: number | null;
  stdout?: string;
  detail?: string;
}

const atOnce = 8;
const [jobsFile = "jobs.jsonl", resultsFile = "results.jsonl", once] = process.argv.slice(2);
const client = new Secbox({ url: process.env.SECBOX_SERVER ?? "http://127.0.0.1:8003", token: process.env.SECBOX_TOKEN ?? "", fetch: nodeFetch() });

async function lines<T>(file: string): Promise<T[]> {
  const text = await readFile(file, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return "";
    throw error;
  });
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line) as T);
}

async function run({ id, script }: Job): Promise<Outcome | undefined> {
  try {
    const request = { project_id: `job-${id}`, exec: { script }, task_ref: { task_id: `job-${id}` }, policy_overrides: { timeout_ms: 60_000 } };
    const { status, exit_code, stdout, detail } = await client.run(request, { key: `jobs.jsonl/${id}` });
    return { id, status, exit_code, stdout, detail };
  } catch (error) {
    const busy = error instanceof ApiError && (error.status === 429 || error.status === 503);
    if (busy || error instanceof ConnectionFailed) return undefined; // later
    if (error instanceof ApiError) return { id, status: "refused", detail: error.detail };
    throw error;
  }
}

for (;;) {
  const done = new Set((await lines<Outcome>(resultsFile)).map((one) => one.id));
  const open = (await lines<Job>(jobsFile)).filter((one) => !done.has(one.id));
  const next = async (): Promise<void> => {
    for (let job = open.shift(); job; job = open.shift()) {
      const outcome = await run(job);
      if (outcome) await appendFile(resultsFile, JSON.stringify(outcome) + "\n");
    }
  };
  const idle = open.length === 0;
  await Promise.all(Array.from({ length: atOnce }, next));
  if (idle && once === "--once") break;
  if (idle) await new Promise((resolve) => setTimeout(resolve, 1000));
}
