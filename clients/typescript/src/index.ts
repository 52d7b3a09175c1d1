// A client of secbox for Node.js 20 and newer, and for browsers; what needs files or proxies of Node.js is in node.ts.
// Types of requests and answers are generated from the contract, see contract.ts. README.md has an
// example of each call.

import createClient, { type Client as Api } from "openapi-fetch";
import type { components, paths } from "./contract.js";

type Schemas = components["schemas"];

/** The body of POST /sandbox/execs: what to run, with its inputs and limits. */
export type Job = Omit<Schemas["ExecRequest"], "stream">;
export type Result = Schemas["ExecResult"];
export type Record = Schemas["ExecRecord"];
export type State = Schemas["ExecState"];
export type Artifact = Schemas["Artifact"];
export type InputFile = Schemas["InputFile"];
export type SessionInfo = Schemas["Session"];
export type FileEntry = Schemas["FileEntry"];
export type Filters = NonNullable<paths["/sandbox/execs"]["get"]["parameters"]["query"]>;

/** A piece of a stream. */
export type ExecEvent =
  | { type: "status" | "end"; id: string; state: State }
  | { type: "stdout" | "stderr"; id: string; data: Uint8Array; text: string };

/** What became of one job of a batch. */
export type BatchItem = Omit<Schemas["ExecBatchItem"], "error"> & { error?: ApiError };
/** The execs of a task: how many there are, and how many of them have each status. */
export type TaskState = Schemas["TaskState"];
/** The body of POST /skills/{id}/invoke: inputs and limits of a call. */
export type Invocation = Omit<Schemas["InvokeRequest"], "stream">;
/** How the exec of a skill ended, and the outputs of the skill; null if it left no valid ones. */
export type Invoked = Schemas["InvokeResult"];

export interface Options {
  /** Ends the call, but not the exec. */
  signal?: AbortSignal;
  /** After so many milliseconds the call throws WaitTimeout; the exec goes on. */
  timeoutMs?: number;
}

export interface KeyOptions extends Options {
  /** The Idempotency-Key; without it, one is made. */
  key?: string;
}

export interface SecboxOptions {
  /** The address of core-api, such as https://secbox.example.com. */
  url: string;
  token?: string;
  /** How often a request is repeated; 5 without it. */
  retries?: number;
  /** Allows to send the token over http:// to another machine. */
  plainHTTP?: boolean;
  /** Makes requests; see nodeFetch in node.ts for proxies. */
  fetch?: (url: string, init: RequestInit) => Promise<Response>;
}

// Bounds of what a server may send, in bytes, and of time, in milliseconds.
const maxAnswer = 64 << 20;
const maxProblem = 1 << 20;
const defaultTimeout = 60_000;
const defaultWait = 3_600_000; // of run and wait
const streamSilence = 35_000; // a stream has a comment every 10 seconds
const maxPause = 60_000; // a longer Retry-After is an error at once
const maxWait = 60_000; // of one request to …/wait

/** Any error of this client. No message has the token. */
export class SecboxError extends Error {
  override get name(): string {
    return this.constructor.name;
  }
}

/** The server refused a request. The message has the remedy; switch on code, not on the text. */
export class ApiError extends SecboxError {
  readonly status: number;
  readonly code: string;
  readonly detail: string;
  /** The record of the refusal, if any. */
  readonly exec_id: string;
  /** The fields at fault. */
  readonly errors: Schemas["FieldProblem"][];
  readonly retryAfterMs: number | undefined;

  constructor(problem: Partial<Schemas["ProblemDocument"]>, retryAfterMs?: number) {
    super(`${problem.detail} (${problem.code}, ${problem.status})`);
    this.status = Number(problem.status);
    this.code = String(problem.code);
    this.detail = String(problem.detail ?? "");
    this.exec_id = String(problem.exec_id ?? "");
    this.errors = problem.errors ?? [];
    this.retryAfterMs = retryAfterMs;
  }
}

/** There was no answer, or it was cut off. */
export class ConnectionFailed extends SecboxError {}
/** The answer is not one of core-api: a redirect, another format, too many bytes. */
export class UnexpectedAnswer extends SecboxError {}
/** The caller's time is over. The exec goes on. */
export class WaitTimeout extends SecboxError {}
/** A webhook that core-api did not send, or not now. */
export class WebhookError extends SecboxError {}

/** An exec did not succeed; see result. */
export class ExecFailed extends SecboxError {
  constructor(readonly result: Result | State | Record) {
    const said = result.detail || ("stderr" in result ? result.stderr.trim().slice(-500) : "");
    super(`exec ${result.exec_id} ended as ${result.status} (${result.error_reason}), exit code ${result.exit_code}${said && ": " + said}`);
  }
}

/** Returns a result whose exec succeeded, and throws ExecFailed for another one. */
export function check<T extends Result | State | Record>(result: T): T {
  if (result.status !== "succeeded") throw new ExecFailed(result);
  return result;
}

const ended = (status: string) => status !== "queued" && status !== "running";
const media = (response: Response) => (response.headers.get("Content-Type") ?? "").split(";")[0]!.trim();
/** Reports whether a host name, as URL has it, is of this machine. */
export const isLoopback = (host: string) => host === "localhost" || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
const backoff = (tries: number) => Math.min(8000, 250 * 2 ** Math.min(tries, 10)) * (0.5 + Math.random() / 2);
const segments = (...parts: string[]) => parts.map((part) => "/" + encodeURIComponent(part)).join("");

function query(values: { [name: string]: string | number | boolean | undefined }): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== "" && value !== false);
  return given.length ? "?" + new URLSearchParams(given.map(([name, value]) => [name, String(value)])) : "";
}

/** What one call may take, and its end by the caller. */
class Call {
  readonly #deadline: number;
  constructor(
    readonly options: Options,
    timeoutMs: number,
  ) {
    this.#deadline = performance.now() + (options.timeoutMs ?? timeoutMs);
  }
  remaining(): number {
    this.options.signal?.throwIfAborted();
    const left = this.#deadline - performance.now();
    if (left <= 0) throw new WaitTimeout("the time is over before core-api has answered; what was started goes on");
    return left;
  }
  async pause(ms: number): Promise<void> {
    if (ms >= this.remaining()) throw new WaitTimeout("the time is over before the next try; what was started goes on");
    await within(new Promise(() => {}), this, ms).catch((error: unknown) => {
      if (!(error instanceof Lost)) throw error;
    });
  }
}

/** A connection that broke, so nobody knows whether the server has done it. */
class Lost extends Error {}

/** Reads a body piece by piece, each within a time. */
async function* pieces(body: ReadableStream<Uint8Array> | null, call: Call, silence: number): AsyncGenerator<Uint8Array, void, void> {
  if (body === null) return;
  const reader = body.getReader();
  try {
    for (;;) {
      const one = await within(reader.read(), call, silence);
      if (one.done) return;
      yield one.value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function within<T>(wanted: Promise<T>, call: Call, silence: number): Promise<T> {
  wanted.catch(() => {}); // it may fail after the time
  const { signal } = call.options;
  let stop: () => void = () => {};
  const over = new Promise<never>((_, reject) => {
    const timer = setTimeout(() => reject(new Lost("the server is silent")), Math.min(silence, call.remaining(), 2 ** 31 - 1));
    const abort = () => reject(signal?.reason);
    signal?.addEventListener("abort", abort);
    stop = () => (clearTimeout(timer), signal?.removeEventListener("abort", abort));
  });
  try {
    return await Promise.race([wanted, over]);
  } catch (error) {
    call.remaining();
    throw error instanceof SecboxError ? error : new Lost(error instanceof Error ? String(error.cause ?? error.message) : String(error));
  } finally {
    stop();
  }
}

async function bytes(response: Response, call: Call, silence: number, most: number): Promise<Uint8Array> {
  const all: Uint8Array[] = [];
  let size = 0;
  for await (const piece of pieces(response.body, call, silence)) {
    size += piece.length;
    if (size > most) throw new UnexpectedAnswer(`the answer has more than ${most} bytes; check the address`);
    all.push(piece);
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const piece of all) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new UnexpectedAnswer("the answer is not valid JSON; check the address");
  }
}

/** A body; a function opens a stream for each try. */
export type Body = string | Uint8Array | (() => ReadableStream<Uint8Array>);

interface Request_ {
  method: string;
  path: string;
  headers?: { [name: string]: string };
  body?: Body;
  /** It may be repeated when its answer is lost. */
  repeat?: boolean;
  /** It is never repeated. */
  once?: boolean;
  /** Milliseconds between two bytes. */
  silence?: number;
}

/** Runs commands on a core-api. */
export class Secbox {
  readonly #token: string;
  readonly #retries: number;
  readonly #fetch: (url: string, init: RequestInit) => Promise<Response>;
  /** The address, without the token. */
  readonly url: string;
  /** openapi-fetch for every other route, with the token, repeats and errors of this client. */
  readonly api: Api<paths, `application/${string}json`>;

  constructor(options: SecboxOptions) {
    const at = new URL(options.url);
    const { token = "" } = options;
    if (!["http:", "https:"].includes(at.protocol)) throw new TypeError("the address of core-api must begin with http:// or https://");
    if (at.username || at.password || at.search || at.hash) {
      throw new TypeError("the address of core-api must have neither a user nor a query; give the token as token");
    }
    if (!/^[!-~]*$/.test(token)) throw new TypeError("the token has characters that no token has; check where it was read from");
    if (token && at.protocol === "http:" && !options.plainHTTP && !isLoopback(at.hostname)) {
      throw new TypeError(`the token would go to ${at.host} unencrypted; use https://, or plainHTTP in a private network`);
    }
    this.url = at.href.replace(/\/+$/, "");
    this.#token = token;
    this.#retries = options.retries ?? 5;
    this.#fetch = options.fetch ?? ((url, init) => globalThis.fetch(url, init));
    this.api = this.#client({}, defaultTimeout);
  }

  /** Runs a job and returns its result, whatever the exit code. */
  async run(job: Job, options: KeyOptions = {}): Promise<Result> {
    const header = { "Idempotency-Key": options.key ?? crypto.randomUUID() };
    const { data } = await this.#client(options, defaultWait, true).POST("/sandbox/execs", { params: { header }, body: job });
    return data as Result;
  }

  /** Puts a job into the queue and returns its record. wait, follow and cancel take its exec_id. */
  async submit(job: Job, options: KeyOptions = {}): Promise<Record> {
    const header = { "Idempotency-Key": options.key ?? crypto.randomUUID(), Prefer: "respond-async" as const };
    const { data } = await this.#client(options, defaultTimeout, true).POST("/sandbox/execs", { params: { header }, body: job });
    return data as Record;
  }

  /**
   * Runs a job, and yields its events as they come; the last one is end. A lost connection is made again.
   * stdin is the standard input of the command, of any size; a stream may go on while the command runs.
   */
  stream(job: Job, options: KeyOptions & { stdin?: Body } = {}): AsyncGenerator<ExecEvent, void, void> {
    const { stdin } = options;
    const headers = { "Idempotency-Key": options.key ?? crypto.randomUUID(), "Content-Type": "application/json" };
    const streamed = stdin === undefined ? {} : { exec: { ...job.exec, stdin_stream: true } };
    const body = JSON.stringify({ ...job, ...streamed, stream: true });
    const events = this.#events({ method: "POST", path: "/sandbox/execs", headers, body }, "", "", options);
    return stdin === undefined ? events : this.#feed(events, stdin, options);
  }

  /** Yields events, and sends stdin meanwhile. */
  async *#feed(events: AsyncGenerator<ExecEvent, void, void>, stdin: Body, options: Options): AsyncGenerator<ExecEvent, void, void> {
    const { signal } = options;
    let begun = false;
    let failed: unknown;
    for await (const event of events) {
      // The server waits for the start of a queued one only for a while.
      if (event.type === "status" && event.state.status === "running" && !begun) {
        begun = true;
        const id = event.state.exec_id;
        this.sendStdin(id, stdin, signal ? { signal } : {}).catch(async (error: unknown) => {
          failed = error;
          const refused = error instanceof ApiError && error.code === "invalid_request"; // another request was the first
          if (!refused) await this.cancel(id).catch(() => {}); // it waits for input that does not come
        });
      }
      if (event.type === "end" && event.state.status === "canceled" && failed !== undefined) throw failed;
      yield event;
    }
  }

  /**
   * Sends the standard input of an exec with stdin_stream, once. It is no error that the exec has ended already.
   * If the stream fails, the exec is canceled, so that no command takes a part for the whole.
   */
  async sendStdin(execId: string, content: Body, options: Options = {}): Promise<void> {
    const headers = { "Content-Type": "application/octet-stream" };
    const request = { method: "PUT", path: segments("sandbox", "execs", execId, "stdin"), headers, body: content };
    try {
      await this.#json({ ...request, once: true, silence: Infinity }, new Call(options, Infinity));
    } catch (error) {
      if (!(error instanceof ApiError && error.code === "exec_ended")) throw error;
    }
  }

  /** Yields the events of any exec, from the beginning or after the event with this id. */
  follow(execId: string, lastEventId = "", options: Options = {}): AsyncGenerator<ExecEvent, void, void> {
    return this.#events({ method: "GET", path: segments("sandbox", "execs", execId, "events") }, execId, lastEventId, options);
  }

  async *#events(request: Request_, execId: string, last: string, options: Options): AsyncGenerator<ExecEvent, void, void> {
    const call = new Call(options, Infinity);
    for (let failures = 0; ; ) {
      const headers = { ...request.headers, Accept: "text/event-stream, application/problem+json", ...(last && { "Last-Event-ID": last }) };
      const response = await this.#send({ ...request, headers, repeat: true, silence: streamSilence }, call);
      if (response.status === 204) return;
      if (media(response) !== "text/event-stream") throw new UnexpectedAnswer(`${this.url} does not answer with events; check the address`);
      let lost: unknown;
      try {
        for await (const { type, id, data } of serverSentEvents(pieces(response.body, call, streamSilence))) {
          const event = toEvent(type, id, data);
          if (event === undefined) continue;
          if ("data" in event) failures = 0;
          last = id || last;
          if ("state" in event) execId = event.state.exec_id;
          if (event.type === "end" && event.state.artifacts === undefined && !["rejected", "error", "lost"].includes(event.state.status)) {
            event.state.artifacts = await this.artifacts(execId, options);
          }
          yield event;
          if (event.type === "end") return;
        }
      } catch (error) {
        if (!(error instanceof Lost)) throw error;
        lost = error;
      }
      if (++failures > this.#retries) {
        const what = `the events of ${execId || "the exec"} were cut off, and it goes on: follow it after the last event`;
        throw new ConnectionFailed(what, { cause: lost });
      }
      await call.pause(backoff(failures));
      // else the same request follows the same exec, by its key
      if (execId && last) request = { method: "GET", path: segments("sandbox", "execs", execId, "events") };
    }
  }

  /** Waits for the end of an exec and returns its record. */
  async wait(execId: string, options: Options = {}): Promise<Record> {
    const path = segments("sandbox", "execs", execId, "wait");
    return this.#untilEnded<Record>(path, {}, (record) => ended(record.status), options);
  }

  /** Waits until all execs of a task have ended. */
  async waitTask(taskId: string, options: Options = {}): Promise<TaskState> {
    return this.#untilEnded<TaskState>("/sandbox/execs/wait", { task_id: taskId }, (task) => task.ended, options);
  }

  async #untilEnded<T>(path: string, of: { [name: string]: string }, done: (answer: T) => boolean, options: Options): Promise<T> {
    const call = new Call(options, defaultWait);
    for (;;) {
      const ms = Math.max(1, Math.floor(Math.min(call.remaining(), maxWait)));
      const request = { method: "GET", path: path + query({ ...of, timeout_ms: ms }), silence: ms + defaultTimeout };
      const answer = (await this.#json(request, call)) as T;
      if (done(answer)) return answer;
    }
  }

  /** Kills an exec. It is no error that it has ended already. */
  async cancel(execId: string, options: Options = {}): Promise<void> {
    try {
      await this.#client(options, defaultTimeout, true).POST("/sandbox/execs/{exec_id}/cancel", { params: { path: { exec_id: execId } } });
    } catch (error) {
      if (!(error instanceof ApiError && error.code === "exec_ended")) throw error;
    }
  }

  /** Puts up to 1,000 jobs into the queue at once, and returns what became of each, in their order. */
  async batch(jobs: Job[], options: KeyOptions = {}): Promise<BatchItem[]> {
    const header = { "Idempotency-Key": options.key ?? crypto.randomUUID() };
    const request = { params: { header }, body: { execs: jobs } };
    const { data } = await this.#client(options, defaultTimeout, true).POST("/sandbox/execs/batch", request);
    if (data?.items?.length !== jobs.length) {
      throw new UnexpectedAnswer("the answer of core-api does not have an item for each job; check the server's version");
    }
    return data.items.map(({ error, ...rest }) => (error ? { ...rest, error: new ApiError(error) } : rest));
  }

  /** Calls a skill and returns its outputs. */
  async invoke(skillId: string, call: Invocation, options: KeyOptions = {}): Promise<Invoked> {
    const header = { "Idempotency-Key": options.key ?? crypto.randomUUID() };
    const request = { params: { header, path: { id: skillId } }, body: call };
    const { data } = await this.#client(options, defaultWait, true).POST("/skills/{id}/invoke", request);
    return data as Invoked;
  }

  /** Returns the record of an exec. */
  async record(execId: string, options: Options = {}): Promise<Record> {
    const { data } = await this.#client(options).GET("/sandbox/execs/{exec_id}", { params: { path: { exec_id: execId } } });
    return data!;
  }

  /** Yields records, newest first. */
  async *records(filters: Filters = {}, options: Options = {}): AsyncGenerator<Record, void, void> {
    for (let cursor = filters.cursor ?? ""; ; ) {
      const { data } = await this.#client(options).GET("/sandbox/execs", { params: { query: { ...filters, ...(cursor && { cursor }) } } });
      yield* data!.items;
      if (!data!.next_cursor || data!.next_cursor === cursor) return;
      cursor = data!.next_cursor;
    }
  }

  /** Returns what an exec wrote to stdout or stderr, so far or in all. */
  async output(execId: string, stream: "stdout" | "stderr" = "stdout", options: Options & { maxBytes?: number } = {}): Promise<Uint8Array> {
    return this.read(segments("sandbox", "execs", execId, stream), options);
  }

  /** Lists the files that an exec left. */
  async artifacts(execId: string, options: Options = {}): Promise<Artifact[]> {
    const { data } = await this.#client(options).GET("/sandbox/execs/{exec_id}/artifacts", { params: { path: { exec_id: execId } } });
    return data!.items;
  }

  /** Returns the content of an artifact. In Node.js, saveArtifacts writes them to files. */
  async readArtifact(execId: string, path: string, options: Options & { maxBytes?: number } = {}): Promise<Uint8Array> {
    return this.read(artifactPath(execId, path), options);
  }

  /** Starts a container that stays. */
  async startSession(request: Schemas["SessionRequest"], options: KeyOptions = {}): Promise<Session> {
    const header = { "Idempotency-Key": options.key ?? crypto.randomUUID() };
    const { data } = await this.#client(options, defaultTimeout, true).POST("/sandbox/sessions", { params: { header }, body: request });
    return new Session(this, data!.session_id);
  }

  /** Returns a session that runs already, without a request. */
  session(sessionId: string): Session {
    return new Session(this, sessionId);
  }

  /** Returns the files of a project: /workspace/work, and for reading /workspace/inputs. */
  projectFiles(projectId: string): Files {
    return new Files(this, segments("sandbox", "projects", projectId, "files"));
  }

  /** Makes the secret that signs the webhooks of this token. The one before it stays valid for a day. */
  async newWebhookSecret(options: Options = {}): Promise<string> {
    const { data } = await this.#client(options).POST("/webhooks/secret");
    return data!.secret;
  }

  /** Returns the bytes of an answer. */
  async read(path: string, options: Options & { maxBytes?: number } = {}): Promise<Uint8Array> {
    const call = new Call(options, defaultWait);
    return this.#repeated({ method: "GET", path, headers: { Accept: "*/*" } }, call, (response) =>
      bytes(response, call, defaultTimeout, options.maxBytes ?? maxAnswer),
    );
  }

  /** Reads an answer piece by piece; read is called again when the connection breaks. */
  async download<T>(path: string, read: (pieces: AsyncGenerator<Uint8Array, void, void>) => Promise<T>, options: Options = {}): Promise<T> {
    const call = new Call(options, defaultWait);
    return this.#repeated({ method: "GET", path, headers: { Accept: "*/*" } }, call, (response) =>
      read(pieces(response.body, call, defaultTimeout)),
    );
  }

  /** Makes any request, and returns the JSON of its answer. api does so with types. */
  async request(
    method: string,
    path: string,
    body?: Body,
    options: Options & { type?: string; repeat?: boolean } = {},
  ): Promise<unknown> {
    const { repeat = false, type = "application/json" } = options;
    const request = body === undefined ? {} : { body, headers: { "Content-Type": type } };
    return this.#json({ method, path, repeat, ...request }, new Call(options, defaultWait));
  }

  async #json(request: Request_, call: Call): Promise<unknown> {
    const response = await this.#send(request, call);
    return response.status === 204 ? undefined : response.json();
  }

  #client(options: Options, timeoutMs = defaultTimeout, repeat = false): Api<paths, `application/${string}json`> {
    return createClient<paths, `application/${string}json`>({
      baseUrl: this.url,
      fetch: async (given: Request) => {
        const call = new Call({ ...options, signal: options.signal ?? given.signal }, timeoutMs);
        const body = given.body === null ? undefined : await given.text();
        const [path, headers] = [given.url.slice(this.url.length), Object.fromEntries(given.headers)];
        const request = { method: given.method, path, headers, repeat, silence: Infinity };
        return this.#send({ ...request, ...(body !== undefined && { body }) }, call);
      },
    });
  }

  /** Makes a request and returns a successful answer: of JSON all of it, of other types its beginning. */
  async #send(request: Request_, call: Call): Promise<Response> {
    return this.#repeated(request, call, async (response) => {
      if (media(response) === "text/event-stream" || response.status === 204) return response;
      if (media(response) !== "application/json") {
        const kind = media(response).slice(0, 100);
        throw new UnexpectedAnswer(`the answer has the type "${kind}", which core-api does not send here; check the address`);
      }
      const text = new TextDecoder().decode(await bytes(response, call, request.silence ?? defaultTimeout, maxAnswer));
      const answer = parsed(text);
      if (typeof answer !== "object" || answer === null) throw new UnexpectedAnswer("the answer is no object; check the address");
      return new Response(text, { status: response.status, headers: response.headers });
    });
  }

  /** Makes a request, and repeats it: when the server says so (429, 503), and after a broken connection if that is safe. */
  async #repeated<T>(request: Request_, call: Call, read: (response: Response) => Promise<T>): Promise<T> {
    const repeat = request.repeat || request.method === "GET" || request.method === "PUT";
    for (let tries = 1; ; tries++) {
      const begun = performance.now();
      let pause = backoff(tries);
      let error: SecboxError;
      try {
        const response = await this.#once(request, call);
        if (response.ok) return await read(response);
        error = await this.#problem(response, call);
        if (!(error instanceof ApiError) || (error.status !== 429 && error.status !== 503)) throw error;
        pause = error.retryAfterMs === undefined ? pause : Math.max(50, error.retryAfterMs);
      } catch (broken) {
        if (!(broken instanceof Lost)) throw broken;
        error = new ConnectionFailed(`the connection to ${this.url} failed: ${broken.message}; start core-api, or correct the address`);
        if (!repeat) throw error;
        if (performance.now() - begun > 60_000) tries = 1; // Node.js and proxies end long requests
      }
      if (request.once || tries > this.#retries || pause > maxPause) throw error;
      await call.pause(pause);
    }
  }

  async #once(request: Request_, call: Call): Promise<Response> {
    const controller = new AbortController();
    const headers: { [name: string]: string } = { Accept: "application/json, application/problem+json", ...request.headers };
    if (this.#token) headers["Authorization"] = "Bearer " + this.#token;
    const init = { method: request.method, headers, redirect: "manual", credentials: "omit", signal: controller.signal } as const;
    const streamed = typeof request.body === "function" ? { body: request.body(), duplex: "half" } : { body: request.body as BodyInit };
    const wanted = this.#fetch(this.url + request.path, request.body === undefined ? init : { ...init, ...streamed });
    try {
      return await within(wanted, call, request.silence ?? defaultTimeout);
    } catch (error) {
      controller.abort(); // else it goes on behind our back
      throw error;
    }
  }

  /** Reads the error of an answer that is none of success. */
  async #problem(response: Response, call: Call): Promise<SecboxError> {
    if (response.type === "opaqueredirect" || (response.status >= 300 && response.status < 400)) {
      await response.body?.cancel();
      return new UnexpectedAnswer(`${this.url} redirects, which is not followed: give the address to which it leads`);
    }
    const is = media(response) === "application/problem+json";
    const text = new TextDecoder().decode(is ? await bytes(response, call, defaultTimeout, maxProblem) : undefined);
    if (!is) await response.body?.cancel();
    let problem: Partial<Schemas["ProblemDocument"]> | null = null;
    try {
      problem = JSON.parse(text) as Partial<Schemas["ProblemDocument"]> | null;
    } catch {
      // said below
    }
    if (typeof problem?.code !== "string") {
      return new UnexpectedAnswer(`${this.url} answers with status ${response.status}, but not as core-api does; check the address`);
    }
    const seconds = response.headers.get("Retry-After") ?? "";
    return new ApiError({ ...problem, status: response.status }, /^\d{1,9}$/.test(seconds) ? Number(seconds) * 1000 : undefined);
  }
}

/** The path of an artifact's content, for Secbox.read and Secbox.download. */
export const artifactPath = (execId: string, path: string) => segments("sandbox", "execs", execId, "artifacts", ...path.split("/"));

/** A container that stays, in which execs share files, processes and the state of contexts. */
export class Session {
  readonly files: Files;
  constructor(
    readonly client: Secbox,
    readonly session_id: string,
  ) {
    this.files = new Files(client, segments("sandbox", "sessions", session_id, "files"));
  }

  /** Runs a job in the session. */
  run(job: Job, options: KeyOptions = {}): Promise<Result> {
    return this.client.run({ ...job, session_id: this.session_id }, options);
  }
  /** Runs code in an interpreter that keeps its state; results has the values that it shows. */
  cell(code: string, options: KeyOptions & { context?: string } = {}): Promise<Result> {
    return this.run({ exec: { code, context: options.context ?? "main" } }, options);
  }
  /** Starts a job in the session; with background it may run as long as the session. */
  submit(job: Job, options: KeyOptions = {}): Promise<Record> {
    return this.client.submit({ ...job, session_id: this.session_id }, options);
  }
  /** Runs a job in the session, and yields its events as they come. */
  stream(job: Job, options: KeyOptions & { stdin?: Body } = {}): AsyncGenerator<ExecEvent, void, void> {
    return this.client.stream({ ...job, session_id: this.session_id }, options);
  }
  async info(): Promise<SessionInfo> {
    return (await this.client.request("GET", segments("sandbox", "sessions", this.session_id))) as SessionInfo;
  }
  /** Sets when the session ends, from now on. */
  async extend(times: Schemas["SessionExtension"]): Promise<SessionInfo> {
    const path = segments("sandbox", "sessions", this.session_id, "extend");
    return (await this.client.request("POST", path, JSON.stringify(times), { repeat: true })) as SessionInfo;
  }
  /** Makes a link to a port on which a server listens; it expires after an hour, or ttl_seconds. */
  async linkPort(port: number, options: { ttl_seconds?: number } = {}): Promise<Schemas["PortLink"]> {
    const path = segments("sandbox", "sessions", this.session_id, "ports", String(port), "link");
    return (await this.client.request("POST", path, JSON.stringify(options))) as Schemas["PortLink"];
  }
  async endContext(name: string): Promise<void> {
    await this.client.request("DELETE", segments("sandbox", "sessions", this.session_id, "contexts", name));
  }
  /** Ends the session and what runs in it. It is no error that it has ended already. */
  async end(): Promise<void> {
    try {
      await this.client.request("DELETE", segments("sandbox", "sessions", this.session_id), undefined, { repeat: true });
    } catch (error) {
      if (!(error instanceof ApiError && error.code === "session_ended")) throw error;
    }
  }
}

/** The files of a session or a project. Paths are absolute, as jobs see them. */
export class Files {
  constructor(
    readonly client: Secbox,
    readonly base: string,
  ) {}

  /** The path of a file's content, for Secbox.read and Secbox.download. */
  contentPath(path: string): string {
    return this.base + "/content" + query({ path });
  }
  /** Yields what is in a directory. */
  async *list(path: string): AsyncGenerator<FileEntry, void, void> {
    for (let cursor = ""; ; ) {
      const page = (await this.client.request("GET", this.base + query({ path, cursor }))) as Schemas["FileListing"];
      yield* page.entries;
      if (!page.next_cursor || page.next_cursor === cursor) return;
      cursor = page.next_cursor;
    }
  }
  read(path: string, options: Options & { maxBytes?: number } = {}): Promise<Uint8Array> {
    return this.client.read(this.contentPath(path), options);
  }
  /** Writes a file of up to 500 MiB, and makes the directories above it. */
  async write(path: string, content: Body, options: Options = {}): Promise<void> {
    await this.client.request("PUT", this.contentPath(path), content, { ...options, type: "application/octet-stream" });
  }
  async makeDirectory(path: string): Promise<void> {
    await this.client.request("PUT", this.base + "/directory" + query({ path }));
  }
  async move(path: string, to: string, options: { replace?: boolean } = {}): Promise<void> {
    await this.client.request("POST", this.base + "/move", JSON.stringify({ path, to, replace: options.replace ?? false }));
  }
  async remove(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    await this.client.request("DELETE", this.base + query({ path, recursive: options.recursive }));
  }
}

// Events

async function* serverSentEvents(
  body: AsyncIterable<Uint8Array>,
): AsyncGenerator<{ type: string; id: string; data: string }, void, void> {
  const decoder = new TextDecoder();
  let rest = "";
  let searched = 0;
  let event = { type: "", id: "", data: "" };
  for await (const piece of body) {
    rest += decoder.decode(piece, { stream: true });
    if (rest.length + event.data.length > maxAnswer) {
      throw new UnexpectedAnswer(`an event has more than ${maxAnswer} bytes; check the address`);
    }
    let begin = 0;
    for (let end = rest.indexOf("\n", searched); end >= 0; end = rest.indexOf("\n", begin)) {
      const line = rest.slice(begin, end).replace(/\r$/, "");
      begin = end + 1;
      const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line)!;
      if (line === "") {
        if (event.data) yield event;
        event = { type: "", id: "", data: "" };
      } else if (name === "event") event.type = value!;
      else if (name === "id") event.id = value!;
      else if (name === "data") event.data += (event.data && "\n") + value;
    }
    rest = rest.slice(begin);
    searched = rest.length;
  }
}

function toEvent(type: string, id: string, data: string): ExecEvent | undefined {
  if (!["status", "stdout", "stderr", "end"].includes(type)) return undefined; // of a newer server
  const value = parsed(data);
  if (typeof value !== "object" || value === null) throw new UnexpectedAnswer("an event of core-api has no object; check the address");
  if (type === "status" || type === "end") return { type, id, state: value as State };
  const piece = value as Schemas["ExecOutput"];
  const content = piece.encoding === "base64" ? fromBase64(piece.data) : new TextEncoder().encode(piece.data);
  if (content === undefined) {
    throw new UnexpectedAnswer("an event of core-api has output that cannot be decoded; check the server's version");
  }
  return { type: type as "stdout" | "stderr", id, data: content, text: new TextDecoder().decode(content) };
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  } catch {
    return undefined;
  }
}

/** An input for Job.inputs of any bytes. In Node.js, inputFile reads one from a file. */
export function input(path: string, content: Uint8Array | string): InputFile {
  if (typeof content === "string") return { path, content };
  try {
    return { path, content: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content) };
  } catch {
    let text = "";
    for (let at = 0; at < content.length; at += 1 << 15) text += String.fromCharCode(...content.subarray(at, at + (1 << 15)));
    return { path, content: btoa(text), encoding: "base64" };
  }
}

// Webhooks

export interface WebhookEvent {
  /** The same for each try: ignore one that was seen before. */
  id: string;
  type: string;
  timestamp: string;
  data: State;
}

/**
 * Returns the event of a webhook if core-api has signed it with this secret, or with one of these, and not long ago.
 * It throws WebhookError otherwise: answer 401 then. body is the body as it came.
 */
export async function verifyWebhook(
  secret: string | string[],
  headers: Headers | { [name: string]: string | string[] | undefined },
  body: Uint8Array | string,
  options: { toleranceSeconds?: number; now?: Date } = {},
): Promise<WebhookEvent> {
  const single = Object.entries(headers).filter((one): one is [string, string] => typeof one[1] === "string");
  const given = headers instanceof Headers ? headers : new Headers(single);
  const [id, timestamp, signatures] = [given.get("webhook-id"), given.get("webhook-timestamp") ?? "", given.get("webhook-signature") ?? ""];
  if (!id || !/^\d{1,12}$/.test(timestamp)) {
    throw new WebhookError("the request has no webhook-id or no webhook-timestamp: it is no webhook of core-api");
  }
  const now = (options.now ?? new Date()).getTime() / 1000;
  if (!(Math.abs(now - Number(timestamp)) <= (options.toleranceSeconds ?? 300))) {
    throw new WebhookError("the webhook is too old or of the future: it is sent again, or check the clock");
  }
  const content = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const head = new TextEncoder().encode(`${id}.${timestamp}.`);
  const message = new Uint8Array(head.length + content.length);
  message.set(head);
  message.set(content, head.length);
  const found = signatures.split(" ").slice(0, 16).flatMap((one) => (one.startsWith("v1,") ? [fromBase64(one.slice(3))] : []));
  let signed = false;
  for (const one of typeof secret === "string" ? [secret] : secret) {
    const raw = fromBase64(one.replace(/^whsec_/, ""));
    if (raw === undefined) throw new TypeError("the secret of the webhook must be whsec_ and base64, as core-api has shown it");
    const key = await crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
    for (const mac of found) if (mac !== undefined && (await crypto.subtle.verify("HMAC", key, mac, message))) signed = true;
  }
  if (!signed) {
    throw new WebhookError("the webhook has no signature of this secret: core-api did not send it, or the token has another secret");
  }
  const event = parsed(new TextDecoder().decode(content)) as Partial<WebhookEvent> | null;
  if (typeof event?.type !== "string" || typeof event.data !== "object") {
    throw new WebhookError("the webhook is signed, but no event of core-api that this version knows");
  }
  return { id, type: event.type, timestamp: String(event.timestamp), data: event.data };
}
