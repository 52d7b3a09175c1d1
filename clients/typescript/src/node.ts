// What needs Node.js: local files, and the proxies of the environment.

import { createHash, randomBytes, webcrypto } from "node:crypto";
import { constants, createReadStream } from "node:fs";
import { lstat, mkdir, open, readFile, readdir, realpath, rename, stat, unlink } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { Readable } from "node:stream";
import { Agent, fetch as undiciFetch, ProxyAgent } from "undici";
import { artifactPath, input, isLoopback, SecboxError, UnexpectedAnswer } from "./index.js";
import type { Artifact, Files, InputFile, Options, Secbox } from "./index.js";

globalThis.crypto ??= webcrypto as Crypto; // Debian 12 has Node.js 18

/** The name of an artifact leads out of the directory, or cannot be a name on this system. */
export class UnsafePath extends SecboxError {}

/** Returns a fetch for Secbox that uses HTTP_PROXY, HTTPS_PROXY and NO_PROXY, but not for loopback, and waits as long as an exec runs. */
export function nodeFetch(): (url: string, init: RequestInit) => Promise<Response> {
  const bounds = { headersTimeout: 0, bodyTimeout: 0 };
  const direct = new Agent(bounds);
  const proxies = new Map<string, ProxyAgent>();
  const agentFor = (url: string) => {
    const proxy = proxyFor(new URL(url));
    if (proxy === "") return direct;
    const agent = proxies.get(proxy) ?? new ProxyAgent({ uri: proxy, ...bounds });
    proxies.set(proxy, agent);
    return agent;
  };
  return (url, init) => undiciFetch(url, { ...(init as object), dispatcher: agentFor(url) }) as unknown as Promise<Response>;
}

/** Returns the proxy that the environment names for an address; empty if there is none. */
function proxyFor({ protocol, hostname, host }: URL): string {
  const setting = (name: string) => process.env[name] ?? process.env[name.toUpperCase()] ?? "";
  const suffixes = setting("no_proxy").split(/[\s,]+/).filter(Boolean).map((one) => one.replace(/^\*?\./, ""));
  const near = suffixes.some((one) => one === "*" || [hostname, host].some((name) => name === one || name.endsWith("." + one)));
  if (isLoopback(hostname) || near) return "";
  const proxy = setting(protocol === "https:" ? "https_proxy" : "http_proxy") || setting("all_proxy");
  return proxy === "" || proxy.includes("://") ? proxy : "http://" + proxy;
}

/** Reads a local file for Job.inputs. name is its path below /workspace/inputs; the default is the file's name. */
export async function inputFile(path: string, name = basename(path)): Promise<InputFile> {
  const mode = process.platform !== "win32" && (await stat(path)).mode & 0o100 ? { mode: "0755" as const } : {};
  return { ...input(name, await readFile(path)), ...mode };
}

/** Reads the regular files of a local directory for Job.inputs, and follows no links. below is put before their paths. */
export async function inputFiles(directory: string, below = ""): Promise<InputFile[]> {
  const found: InputFile[] = [];
  const entries = (await readdir(directory, { withFileTypes: true })).sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const entry of entries) {
    const [path, name] = [join(directory, entry.name), below ? `${below}/${entry.name}` : entry.name];
    if (entry.isFile()) found.push(await inputFile(path, name));
    else if (entry.isDirectory()) found.push(...(await inputFiles(path, name)));
  }
  return found;
}

/** Divides the path of an artifact into names, each of which is safe in a directory of this system. */
export function safeParts(path: string, platform: string = process.platform): string[] {
  const parts = path.split("/");
  for (const part of parts) {
    const windows = /[\\:<>"|?*\x00-\x1f]|[. ]$/.test(part) || /^(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?$/i.test(part);
    if (["", ".", ".."].includes(part) || part.includes("\0") || (platform === "win32" && windows)) {
      throw new UnsafePath(`the artifact ${JSON.stringify(path)} cannot be saved under this name; read it with readArtifact`);
    }
  }
  return parts;
}

/**
 * Writes the artifacts of an exec into a directory, which is made if it is missing, and checks their digests.
 * A name that would leave the directory, by .. or by a link, throws UnsafePath.
 */
export async function saveArtifacts(
  client: Secbox,
  execId: string,
  directory: string,
  options: Options & { maxBytes?: number } = {},
): Promise<string[]> {
  const found = await client.artifacts(execId, options);
  const names = found.map((one) => safeParts(one.path));
  if (process.platform === "win32" || process.platform === "darwin") {
    const same = new Set(found.map((one) => one.path.normalize("NFC").toLowerCase())); // their file systems do not tell these names apart
    if (same.size < found.length) throw new UnsafePath("two artifacts have names that are one file here; read them with readArtifact");
  }
  if (!found.every((one) => Number.isSafeInteger(one.size) && one.size >= 0)) { // else no bound holds
    throw new UnexpectedAnswer("an artifact has a size that is no number of bytes; check the address and the server's version");
  }
  const most = options.maxBytes ?? 1 << 30;
  if (found.reduce((sum, one) => sum + one.size, 0) > most) {
    throw new SecboxError(`the artifacts have more than ${most} bytes; raise maxBytes, or read some of them with readArtifact`);
  }
  await mkdir(directory, { recursive: true });
  const saved: string[] = [];
  for (const [at, one] of found.entries()) {
    const save = (pieces: AsyncIterable<Uint8Array>) => write(directory, names[at]!, checked(one, pieces));
    saved.push(await client.download(artifactPath(execId, one.path), save, options));
  }
  return saved;
}

async function* checked(artifact: Artifact, pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
  const digest = createHash("sha256");
  let size = 0;
  for await (const piece of pieces) {
    size += piece.length;
    if (size > artifact.size) break;
    digest.update(piece);
    yield piece;
  }
  if (size !== artifact.size || digest.digest("hex") !== artifact.sha256) {
    throw new UnexpectedAnswer(`the artifact ${JSON.stringify(artifact.path)} is not the one of the list`);
  }
}

/** Writes a file under another name, and then renames it. If pieces fails, nothing is left. */
async function write(directory: string, parts: string[], pieces: AsyncIterable<Uint8Array>): Promise<string> {
  let folder = await realpath(directory);
  for (const part of parts.slice(0, -1)) {
    folder = join(folder, part);
    await mkdir(folder).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw error;
    });
    if (!(await lstat(folder)).isDirectory()) throw new UnsafePath(`${folder} is no directory: remove it, or choose another directory`);
  }
  const temporary = join(folder, ".secbox-" + randomBytes(8).toString("hex"));
  const file = await open(temporary, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | (constants.O_NOFOLLOW ?? 0), 0o644);
  try {
    try {
      for await (const piece of pieces) await file.writeFile(piece);
    } finally {
      await file.close();
    }
    await rename(temporary, join(folder, parts.at(-1)!));
  } catch (error) {
    await unlink(temporary).catch(() => {});
    throw error;
  }
  return resolve(directory, ...parts);
}

/** Writes a local file of up to 500 MiB to a session or a project, piece by piece. */
export async function uploadFile(files: Files, local: string, path: string, options: Options = {}): Promise<void> {
  await stat(local); // an error of the file is no error of the connection
  await files.write(path, () => Readable.toWeb(createReadStream(local)) as ReadableStream<Uint8Array>, options);
}

/** Writes a file of a session or a project to a local path, piece by piece. */
export async function downloadFile(files: Files, path: string, local: string, options: Options = {}): Promise<string> {
  const at = resolve(local);
  return files.client.download(files.contentPath(path), (pieces) => write(resolve(at, ".."), [basename(at)], pieces), options);
}
