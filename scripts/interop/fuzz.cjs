// Requests that are made from core-api's contract, of a fixed seed: right ones, and ones with one thing wrong. No answer may be a failure of the server's,
// and each must be one that the contract describes, with a body of its schema.
//
// Environment: NODE_PATH, URL (of core-api); SEED (1) and ROUNDS (6) for each operation.

const Ajv = require("ajv/dist/2020").default;
const { end, get, run, URL: server } = require("./lib.cjs");

const rounds = Number(process.env.ROUNDS ?? 6);
let state = Number(process.env.SEED ?? 1);

// random returns an integer below n: mulberry32.
function random(n) {
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) % n;
}
const pick = (list) => list[random(list.length)];

const texts = ["", " ", "a", "ä\u0301", "../x", "/etc/passwd", "a\u0000b", "\u202e", "'; --", "%2e%2e", "x".repeat(5000), "null", "-1", "NaN"];
const numbers = [0, -1, 1, 1.5, 2 ** 31, 2 ** 53, -(2 ** 63), 1e300];
const odd = () => pick([() => pick(texts), () => pick(numbers), () => null, () => true, () => [], () => ({}), () => [[]], () => ({ "": 1 })])();

let contract;
const resolve = (schema) => (schema?.$ref ? resolve(schema.$ref.slice(2).split("/").reduce((at, name) => at[name], contract)) : (schema ?? {}));

function make(schema, depth = 0) {
  const s = resolve(schema);
  if ("example" in s && random(3) > 0) return s.example;
  if (s.examples?.length && random(3) > 0) return pick(s.examples);
  if ("const" in s) return s.const;
  if (s.enum) return pick(s.enum);
  if (s.oneOf ?? s.anyOf) return make(pick(s.oneOf ?? s.anyOf), depth);
  if (s.allOf) return Object.assign({}, ...s.allOf.map((one) => make(one, depth)));
  switch (Array.isArray(s.type) ? pick(s.type) : s.type) {
    case "integer":
    case "number":
      return Math.min(s.maximum ?? Infinity, (s.minimum ?? 0) + random(100));
    case "boolean":
      return random(2) === 0;
    case "string":
      return random(4) === 0 ? pick(texts) : "text" + random(10);
    case "array":
      return depth > 4 ? [] : Array.from({ length: random(3) }, () => make(s.items, depth + 1));
    case "object": {
      const object = {};
      for (const [name, one] of Object.entries(s.properties ?? {})) {
        if (s.required?.includes(name) || random(3) === 0) object[name] = make(one, depth + 1);
      }
      return object;
    }
  }
  return depth > 4 ? null : odd();
}

// spoil changes one thing in a value.
function spoil(value) {
  if (value === null || typeof value !== "object" || random(4) === 0) return odd();
  const names = Object.keys(value);
  if (names.length === 0 || random(5) === 0) return Array.isArray(value) ? [...value, odd()] : { ...value, unknown: odd() };
  const name = pick(names);
  const copy = Array.isArray(value) ? [...value] : { ...value };
  if (random(5) === 0 && !Array.isArray(copy)) delete copy[name];
  else copy[name] = spoil(copy[name]);
  return copy;
}

function requestOf(route, method, item, operation, known) {
  const url = new URL(server);
  const headers = {};
  let address = route;
  for (const parameter of [...(item.parameters ?? []), ...(operation.parameters ?? [])].map(resolve)) {
    let value = parameter.example !== undefined && random(3) > 0 ? parameter.example : make(parameter.schema);
    if (random(6) === 0) value = odd();
    if (parameter.name === "exec_id" && random(2) === 0) value = known;
    const text = typeof value === "object" ? JSON.stringify(value) : String(value);
    if (parameter.in === "path") address = address.replace(`{${parameter.name}}`, encodeURIComponent(text) || "-");
    else if (parameter.in === "query" && (parameter.required || random(3) === 0)) url.searchParams.set(parameter.name, text);
    else if (parameter.in === "header" && /^[ -~]*$/.test(text) && (parameter.required || random(4) === 0)) headers[parameter.name] = text;
  }
  let body;
  const content = resolve(operation.requestBody).content;
  if (content) {
    const type = pick(Object.keys(content));
    headers["Content-Type"] = type;
    if (type.includes("json")) {
      let value = make(content[type].schema);
      if (random(2) === 0) value = spoil(value);
      body = JSON.stringify(value);
      if (random(20) === 0) body = body.slice(0, -1);
    } else if (type === "multipart/form-data") {
      delete headers["Content-Type"];
      body = new FormData();
      for (const name of Object.keys(resolve(content[type].schema).properties ?? {})) body.set(name, new Blob([pick(texts)]), "x.zip");
    } else body = pick(texts);
  }
  return { method, address: address + url.search, headers, body };
}

async function main() {
  contract = await get("/openapi.json");
  const { exec_id: known } = await run({ project_id: "interop", exec: { script: "echo known" } });
  const ajv = new Ajv({ strict: false, logger: false, validateFormats: false });
  ajv.addSchema(contract, "contract");
  const pointer = (...parts) => "contract#/" + parts.map((part) => encodeURIComponent(part.replaceAll("~", "~0").replaceAll("/", "~1"))).join("/");
  const wrong = [];
  let sent = 0;
  const seen = {};
  for (const [route, item] of Object.entries(contract.paths)) {
    if (route === "/mcp" || route.startsWith("/ws")) continue; // other protocols
    for (const [method, operation] of Object.entries(item)) {
      if (!operation.operationId) continue;
      for (let round = 0; round < rounds; round++) {
        const request = requestOf(route, method, item, operation, known);
        const what = `${method.toUpperCase()} ${request.address.slice(0, 200)} ${typeof request.body === "string" ? request.body.slice(0, 200) : ""}`;
        const stop = new AbortController();
        sent++;
        let answer;
        try {
          answer = await fetch(server + request.address, { method, headers: request.headers, body: request.body, signal: stop.signal, redirect: "manual" });
        } catch (error) {
          wrong.push(`${what}: ${error.cause ?? error}`);
          continue;
        }
        seen[answer.status] = (seen[answer.status] ?? 0) + 1;
        const described = operation.responses[answer.status];
        const type = (answer.headers.get("content-type") ?? "").split(";")[0];
        const content = resolve(described).content;
        if (type === "text/event-stream") {
          stop.abort(); // it may last
          if (!content?.[type]) wrong.push(`${what}: ${answer.status} ${type} is not in the contract`);
          continue;
        }
        const body = await answer.text();
        if (answer.status >= 500 && answer.status !== 503 && answer.status !== 507) wrong.push(`${what}: ${answer.status} ${body}`);
        // A segment that a parameter cannot have makes another route.
        else if (!described) (answer.status === 404 || answer.status === 405) && body.includes("route") || wrong.push(`${what}: ${answer.status} is not in the contract: ${body.slice(0, 200)}`);
        else if (content && !content[type]) wrong.push(`${what}: ${answer.status} ${type} is not in the contract`);
        else if (/[/+]json$/.test(type) && content) {
          const at = described.$ref ? described.$ref.slice(2).split("/") : ["paths", route, method, "responses", String(answer.status)];
          const check = ajv.getSchema(pointer(...at, "content", type, "schema"));
          if (!check(JSON.parse(body))) wrong.push(`${what}: ${answer.status}: ${ajv.errorsText(check.errors)}`);
        }
      }
    }
  }
  if (process.env.VERBOSE) console.error(sent, "requests", JSON.stringify(seen));
  if (wrong.length > 0) throw new Error([`${wrong.length} of ${sent} answers are wrong:`, ...(process.env.VERBOSE ? wrong : wrong.slice(0, 2))].join("\n"));
}

end(main());
