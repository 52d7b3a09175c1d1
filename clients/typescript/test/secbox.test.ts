// Tests of the client: against the core-api at SECBOX_SERVER, and against servers that answer wrongly.

import assert from "node:assert/strict";
import { createHash, createHmac, randomBytes } from "node:crypto";
import { lstatSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createSocketServer, type AddressInfo, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { after, describe, test } from "node:test";
import { inspect } from "node:util";
import * as secbox from "../src/index.js";
import { Secbox, type ExecEvent, type Job } from "../src/index.js";
import { downloadFile, inputFiles, nodeFetch, safeParts, saveArtifacts, UnsafePath, uploadFile } from "../src/node.js";

const [url, token, project] = [process.env["SECBOX_SERVER"] ?? "", process.env["SECBOX_TOKEN"] ?? "", "typescript"];
const ofRun = (name: string) => `${name}-${run}`; // a server may have been tested before
const run = randomBytes(4).toString("hex");
const directories: string[] = [];
after(() => directories.forEach((one) => rmSync(one, { recursive: true })));
const directory = () => (directories.push(mkdtempSync(join(tmpdir(), "secbox-"))), directories.at(-1)!);
const script = (text: string, more: Partial<Job> = {}): Job => ({ project_id: project, exec: { script: text }, ...more });
const text = (content: Uint8Array) => Buffer.from(content).toString();

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const out: T[] = [];
  for await (const item of items) out.push(item);
  return out;
}

describe("a real core-api", { concurrency: true }, () => {
  if (!url) throw new Error("SECBOX_SERVER is not set: go test ./clients starts a core-api and runs this");
  const client = new Secbox({ url, token, fetch: nodeFetch() });

  test("run with files", async () => {
    const here = directory();
    mkdirSync(join(here, "in"));
    const every = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
    writeFileSync(join(here, "in/binary"), every);
    writeFileSync(join(here, "in/tool.sh"), "#!/bin/sh\necho täsk ✓\n", { mode: 0o755 });
    symlinkSync("/etc/passwd", join(here, "in/link"));
    const inputs = await inputFiles(join(here, "in"), "t1");
    assert.deepEqual(inputs.map((one) => one.path), ["t1/binary", "t1/tool.sh"]);
    const command = "cd /workspace/inputs/t1; ./tool.sh; mkdir -p ../../artifacts/d; cp binary ../../artifacts/d/'a %41'; ln -s /etc ../../artifacts/l; exit 3";
    const result = await client.run(script(command, { inputs, task_ref: ofRun("ts-1"), policy_overrides: { memory_mb: 128 } }));
    assert.deepEqual([result.status, result.exit_code, result.stdout], ["failed", 3, "täsk ✓\n"]);
    assert.throws(() => secbox.check(result), secbox.ExecFailed);
    const saved = await saveArtifacts(client, result.exec_id, join(here, "out"));
    assert.deepEqual(saved, [join(here, "out/d/a %41")]);
    assert.deepEqual(readFileSync(saved[0]!), every);
    assert.deepEqual(Buffer.from(await client.readArtifact(result.exec_id, "d/a %41")), every);
    assert.equal(text(await client.output(result.exec_id)), "täsk ✓\n");
    mkdirSync(join(here, "out2"));
    symlinkSync(here, join(here, "out2/d"));
    await assert.rejects(saveArtifacts(client, result.exec_id, join(here, "out2")), UnsafePath);
    const record = await client.record(result.exec_id);
    assert.deepEqual([record.status, record.task_id], ["failed", ofRun("ts-1")]);
    assert.deepEqual((await all(client.records({ task_id: ofRun("ts-1") }))).map((one) => one.exec_id), [result.exec_id]);
  });

  test("stream and follow", async () => {
    const events = await all(client.stream(script("echo one; printf 'two\\377' >&2; echo x > /workspace/artifacts/f; exit 4")));
    const of = (type: string) => Buffer.concat(events.flatMap((one) => ("data" in one && one.type === type ? [one.data] : [])));
    assert.deepEqual([events[0]!.type, of("stdout").toString("latin1"), of("stderr").toString("latin1")], ["status", "one\n", "two\xff"]);
    const end = events.at(-1)!;
    assert.ok(end.type === "end");
    assert.deepEqual([end.state.exit_code, end.state.artifacts?.map((one) => one.path)], [4, ["f"]]);
    const again = await all(client.follow(end.state.exec_id));
    assert.deepEqual(again.filter((one) => one.type === "stdout").map((one) => "text" in one && one.text), ["one\n"]);
    assert.deepEqual((again.at(-1) as typeof end).state.artifacts?.length, 1);
    assert.deepEqual(await all(client.follow(end.state.exec_id, end.id)), []);
  });

  test("standard input", async () => {
    const large = randomBytes(3 << 20);
    const digest = createHash("sha256").update(large).digest("hex") + "  -\n";
    const stdout = (events: ExecEvent[]) => events.flatMap((one) => (one.type === "stdout" ? [one.text] : [])).join("");
    for (const stdin of [large, () => new Blob([large]).stream() as ReadableStream<Uint8Array>]) {
      assert.equal(stdout(await all(client.stream(script("sha256sum"), { stdin }))), digest);
    }
    let echoed = () => {}; // the second line is sent when the first one has come back
    const first = new Promise<void>((resolve) => (echoed = resolve));
    async function* lines() {
      yield Buffer.from("one\n");
      await first;
      yield Buffer.from("two\n");
    }
    let got = "";
    for await (const event of client.stream(script("cat"), { stdin: () => Readable.toWeb(Readable.from(lines())) as ReadableStream<Uint8Array> })) {
      if (event.type === "stdout") got += event.text;
      if (got === "one\n") echoed();
    }
    assert.equal(got, "one\ntwo\n");
    assert.equal(stdout(await all(client.stream(script("true"), { stdin: large }))), "");
    const broken = () =>
      new ReadableStream<Uint8Array>({
        start: (controller) => controller.enqueue(Buffer.from("half")),
        pull: (controller) => controller.error(new Error("the file is gone")),
      });
    await assert.rejects(all(client.stream(script("cat"), { stdin: broken })), /the file is gone/);
  });

  test("invoke", async () => {
    const called = await client.invoke("shell.run", { project_id: project, inputs: { script: "echo $((6 * 7))" } });
    assert.deepEqual([called.exec.status, called.outputs?.["stdout"]], ["succeeded", "42\n"]);
    await assert.rejects(client.invoke("no.such", { project_id: project }), { code: "unknown_skill" });
  });

  test("submit, wait, cancel", async () => {
    const job = script("sleep 600", { priority: "high" });
    const queued = await client.submit(job, { key: ofRun("ts") });
    assert.equal((await client.submit(job, { key: ofRun("ts") })).exec_id, queued.exec_id);
    await assert.rejects(client.wait(queued.exec_id, { timeoutMs: 50 }), secbox.WaitTimeout);
    await assert.rejects(client.wait(queued.exec_id, { signal: AbortSignal.abort() }), { name: "AbortError" });
    await client.cancel(queued.exec_id);
    assert.equal((await client.wait(queued.exec_id)).status, "canceled");
    await client.cancel(queued.exec_id);
  });

  test("sessions", async () => {
    const session = await client.startSession({ project_id: project, env: { GREETING: "hi" } });
    assert.equal((await session.cell("r = 2")).status, "succeeded");
    assert.equal((await session.cell("r * 21")).results?.[0]?.data["text/plain"], "42");
    assert.equal((await session.run(script("echo $GREETING > /tmp/note; cat /tmp/note"))).stdout, "hi\n");
    const { files } = session;
    assert.equal(text(await files.read("/tmp/note")), "hi\n");
    await files.write("/tmp/new/a", new Uint8Array([0, 255]));
    await files.makeDirectory("/tmp/new/d");
    await files.move("/tmp/new/a", "/tmp/new/d/b");
    assert.deepEqual((await all(files.list("/tmp/new"))).map((one) => one.name), ["d"]);
    const here = directory();
    assert.deepEqual([...readFileSync(await downloadFile(files, "/tmp/new/d/b", join(here, "b")))], [0, 255]);
    writeFileSync(join(here, "large"), "x".repeat(3 << 20));
    await uploadFile(files, join(here, "large"), "/tmp/large");
    assert.equal((await session.run(script("wc -c < /tmp/large"))).stdout, "3145728\n");
    await files.remove("/tmp/new", { recursive: true });
    assert.equal((await session.extend({ idle_ms: 120_000 })).idle_ms >= 120_000, true);
    const link = await session.linkPort(8000, { ttl_seconds: 60 });
    assert.match(link.url, new RegExp(`^http://8000-${session.session_id}\\.preview\\.localhost:\\d+/\\?secbox_link=`));
    assert.equal(Date.parse(link.expires_at) > Date.now(), true);
    await assert.rejects(session.linkPort(80), { code: "invalid_request" });
    const background = await session.submit(script("echo up; sleep 600", { background: true }));
    for await (const event of client.follow(background.exec_id)) if (event.type === "stdout") break;
    await session.endContext("main");
    await session.end();
    await client.wait(session.session_id);
    assert.equal((await session.info()).end_reason, "deleted");
    await session.end();
  });

  test("batch", async () => {
    const jobs = [script("exit 0", { task_ref: ofRun("ts-batch") }), script("exit 1", { task_ref: ofRun("ts-batch") }), { project_id: project, exec: {} }];
    const items = await client.batch(jobs, { key: ofRun("ts-batch") });
    assert.deepEqual(items.map((one) => one.error?.code), [undefined, undefined, "invalid_request"]);
    const done = await client.waitTask(ofRun("ts-batch"));
    assert.deepEqual([done.total, done.unended, done.statuses], [2, 0, { succeeded: 1, failed: 1 }]);
  });

  test("errors", async () => {
    const denied = await client.run(script("true", { policy_overrides: { memory_mb: 1 << 20 } })).catch((error: unknown) => error);
    assert.ok(denied instanceof secbox.ApiError);
    assert.deepEqual([denied.code, denied.status, denied.detail.includes("memory_mb")], ["policy_denied", 403, true]);
    assert.equal((await client.record(denied.exec_id)).status, "rejected");
    await assert.rejects(client.record("019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d"), { code: "unknown_exec" });
    await assert.rejects(client.run(script("true", { inputs: [{ path: "large", content: "x".repeat(40 << 20) }] })), { code: "body_too_large" });
    const wrong = new Secbox({ url, token: "secret-token-that-is-wrong" });
    await assert.rejects(wrong.run(script("true")), (error) => {
      assert.ok(error instanceof secbox.ApiError && error.status === 401);
      assert.ok(!inspect([error, wrong], { depth: 9, showHidden: true }).includes("secret-token"));
      return true;
    });
  });

  test("webhooks", async () => {
    const port = Number(process.env["SECBOX_WEBHOOK_PORT"]);
    const secret = await client.newWebhookSecret();
    const arrived = new Promise<[Record<string, string>, Buffer]>((resolve) => {
      const server = createServer(async (request, response) => {
        const parts: Buffer[] = [];
        for await (const part of request) parts.push(part as Buffer);
        response.writeHead(204).end();
        server.close();
        resolve([request.headers as Record<string, string>, Buffer.concat(parts)]);
      }).listen(port, "127.0.0.1");
    });
    const result = await client.run(script("exit 3", { callback_url: `http://127.0.0.1:${port}/hook` }));
    const [headers, body] = await arrived;
    const event = await secbox.verifyWebhook(secret, headers, body);
    assert.deepEqual([event.type, event.data.exec_id, event.data.exit_code], ["exec.ended", result.exec_id, 3]);
    await assert.rejects(secbox.verifyWebhook(secret, headers, body + " "), secbox.WebhookError);
  });
});

type Answer = string | ((socket: Socket) => void);

describe("servers that answer wrongly", { concurrency: true }, () => {
  const closing: (() => void)[] = [];
  after(() => closing.forEach((close) => close()));

  // Each connection gets the next of the answers, or the last one again.
  async function fake(...answers: Answer[]): Promise<{ requests: string[]; client: Secbox; url: string }> {
    const requests: string[] = [];
    const sockets = new Set<Socket>();
    const server = createSocketServer((socket) => {
      sockets.add(socket);
      const answer = answers.length > 1 ? answers.shift()! : answers[0]!;
      let got = "";
      socket.setEncoding("latin1").on("error", () => {}).on("data", function receive(piece: string) {
        got += piece;
        const [head, body] = got.split("\r\n\r\n", 2);
        const length = Number(/content-length: (\d+)/i.exec(head!)?.[1] ?? 0);
        if (body === undefined || body.length < length) return;
        socket.off("data", receive);
        requests.push(got);
        if (typeof answer === "string") socket.end(answer, "latin1");
        else answer(socket);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    closing.push(() => (server.close(), sockets.forEach((one) => one.destroy())));
    const at = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    return { requests, url: at, client: new Secbox({ url: at, token: "token-of-the-test", retries: 3 }) };
  }
  function answer(status: string, body: unknown, ...headers: string[]): string {
    const content = typeof body === "string" ? body : JSON.stringify(body);
    const kind = status.startsWith("2") ? "application/json" : "application/problem+json";
    if (!headers.some((one) => one.startsWith("Content-Type"))) headers.push("Content-Type: " + kind);
    return [`HTTP/1.1 ${status}`, `Content-Length: ${content.length}`, "Connection: close", ...headers, "", content].join("\r\n");
  }
  const busy = (...headers: string[]) => answer("429 Busy", { status: 429, code: "queue_full", detail: "later" }, ...headers);
  const state = { exec_id: "e1", status: "running" };
  const events = (...all: [string, string, unknown][]) =>
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n: hello\n\n" +
    all.map(([type, id, data]) => `event: ${type}\ndata: ${JSON.stringify(data)}\nid: ${id}\n\n`).join("");

  test("not core-api", async () => {
    for (const wrong of [
      answer("307 Temporary Redirect", "", "Location: http://127.0.0.1:1/"),
      answer("200 OK", "{broken"),
      answer("200 OK", "[".repeat(100_000)),
      answer("200 OK", "5"),
      answer("200 OK", "<html>", "Content-Type: text/html"),
      answer("500 Oh", "<html>", "Content-Type: text/html"),
      answer("500 Oh", "{broken"),
    ]) {
      const { client } = await fake(wrong);
      await assert.rejects(client.run(script("true")), (error) => {
        assert.ok(error instanceof secbox.UnexpectedAnswer, wrong.slice(0, 60) + String(error));
        assert.ok(!inspect(error).includes("token-of-the-test"));
        return true;
      });
    }
    for (const wrong of [`HTTP/1.1 200 OK\r\nX: ${"x".repeat(1 << 20)}\r\n\r\n{}`, "SSH-2.0-OpenSSH_9.2\r\n"]) {
      const { client } = await fake(wrong);
      await assert.rejects(client.newWebhookSecret(), secbox.ConnectionFailed);
    }
  });

  test("an endless body", async () => {
    const { client } = await fake((socket) => {
      socket.write("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n");
      const more = () => socket.write(" ".repeat(1 << 16), () => !socket.destroyed && more());
      more();
    });
    await assert.rejects(client.output("e1", "stdout", { maxBytes: 1 << 20 }), /more than 1048576 bytes/);
  });

  test("a redirect gets no token", async () => {
    const other = await fake(answer("200 OK", state));
    const { client } = await fake(answer("307 Temporary Redirect", "", "Location: " + other.url + "/sandbox/execs"));
    await assert.rejects(client.run(script("true")), /redirect/);
    assert.deepEqual(other.requests, []);
  });

  test("repeats have one key, and are bounded", async () => {
    const cut = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    const { client, requests } = await fake("", cut, busy("Retry-After: 0"), answer("200 OK", state));
    assert.equal((await client.run(script("true"))).exec_id, "e1");
    assert.equal(new Set(requests.map((one) => /idempotency-key: (\S+)/i.exec(one)![1])).size, 1);
    assert.equal(requests.length, 4);
    const always = await fake(busy("Retry-After: 0"));
    await assert.rejects(always.client.run(script("true")), { code: "queue_full" });
    assert.equal(always.requests.length, 4);
    const later = await fake(busy("Retry-After: 3600"));
    await assert.rejects(later.client.run(script("true")), { retryAfterMs: 3_600_000 });
    await assert.rejects((await fake(busy("Retry-After: 30"))).client.run(script("true"), { timeoutMs: 5000 }), secbox.WaitTimeout);
    const unsafe = await fake("");
    await assert.rejects(unsafe.client.newWebhookSecret(), secbox.ConnectionFailed);
    assert.equal(unsafe.requests.length, 1);
  });

  test("a silent server", async () => {
    const { client } = await fake(() => {});
    await assert.rejects(client.run(script("true"), { timeoutMs: 100 }), secbox.WaitTimeout);
    const stop = new AbortController();
    const { client: other } = await fake(() => stop.abort(new Error("enough")));
    await assert.rejects(other.run(script("true"), { signal: stop.signal }), /enough/);
  });

  test("a stream goes on", async () => {
    const one = { data: "one", encoding: "utf-8", offset: 0 };
    const two = { data: Buffer.from([255]).toString("base64"), encoding: "base64", offset: 3 };
    const end = { ...state, status: "succeeded", artifacts: [] };
    const { client, requests } = await fake(
      events(), // cut before the first event: the request is repeated by its key
      events(["status", "0-0", state], ["stdout", "3-0", one]) + "event: stdout\ndata: {",
      events(["status", "3-0", state], ["later", "3-0", 1], ["stdout", "4-0", two], ["end", "4-0-end", end]),
    );
    const got = await all<ExecEvent>(client.stream(script("true")));
    assert.deepEqual(got.map((each) => [each.type, "data" in each && [...each.data]]), [
      ["status", false], ["stdout", [...Buffer.from("one")]], ["status", false], ["stdout", [255]], ["end", false],
    ]);
    assert.deepEqual(requests.map((each) => each.split(" HTTP")[0]), ["POST /sandbox/execs", "POST /sandbox/execs", "GET /sandbox/execs/e1/events"]);
    assert.match(requests[2]!, /last-event-id: 3-0\r\n/i);
  });

  test("names stay in the directory", async () => {
    for (const name of ["../x", "/etc/x", "a/../../x", "a//b", "", ".", "a/\0"]) {
      const { client } = await fake(answer("200 OK", { items: [{ path: name, size: 1, sha256: "0" }] }));
      await assert.rejects(saveArtifacts(client, "e1", join(directory(), "out")), UnsafePath, name);
    }
    for (const name of ["C:x", "a\\b", "aux.txt", "x.", "a:b"]) assert.throws(() => safeParts(name, "win32"), UnsafePath);
    for (const sizes of [[2 ** 40, -(2 ** 40)], ["x", 0], [null, 0]]) {
      const { client } = await fake(answer("200 OK", { items: sizes.map((size, n) => ({ path: `f${n}`, size, sha256: "0" })) }));
      await assert.rejects(saveArtifacts(client, "e1", directory()), /has a size/);
    }
    const items = answer("200 OK", { items: [{ path: "f", size: 1, sha256: "0" }] });
    for (const content of ["", "x", "x".repeat(100)]) {
      const here = directory();
      symlinkSync("/dev/null", join(here, "f"));
      const { client } = await fake(items, answer("200 OK", content, "Content-Type: application/octet-stream"));
      await assert.rejects(saveArtifacts(client, "e1", here), secbox.UnexpectedAnswer);
      assert.deepEqual(readdirSync(here), ["f"]);
      assert.ok(lstatSync(join(here, "f")).isSymbolicLink());
    }
  });

  test("proxies of the environment", async () => {
    const proxy = await fake("HTTP/1.1 502 No\r\n\r\n");
    const before = { ...process.env };
    Object.assign(process.env, { http_proxy: proxy.url, https_proxy: proxy.url, no_proxy: "other.example, .secbox.invalid" });
    try {
      const fetch = nodeFetch();
      for (const url of ["http://other.example:1", "https://a.secbox.invalid"]) { // such names do not exist
        await assert.rejects(new Secbox({ url, retries: 0, fetch }).run(script("true")), secbox.ConnectionFailed);
      }
      assert.equal(proxy.requests.length, 0);
      const far = new Secbox({ url: "https://secbox.example", token: "secret-of-tls", retries: 0, fetch });
      await assert.rejects(far.run(script("true")), secbox.ConnectionFailed);
      assert.match(proxy.requests[0]!, /^CONNECT secbox\.example:443 /);
      const near = await fake(answer("200 OK", state));
      assert.equal((await new Secbox({ url: near.url, fetch }).run(script("true"))).exec_id, "e1");
      assert.equal(proxy.requests.length, 1);
    } finally {
      process.env = before;
    }
  });

  test("addresses and tokens", () => {
    for (const [at, secret] of [["ftp://x", ""], ["http://u:p@x", ""], ["http://x?y", ""], ["http://10.0.0.1", "t"], ["http://127.0.0.1", "a\nb"]] as const) {
      assert.throws(() => new Secbox({ url: at, token: secret }), TypeError);
    }
  });

  test("signatures of webhooks", async () => {
    const key = Buffer.alloc(32, "k");
    const [secret, body] = ["whsec_" + key.toString("base64"), JSON.stringify({ type: "exec.ended", timestamp: "t", data: state })];
    const headers = (with_ = key, at = 1000, signed = body) => {
      const mac = createHmac("sha256", with_).update(`msg_1.${at}.${signed}`).digest("base64");
      return { "Webhook-Id": "msg_1", "webhook-timestamp": String(at), "webhook-signature": "v1,AAAA v2,x v1," + mac };
    };
    const now = new Date(1_200_000);
    assert.equal((await secbox.verifyWebhook(["whsec_AAAA", secret], headers(), body, { now })).data.exec_id, "e1");
    for (const [given, content] of [
      [headers(Buffer.alloc(32, "x")), body], [headers(key, 899), body], [headers(key, 1501), body],
      [{ ...headers(), "webhook-timestamp": "9".repeat(30) }, body], [{ ...headers(), "Webhook-Id": "msg_2" }, body], [{}, body],
      [headers(key, 1000, '{"type": 1}'), '{"type": 1}'],
    ] as const) {
      await assert.rejects(secbox.verifyWebhook(secret, given, content, { now }), secbox.WebhookError);
    }
    await assert.rejects(secbox.verifyWebhook("whsec_%%", headers(), body, { now }), TypeError);
  });
});
