"""A client of secbox in one file: Python 3.10 or newer, the standard library only.

    client = secbox.Client("http://127.0.0.1:8003")
    print(client.run(secbox.Job(script="echo hello", project_id="demo")).check().stdout)

Client is synchronous and may be used by several threads. AsyncClient has the same methods for
asyncio. Requests are repeated when that is safe: each exec gets an Idempotency-Key, so a repeated
request never runs a command twice. README.md has an example of each call.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextvars
import dataclasses
import functools
import hashlib
import hmac
import http.client
import io
import json
import os
import random
import re
import secrets
import selectors
import socket
import ssl
import stat
import sys
import threading
import time
import unicodedata
import urllib.parse
import urllib.request
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, Generic, ParamSpec, TypeAlias, TypedDict, TypeVar, cast

__version__ = "0.2.0"

# Bounds of what a server may send, in bytes.
MAX_ANSWER = 64 << 20  # a JSON answer, or one event
MAX_PROBLEM = 1 << 20  # the document of an error

CONNECT_TIMEOUT = 10.0  # seconds until a connection is made
STREAM_SILENCE = 35.0  # seconds: a stream has a comment every 10 seconds
MAX_PAUSE = 60.0  # seconds: a longer Retry-After is an error at once
MAX_WAIT_MS = 60_000  # of one request to …/wait
WAIT = 3600.0  # seconds that run and wait take at most, unless the caller says otherwise
STDIN_SILENCE = 24 * WAIT  # seconds: a command may not read for long

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
O = TypeVar("O", bound="Outcome")
Body: TypeAlias = "bytes | Callable[[], BinaryIO] | Iterator[bytes] | None"  # a function opens the file for each try
Stdin: TypeAlias = "bytes | BinaryIO | Iterable[bytes]"


# Errors


class SecboxError(Exception):
    """Any error of this module. No message has the token."""


class ApiError(SecboxError):
    """The server refused a request. detail has the remedy; switch on code, not on the text."""

    def __init__(self, problem: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.status = int(problem["status"])
        self.code = str(problem["code"])
        self.detail = str(problem.get("detail", ""))
        self.exec_id = str(problem.get("exec_id", ""))  # the record of the refusal, if any
        self.errors: list[dict[str, str]] = problem.get("errors", [])  # the fields at fault
        self.retry_after = retry_after  # seconds
        super().__init__(f"{self.detail} ({self.code}, {self.status})")


class BadRequest(ApiError):
    """The request is wrong: a field, a size, an image, an input of a skill."""


class Unauthorized(ApiError):
    """The token is missing, unknown or revoked."""


class Forbidden(ApiError):
    """The token does not allow it."""


class PolicyDenied(Forbidden):
    """The policy does not allow it; errors has each field."""


class NotFound(ApiError):
    """It does not exist, or was removed."""


class Conflict(ApiError):
    """The state does not allow it: the exec has ended, an input is in use, another request had the key."""


class Busy(ApiError):
    """The server has too much to do, or a part of it does not answer: repeat it later."""


class ServerError(ApiError):
    """The server failed; its log says why."""


class ConnectionFailed(SecboxError):
    """There was no answer, or it was cut off."""


class UnexpectedAnswer(SecboxError):
    """The answer is not one of core-api: a redirect, another format, too many bytes."""


class WaitTimeout(SecboxError, TimeoutError):
    """The caller's time is over. The exec goes on."""


class ExecFailed(SecboxError):
    """An exec did not succeed; see result."""

    def __init__(self, result: Outcome) -> None:
        self.result = result
        because = f" ({result.error_reason})" if result.error_reason else ""
        said = result.detail or (result.stderr.strip()[-500:] if isinstance(result, Result) else "")
        how = f"exec {result.exec_id} ended as {result.status}{because}, exit code {result.exit_code}"
        super().__init__(how + (f": {said}" if said else ""))


class UnsafePath(SecboxError):
    """The name of an artifact leads out of the directory, or cannot be a name on this system."""


class WebhookError(SecboxError, ValueError):
    """A webhook that core-api did not send, or not now."""


_KINDS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: NotFound,
    412: Conflict,
    429: Busy,
    503: Busy,
}


def _refusal(problem: Any) -> ApiError:
    """Makes the error of an item of a batch."""
    known = {"status": _field(problem, "status", int), "code": _field(problem, "code", str)}
    return _api_error(problem | known)


def _api_error(problem: Mapping[str, Any], retry_after: float | None = None) -> ApiError:
    status = problem["status"]
    if problem["code"] == "policy_denied":
        return PolicyDenied(problem, retry_after)
    return _KINDS.get(status, BadRequest if status < 500 else ServerError)(problem, retry_after)


# What requests and answers have. The names are those of the contract, /openapi.yaml.


class InputFile(TypedDict, total=False):
    """A file for /workspace/inputs; see input_file and input_files."""

    path: str
    content: str
    encoding: str
    mode: str


Policy = TypedDict(
    "Policy",
    {
        "timeout_ms": int,
        "kill_grace_ms": int,
        "memory_mb": int,
        "cpu_cores": float,
        "pids": int,
        "tmp_mb": int,
        "shm_mb": int,
        "max_stdout_bytes": int,
        "max_stderr_bytes": int,
        "max_artifacts_bytes_total": int,
        "image": str,
        "net.mode": str,
        "net.allow": "list[str]",
        "net.max_bytes": int,
        "net.connections": int,
        "net.max_connections": int,
        "net.idle_ms": int,
        "net.credentials": "list[dict[str, str]]",  # secret, host, and one of header, basic and query
        "fs.read": "list[str]",
        "fs.write": "list[str]",
    },
    total=False,
)


@dataclass(kw_only=True)
class Job:
    """A command to run once: a script of bash, or code of Python."""

    script: str = ""
    code: str = ""
    project_id: str = ""
    cwd: str = ""
    env: dict[str, str] = field(default_factory=dict, repr=False)
    stdin: str = field(default="", repr=False)
    context: str = ""  # of a session: an interpreter that stays
    inputs: Sequence[InputFile] = field(default=(), repr=False)
    policy: Policy = field(default_factory=lambda: Policy())
    image: str = ""
    session_id: str = ""
    background: bool = False  # of a session; with submit
    task_id: str = ""
    conversation_id: str = ""
    user_id: str = ""
    skill_id: str = ""
    callback_url: str = ""
    priority: str = ""  # with submit and batch
    queue_timeout_ms: int = 0  # with submit and batch

    def body(self) -> dict[str, Any]:
        """Returns the request's body. What is empty is left out."""
        command = {name: getattr(self, name) for name in ("script", "code", "cwd", "env", "stdin", "context")}
        request: dict[str, Any] = {"exec": {name: value for name, value in command.items() if value}}
        rest = {one.name for one in dataclasses.fields(self)} - {*command, "policy", "task_id"}
        request |= {name: getattr(self, name) for name in sorted(rest) if getattr(self, name)}
        if self.policy:
            request["policy_overrides"] = self.policy
        if self.task_id:
            request["task_ref"] = {"task_id": self.task_id}
        return request


@dataclass(kw_only=True)
class Artifact:
    path: str
    size: int
    sha256: str


@dataclass(kw_only=True)
class Outcome:
    """How an exec is, or how it ended. raw is the server's whole object, with what a newer server adds."""

    exec_id: str
    project_id: str
    status: str
    exit_code: int | None
    error_reason: str
    detail: str
    started_at: str | None
    ended_at: str | None
    duration_ms: int
    stdout_bytes: int
    stderr_bytes: int
    stdout_truncated: bool
    stderr_truncated: bool
    artifacts: list[Artifact] = field(default_factory=list)
    raw: dict[str, Any] = field(repr=False)

    @property
    def ended(self) -> bool:
        return self.status not in ("queued", "running")

    @property
    def ok(self) -> bool:
        return self.status == "succeeded"

    def check(self: O) -> O:
        """Raises ExecFailed unless the exec has succeeded."""
        if not self.ok:
            raise ExecFailed(self)
        return self


@dataclass(kw_only=True)
class State(Outcome):
    """The state of an exec: in events, records and webhooks. The rest of a record is in raw."""

    task_id: str
    conversation_id: str
    agent_id: str
    user_id: str
    skill_id: str
    requested_by: str
    trace_id: str
    created_at: str


@dataclass(kw_only=True)
class Result(Outcome):
    """How an exec ended, with the first 64 KiB of each output."""

    stdout: str
    stderr: str
    stdout_inline_truncated: bool
    stderr_inline_truncated: bool
    results: list[dict[str, Any]] = field(default_factory=list)  # of cells: values by media type


@dataclass(kw_only=True)
class Event:
    """A piece of a stream: status and end have a state, stdout and stderr have data."""

    type: str
    id: str
    data: bytes = b""
    state: State | None = None

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(kw_only=True)
class Invoked:
    """How the exec of a skill ended, and the outputs of the skill; None if it left no valid ones."""

    exec: Result
    outputs: dict[str, Any] | None
    raw: dict[str, Any] = field(repr=False)


@dataclass(kw_only=True)
class BatchItem:
    """What became of one job of a batch: an exec that waits, or an error."""

    exec_id: str = ""
    status: str = ""
    replayed: bool = False
    error: ApiError | None = None


@dataclass(kw_only=True)
class TaskState:
    """The execs of a task: how many there are, and how many of them have each status."""

    task_id: str
    ended: bool
    total: int
    unended: int
    statuses: dict[str, int]
    raw: dict[str, Any] = field(repr=False)


@dataclass(kw_only=True)
class SessionInfo:
    session_id: str
    name: str
    status: str
    end_reason: str
    detail: str
    project_id: str
    idle_ms: int
    ttl_ms: int
    expires_at: str | None
    idle_expires_at: str | None
    raw: dict[str, Any] = field(repr=False)


@dataclass(kw_only=True)
class PortLink:
    """A link to a port. Its URL is as good as a password until it expires."""

    url: str = field(repr=False)
    expires_at: str
    raw: dict[str, Any] = field(repr=False)


@dataclass(kw_only=True)
class FileInfo:
    name: str
    type: str
    size: int
    mode: str
    modified_at: str | None
    raw: dict[str, Any] = field(repr=False)


@dataclass(kw_only=True)
class WebhookEvent:
    id: str  # the same for each try
    type: str
    timestamp: str
    state: State


def _load(kind: type[T], raw: Any) -> T:
    """Makes a dataclass of an answer, with what it knows of it."""
    if not isinstance(raw, dict):
        raise UnexpectedAnswer(f"the answer of core-api has no object for {kind.__name__}; check the address and the server's version")
    names = {one.name for one in dataclasses.fields(cast(Any, kind))}
    values: dict[str, Any] = {name: raw[name] for name in names if name in raw} | ({"raw": raw} if "raw" in names else {})
    try:
        if "artifacts" in values:
            values["artifacts"] = [_artifact(one) for one in values["artifacts"] or []]
        return kind(**values)
    except TypeError as missing:
        raise UnexpectedAnswer(f"the answer of core-api is incomplete: {missing}; check the server's version") from None


def _artifact(raw: Any) -> Artifact:
    """Makes an Artifact, whose size may be counted on."""
    if _field(raw, "size", int) < 0:
        raise UnexpectedAnswer("an artifact has a size below zero; check the address and the server's version")
    return Artifact(path=_field(raw, "path", str), size=raw["size"], sha256=_field(raw, "sha256", str))


def _field(raw: Any, name: str, kind: type[T]) -> T:
    value = raw.get(name) if isinstance(raw, dict) else None
    if not isinstance(value, kind):
        raise UnexpectedAnswer(f"the answer of core-api lacks {name}; check the address and the server's version")
    return value


# Local files


def input_file(path: str | os.PathLike[str], name: str = "") -> InputFile:
    """Reads a local file for Job.inputs. name is its path below /workspace/inputs; the default is the file's name."""
    path = Path(path)
    content = path.read_bytes()
    file = InputFile(path=name or path.name)
    try:
        file["content"] = content.decode("utf-8")
    except UnicodeDecodeError:
        file["content"], file["encoding"] = base64.b64encode(content).decode("ascii"), "base64"
    if os.name != "nt" and path.stat().st_mode & stat.S_IXUSR:
        file["mode"] = "0755"
    return file


def input_files(directory: str | os.PathLike[str], below: str = "") -> list[InputFile]:
    """Reads the regular files of a local directory for Job.inputs, and follows no links. below is put before their paths."""
    found = []
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for path in (Path(folder, name) for name in sorted(names)):
            if stat.S_ISREG(path.lstat().st_mode):
                found.append(input_file(path, "/".join(filter(None, (below, path.relative_to(directory).as_posix())))))
    return found


_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?$")


def _parts(path: str) -> list[str]:
    """Divides the path of an artifact into names, each of which is safe in a directory of this system."""
    parts = path.split("/")
    for part in parts:
        bad = part in ("", ".", "..") or "\0" in part
        if os.name == "nt":
            bad = bad or bool(re.search(r'[\\:<>"|?*\x00-\x1f]|[. ]$', part)) or bool(_RESERVED.match(part))
        if bad:
            raise UnsafePath(f"the artifact {path!r} cannot be saved under this name; read it with read_artifact")
    return parts


class _Folder:
    """A directory to write into. Links in it are never followed, so nothing is written outside."""

    by_handle = {os.open, os.mkdir, os.rename, os.unlink} <= os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    def write(self, parts: Sequence[str], pieces: Iterable[bytes]) -> Path:
        """Writes a file under another name, and then renames it. If pieces raises an error, nothing is left."""
        temporary, handle = f".secbox-{secrets.token_hex(8)}", -1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        with self._parent(parts) as (folder, fd):
            at: dict[str, int] = {} if fd is None else {"dir_fd": fd}
            before = folder if fd is None else Path()
            try:
                handle = os.open(before / temporary, flags, 0o644, **at)
                with os.fdopen(handle, "wb") as file:
                    for piece in pieces:
                        file.write(piece)
                if fd is None:
                    os.replace(before / temporary, before / parts[-1])
                else:
                    os.rename(temporary, parts[-1], src_dir_fd=fd, dst_dir_fd=fd)
            except BaseException:
                with suppress(OSError):
                    os.unlink(before / temporary, **at)
                raise
        return self.path.joinpath(*parts)

    @contextmanager
    def _parent(self, parts: Sequence[str]) -> Iterator[tuple[Path, int | None]]:
        folder = self.path.joinpath(*parts[:-1])
        if not self.by_handle:  # Windows
            folder.mkdir(parents=True, exist_ok=True)
            if not folder.resolve().is_relative_to(self.path.resolve()):
                raise UnsafePath(f"a link in {self.path} leads out of it: remove it, or choose another directory")
            yield folder, None
            return
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in parts[:-1]:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
                try:
                    inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                except OSError as error:
                    raise UnsafePath(f"{part} in {self.path} is no directory: remove it, or choose another directory") from error
                os.close(fd)
                fd = inner
            yield folder, fd
        finally:
            os.close(fd)


# HTTP


class _Abort:
    """Ends a call from another thread: it closes the call's connection, and its pauses end."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._socket: socket.socket | None = None

    def __call__(self) -> None:
        self._event.set()
        if self._socket is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def watch(self, sock: socket.socket | None) -> None:
        self._socket = sock
        if sock is not None:
            self.check()

    def check(self) -> None:
        if self._event.is_set():
            raise SecboxError("the call was canceled")

    def pause(self, seconds: float) -> None:
        self._event.wait(seconds)
        self.check()


_abort: contextvars.ContextVar[_Abort | None] = contextvars.ContextVar("secbox_abort", default=None)


class _Call:
    """The bounds of one call: silence is between two bytes, deadline (of time.monotonic) is for all of it."""

    def __init__(self, silence: float, wait_s: float | None = None) -> None:
        self.silence = silence
        self.deadline = None if wait_s is None else time.monotonic() + wait_s
        self.abort = _abort.get() or _Abort()

    def remaining(self) -> float:
        self.abort.check()
        if self.deadline is None:
            return self.silence
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise WaitTimeout("the time is over before core-api has answered; what was started goes on")
        return min(left, self.silence)

    def pause(self, seconds: float) -> None:
        if self.deadline is not None and time.monotonic() + seconds >= self.deadline:
            raise WaitTimeout("the time is over before the next try; what was started goes on")
        self.abort.pause(seconds)


class _Unsent(Exception):
    """The connection was not made, so the server has nothing of the request."""


class _Lost(Exception):
    """The connection broke, so nobody knows whether the server has done it."""


# What http.client raises when a connection breaks, and what _Guard does. Errors of local files are others.
_BROKEN = (_Lost, http.client.IncompleteRead, http.client.RemoteDisconnected)


class _Guard:
    """The socket of a connection, whose reads and writes keep the bounds of the present call."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.call: _Call | None = None

    def use(self, call: _Call | None) -> None:
        if self.call is not None:
            self.call.abort.watch(None)
        self.call = call
        if call is not None:
            call.abort.watch(self.sock)

    def within(self, operation: Callable[[Any], R], data: Any) -> R:
        if self.call is not None:
            self.sock.settimeout(self.call.remaining())
        try:
            return operation(data)
        except TimeoutError:
            raise _Lost("the server is silent") from None
        except (OSError, ValueError) as error:  # ValueError: it was closed by another thread
            raise _Lost(str(error)) from error

    def sendall(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        while view:
            view = view[self.within(self.sock.send, view[: 1 << 18]) :]

    def makefile(self, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self), 1 << 16)

    def close(self) -> None:
        self.sock.close()


class _Reader(io.RawIOBase):
    def __init__(self, guard: _Guard) -> None:
        self.guard = guard
        self.raw = guard.sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        return self.guard.within(cast("Callable[[Any], int]", cast(Any, self.raw).readinto), buffer)

    def close(self) -> None:
        self.raw.close()
        super().close()


def _keep_alive(sock: socket.socket) -> None:
    """Makes the system notice a server that is gone while it runs a long exec."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPALIVE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _Plain(http.client.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        _keep_alive(self.sock)
        self.sock = cast(Any, _Guard(self.sock))


class _TLS(http.client.HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        _keep_alive(self.sock)
        self.sock = cast(Any, _Guard(self.sock))


class _Answer:
    """A successful answer, whose body is read piece by piece."""

    def __init__(self, response: http.client.HTTPResponse, release: Callable[[bool], None]) -> None:
        self.response, self._release = response, release
        self.status = response.status

    def header(self, name: str) -> str:
        return self.response.headers.get(name) or ""

    def media(self) -> str:
        return self.header("Content-Type").partition(";")[0].strip()

    def close(self) -> None:
        """Gives the connection back if the whole body was read, and closes it otherwise."""
        self._release(self.response.isclosed() and not self.response.will_close)
        self.response.close()

    def pieces(self) -> Iterator[bytes]:
        while piece := self.response.read(1 << 16):
            yield piece
        if self.response.length:  # read does not tell
            raise http.client.IncompleteRead(b"", self.response.length)

    def read(self, most: int) -> bytes:
        whole = bytearray()
        for piece in self.pieces():
            whole += piece
            if len(whole) > most:
                raise UnexpectedAnswer(f"the answer has more than {most} bytes; check the address")
        return bytes(whole)

    def json(self) -> Any:
        if self.status == 204:
            return None
        if self.media() != "application/json":
            raise UnexpectedAnswer(f"the answer has the type {self.media()[:100]!r}, which core-api does not send here; check the address")
        return _json(self.read(MAX_ANSWER))


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UnexpectedAnswer("the answer is not valid JSON; check the address") from None


def _problem(answer: _Answer, place: str) -> SecboxError:
    """Reads the error of an answer that is none of success."""
    if 300 <= answer.status < 400:
        return UnexpectedAnswer(f"{place} redirects ({answer.status}), which is not followed: give the address to which it leads")
    document: Any = None
    if answer.media() == "application/problem+json":
        with suppress(UnexpectedAnswer):
            document = _json(answer.read(MAX_PROBLEM))
    if not isinstance(document, dict) or not isinstance(document.get("code"), str):
        return UnexpectedAnswer(f"{place} answers with status {answer.status}, but not as core-api does; check the address")
    seconds = answer.header("Retry-After")
    return _api_error({**document, "status": answer.status}, float(seconds) if re.fullmatch(r"[0-9]{1,9}", seconds) else None)


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host == "::1" or re.fullmatch(r"127\.[0-9]+\.[0-9]+\.[0-9]+", host) is not None


class _Http:
    """Makes requests to one server: connections that are kept, a proxy of the environment, safe repeats."""

    def __init__(self, url: str, token: str, timeout: float, retries: int, context: ssl.SSLContext | None, plain_http: bool) -> None:
        at = urllib.parse.urlsplit(url)
        if at.scheme not in ("http", "https") or not at.hostname:
            raise ValueError("the address of core-api must begin with http:// or https://")
        if at.username is not None or at.query or at.fragment:
            raise ValueError("the address of core-api must have neither a user nor a query; give the token as token=")
        if not re.fullmatch(r"[!-~]*", token):
            raise ValueError("the token has characters that no token has; check where it was read from")
        if token and at.scheme == "http" and not plain_http and not _is_loopback(at.hostname):
            raise ValueError(f"the token would go to {at.netloc} unencrypted; use https://, or plain_http=True in a private network")
        self.place, self.base, self.token = f"{at.scheme}://{at.netloc}", at.path.rstrip("/"), token
        self.timeout, self.retries = timeout, retries
        self._host, self._port, self._tls = at.hostname, at.port, at.scheme == "https"
        self._context = context or (ssl.create_default_context() if self._tls else None)
        self._idle: list[_Plain | _TLS] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _proxy(self) -> urllib.parse.SplitResult | None:
        if _is_loopback(self._host) or urllib.request.proxy_bypass(self._host):
            return None
        known = urllib.request.getproxies()
        proxy = known.get("https" if self._tls else "http") or known.get("all")
        if not proxy:
            return None
        at = urllib.parse.urlsplit(proxy if "://" in proxy else "http://" + proxy)
        if at.scheme != "http" or not at.hostname:
            raise ConnectionFailed("the proxy must begin with http://; correct HTTP_PROXY or HTTPS_PROXY, or name the host in NO_PROXY")
        return at

    def _connect(self, call: _Call, fresh: bool) -> tuple[_Plain | _TLS, dict[str, str], str]:
        """Returns a connection, and for a proxy the headers and the beginning of the address."""
        proxy, extra, before = self._proxy(), {}, ""
        if proxy is not None and proxy.username is not None:
            user = urllib.parse.unquote(proxy.username) + ":" + urllib.parse.unquote(proxy.password or "")
            extra["Proxy-Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        if proxy is not None and not self._tls:
            before = self.place
        with self._lock:
            while self._idle and not fresh:
                connection = self._idle.pop()
                with selectors.DefaultSelector() as selector:
                    selector.register(cast(Any, connection.sock).sock, selectors.EVENT_READ)
                    if not selector.select(0):
                        return connection, extra if before else {}, before
                connection.close()  # the server has ended it
        host, port = (self._host, self._port) if proxy is None else (cast(str, proxy.hostname), proxy.port or 80)
        timeout = min(CONNECT_TIMEOUT, call.remaining())
        if self._tls:
            connection = _TLS(host, port, timeout=timeout, context=self._context)
            if proxy is not None:
                connection.set_tunnel(self._host, self._port or 443, extra)
                extra = {}
        else:
            connection = _Plain(host, port, timeout=timeout)
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _Unsent(str(error)) from error
        return connection, extra, before

    def _release(self, connection: _Plain | _TLS, again: bool) -> None:
        if connection.sock is not None:
            cast(_Guard, connection.sock).use(None)
        with self._lock:
            if again and len(self._idle) < 32:
                self._idle.append(connection)
                return
        connection.close()

    def once(self, call: _Call, method: str, path: str, body: Body, headers: Mapping[str, str], fresh: bool) -> _Answer:
        """Makes one request."""
        connection, extra, before = self._connect(call, fresh)
        file: BinaryIO | None = None
        try:
            cast(_Guard, cast(Any, connection.sock)).use(call)
            all_headers = {"User-Agent": "secbox-python/" + __version__, "Accept": "application/json, application/problem+json"}
            all_headers |= {**headers, **extra}
            if self.token:
                all_headers["Authorization"] = "Bearer " + self.token
            if callable(body):
                file = body()
                all_headers["Content-Length"] = str(os.fstat(file.fileno()).st_size)
            try:
                connection.request(method, before + self.base + path, file or cast("bytes | Iterator[bytes] | None", body), all_headers)
            except _Lost:
                pass  # the server may have refused it before it has read all of the body
            return _Answer(connection.getresponse(), functools.partial(self._release, connection))
        except BaseException:
            self._release(connection, False)
            raise
        finally:
            if file is not None:
                file.close()

    def send(
        self,
        call: _Call,
        method: str,
        path: str,
        read: Callable[[_Answer], R],
        *,
        body: Body = None,
        headers: Mapping[str, str] = {},
        repeat: bool | None = None,
        once: bool = False,
    ) -> R:
        """Makes a request, and repeats it: when the server says so (429, 503), and after a broken connection if repeat is true.

        With once it is never repeated.
        """
        repeat = method in ("GET", "PUT") if repeat is None else repeat
        tries = 0
        while True:
            tries, begun = tries + 1, time.monotonic()
            pause = min(8.0, 0.25 * 2 ** min(tries, 10)) * random.uniform(0.5, 1)
            try:
                answer = self.once(call, method, path, body, headers, fresh=not repeat)
                with_body = False
                try:
                    if 200 <= answer.status < 300:
                        result = read(answer)
                        with_body = isinstance(result, _Answer)
                        return result
                    error = _problem(answer, self.place)
                finally:
                    if not with_body:
                        answer.close()
            except _Unsent as unsent:
                call.abort.check()
                error = ConnectionFailed(f"{self.place} cannot be reached: {unsent}; start core-api, or correct the address")
                if isinstance(unsent.__cause__, ssl.SSLCertVerificationError):
                    raise error from unsent.__cause__
            except _BROKEN as lost:
                call.remaining()
                error = ConnectionFailed(f"the connection to {self.place} broke: {lost}; what was asked may have been done")
                if not repeat:
                    raise error from lost
                if time.monotonic() - begun > 60:
                    tries = 1  # a proxy may end long requests
            except http.client.HTTPException as garbage:
                said = type(garbage).__name__
                raise UnexpectedAnswer(f"{self.place} does not answer as core-api does ({said}); check the address") from garbage
            if isinstance(error, ApiError) and error.status in (429, 503):
                pause = pause if error.retry_after is None else max(error.retry_after, 0.05)
            elif not isinstance(error, ConnectionFailed):
                raise error
            if once or tries > self.retries or pause > MAX_PAUSE:
                raise error
            call.pause(pause)


def _events(answer: _Answer) -> Iterator[tuple[str, str, Any]]:
    """Reads server-sent events: type, id and data."""
    kind, event_id, data, size = "", "", [], 0
    while line := answer.response.readline(MAX_ANSWER):
        size += len(line)
        if size >= MAX_ANSWER:
            raise UnexpectedAnswer(f"an event has more than {MAX_ANSWER} bytes; check the address")
        if not line.endswith(b"\n"):
            return  # cut off
        name, _, value = line.rstrip(b"\r\n").partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if name == b"event":
            kind = value.decode("ascii", "replace")
        elif name == b"id":
            event_id = value.decode("ascii", "replace")
        elif name == b"data":
            data.append(value)
        elif line in (b"\n", b"\r\n"):
            if data:
                yield kind, event_id, _json(b"\n".join(data))
            kind, event_id, data, size = "", "", [], 0


def _pieces(content: BinaryIO | Iterable[bytes]) -> Iterator[bytes]:
    """Yields what a file or pipe has, as soon as it has it."""
    read = getattr(content, "read1", None) or getattr(content, "read", None)
    if read is None:
        yield from content
        return
    while piece := read(1 << 16):
        yield piece


def _quote(*parts: str) -> str:
    return "".join("/" + urllib.parse.quote(part, safe="") for part in parts)


def _query(**values: Any) -> str:
    given = {name: value for name, value in values.items() if value not in (None, "", False)}
    return "?" + urllib.parse.urlencode({name: "true" if value is True else value for name, value in given.items()}) if given else ""


def _new_key() -> str:
    return secrets.token_hex(16)


# The client


class Client:
    """Runs commands on a core-api. It may be used by several threads at once.

    timeout is for the silence of the server while it answers, in seconds. retries is how often a
    request is repeated. plain_http allows to send the token over http:// to another machine.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8003",
        token: str = "",
        *,
        timeout: float = 60.0,
        retries: int = 5,
        ssl_context: ssl.SSLContext | None = None,
        plain_http: bool = False,
    ) -> None:
        self._http = _Http(url, token, timeout, retries, ssl_context, plain_http)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._http.place + self._http.base!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that wait for the next request."""
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str = "",
        prefer: str = "",
        repeat: bool | None = None,
        wait_s: float | None = None,
    ) -> Any:
        """Makes any request of /openapi.yaml, and returns the JSON of its answer.

        key is its Idempotency-Key, prefer its Prefer. repeat says that it may be repeated when its
        answer is lost; that is the default for GET, PUT and what has a key.
        """
        headers = {"Idempotency-Key": key, "Prefer": prefer, "Content-Type": "" if body is None else "application/json"}
        headers = {name: value for name, value in headers.items() if value}
        call = _Call(self._http.timeout if wait_s is None else wait_s, wait_s)
        data = None if body is None else json.dumps(body).encode()
        return self._http.send(call, method, path, _Answer.json, body=data, headers=headers, repeat=bool(key) or repeat)

    # Execs

    def run(self, job: Job, *, key: str = "", wait_s: float = WAIT) -> Result:
        """Runs a job and returns its result, whatever the exit code. After wait_s seconds: WaitTimeout; the exec goes on."""
        return _load(Result, self.request("POST", "/sandbox/execs", job.body(), key=key or _new_key(), wait_s=wait_s))

    def submit(self, job: Job, *, key: str = "") -> State:
        """Puts a job into the queue and returns its record. wait, follow and cancel take its exec_id."""
        return _load(State, self.request("POST", "/sandbox/execs", job.body(), key=key or _new_key(), prefer="respond-async"))

    def stream(self, job: Job, *, key: str = "", stdin: Stdin | None = None) -> Generator[Event, None, None]:
        """Runs a job, and yields its events as they come; the last one is end. A lost connection is made again.

        stdin is the standard input of the command, of any size: bytes, a file, or pieces that may come while it runs.
        """
        request, key = {**job.body(), "stream": True}, key or _new_key()
        if stdin is not None:
            request["exec"]["stdin_stream"] = True
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        events = self._stream("POST", "/sandbox/execs", "", "", json.dumps(request).encode(), headers)
        return events if stdin is None else self._feed(events, stdin)

    def _feed(self, events: Generator[Event, None, None], stdin: Stdin) -> Generator[Event, None, None]:
        """Yields events, and sends stdin meanwhile."""
        failed: list[BaseException] = []

        def send(exec_id: str) -> None:
            try:
                self.send_stdin(exec_id, stdin)
            except BaseException as error:
                failed.append(error)
                if not isinstance(error, BadRequest):  # another request was the first
                    with suppress(SecboxError):
                        self.cancel(exec_id)  # it waits for input that does not come

        with closing(events):
            begun = False
            for event in events:
                state = event.state
                # The server waits for the start of a queued one only for a while.
                if state is not None and event.type == "status" and state.status == "running" and not begun:
                    begun = True
                    threading.Thread(target=send, args=(state.exec_id,), name="secbox-stdin", daemon=True).start()
                if state is not None and state.status == "canceled" and failed:
                    raise failed[0]
                yield event

    def send_stdin(self, exec_id: str, content: Stdin) -> None:
        """Sends the standard input of an exec with stdin_stream, once. It is no error that the exec has ended already.

        If content raises an error, the exec is canceled, so that no command takes a part for the whole.
        """
        path, headers = _quote("sandbox", "execs", exec_id, "stdin"), {"Content-Type": "application/octet-stream"}
        body = content if isinstance(content, bytes) else _pieces(content)
        try:
            self._http.send(_Call(STDIN_SILENCE), "PUT", path, _Answer.json, body=body, headers=headers, repeat=False, once=True)
        except Conflict as error:
            if error.code != "exec_ended":
                raise

    def follow(self, exec_id: str, last_event_id: str = "") -> Generator[Event, None, None]:
        """Yields the events of any exec, from the beginning or after the event with this id."""
        return self._stream("GET", _quote("sandbox", "execs", exec_id, "events"), exec_id, last_event_id, None, {})

    def _stream(
        self, method: str, path: str, exec_id: str, last: str, body: bytes | None, headers: dict[str, str]
    ) -> Generator[Event, None, None]:
        call, failures = _Call(STREAM_SILENCE), 0
        while True:
            extra = {"Accept": "text/event-stream, application/problem+json"} | ({"Last-Event-ID": last} if last else {})
            answer = self._http.send(call, method, path, lambda answer: answer, body=body, headers=headers | extra, repeat=True)
            with closing(answer):
                if answer.status == 204:
                    return
                if answer.media() != "text/event-stream":
                    raise UnexpectedAnswer(f"{self._http.place} does not answer with events; check the address")
                lost: Exception | None = None
                try:
                    for kind, event_id, data in _events(answer):
                        if kind not in ("status", "stdout", "stderr", "end"):
                            continue
                        event = _event(kind, event_id, data)
                        failures, last = 0 if event.data else failures, event_id or last
                        if event.state is not None:
                            exec_id = event.state.exec_id
                        if kind == "end" and event.state is not None:
                            if "artifacts" not in data and event.state.status not in ("rejected", "error", "lost"):
                                event.state.artifacts = self.artifacts(exec_id)
                            yield event
                            return
                        yield event
                except _BROKEN as error:
                    lost = error
                call.abort.check()
            failures += 1
            if failures > self._http.retries:
                where = exec_id or "the exec"
                raise ConnectionFailed(f"the events of {where} were cut off, and it goes on: follow it after the last event") from lost
            call.pause(min(8.0, 0.25 * 2**failures) * random.uniform(0.5, 1))
            if exec_id and last:  # else the same request follows the same exec, by its key
                method, path, body, headers = "GET", _quote("sandbox", "execs", exec_id, "events"), None, {}

    def wait(self, exec_id: str, *, wait_s: float = WAIT) -> State:
        """Waits for the end of an exec and returns its record. After wait_s seconds it raises WaitTimeout."""
        path = _quote("sandbox", "execs", exec_id, "wait")
        return _load(State, self._until_ended(path, {}, lambda one: one.get("status") not in ("queued", "running"), wait_s))

    def wait_task(self, task_id: str, *, wait_s: float = WAIT) -> TaskState:
        """Waits until all execs of a task have ended. After wait_s seconds it raises WaitTimeout."""
        query = {"task_id": task_id}
        return _load(TaskState, self._until_ended("/sandbox/execs/wait", query, lambda one: one.get("ended") is True, wait_s))

    def _until_ended(self, path: str, query: dict[str, str], ended: Callable[[Any], bool], wait_s: float) -> Any:
        deadline = time.monotonic() + wait_s
        while True:
            left_ms = int((deadline - time.monotonic()) * 1000)
            if left_ms <= 0:
                raise WaitTimeout(f"not ended after {wait_s:g} seconds; it goes on")
            wait_ms = min(left_ms, MAX_WAIT_MS)
            answer = self.request("GET", path + _query(**query, timeout_ms=wait_ms), wait_s=wait_ms / 1000 + self._http.timeout)
            if not isinstance(answer, dict) or ended(answer):
                return answer

    def cancel(self, exec_id: str) -> None:
        """Kills an exec. It is no error that it has ended already."""
        try:
            self.request("POST", _quote("sandbox", "execs", exec_id, "cancel"), repeat=True)
        except Conflict as error:
            if error.code != "exec_ended":
                raise

    def batch(self, jobs: Sequence[Job], *, key: str = "") -> list[BatchItem]:
        """Puts up to 1,000 jobs into the queue at once, and returns what became of each, in their order."""
        answer = self.request("POST", "/sandbox/execs/batch", {"execs": [job.body() for job in jobs]}, key=key or _new_key())
        items: list[Any] = _field(answer, "items", list)
        if len(items) != len(jobs):
            raise UnexpectedAnswer("the answer of core-api does not have an item for each job; check the server's version")
        refused = [isinstance(item, dict) and "error" in item for item in items]
        return [_load(BatchItem, {**item, "error": _refusal(item["error"])} if bad else item) for item, bad in zip(items, refused)]

    def record(self, exec_id: str) -> State:
        """Returns the record of an exec; raw has all of it."""
        return _load(State, self.request("GET", _quote("sandbox", "execs", exec_id)))

    def records(self, /, **filters: str) -> Generator[State, None, None]:
        """Yields records, newest first. Filters are those of GET /sandbox/execs: task_id="t1", status="failed,timeout", since=…"""
        yield from (_load(State, one) for one in self._pages("/sandbox/execs", "items", **filters))

    def _pages(self, route: str, items: str, /, **query: Any) -> Iterator[Any]:
        cursor = ""
        while True:
            page = self.request("GET", route + _query(**query, cursor=cursor))
            yield from _field(page, items, list)
            before, cursor = cursor, page.get("next_cursor") or ""
            if not cursor or cursor == before:
                return

    def invoke(
        self,
        skill_id: str,
        inputs: Mapping[str, Any] = {},
        *,
        project_id: str = "",
        session_id: str = "",
        conversation_id: str = "",
        user_id: str = "",
        task_id: str = "",
        files: Sequence[InputFile] = (),
        policy: Policy = {},
        callback_url: str = "",
        key: str = "",
        wait_s: float = WAIT,
    ) -> Invoked:
        """Calls a skill and returns its outputs. After wait_s seconds it raises WaitTimeout; the exec goes on."""
        body: dict[str, Any] = {"project_id": project_id, "session_id": session_id, "conversation_id": conversation_id, "user_id": user_id}
        body |= {"inputs": dict(inputs), "files": list(files), "policy_overrides": policy, "callback_url": callback_url}
        body |= {"task_ref": {"task_id": task_id} if task_id else None}
        path, body = _quote("skills", skill_id, "invoke"), {name: value for name, value in body.items() if value}
        answer = self.request("POST", path, body, key=key or _new_key(), wait_s=wait_s)
        return Invoked(exec=_load(Result, _field(answer, "exec", dict)), outputs=answer.get("outputs"), raw=answer)

    # Output and artifacts

    def output(self, exec_id: str, stream: str = "stdout", *, max_bytes: int = 16 << 20) -> bytes:
        """Returns what an exec wrote to stdout or stderr, so far or in all."""
        return self._bytes(_quote("sandbox", "execs", exec_id, stream), max_bytes)

    def artifacts(self, exec_id: str) -> list[Artifact]:
        """Lists the files that an exec left."""
        answer = self.request("GET", _quote("sandbox", "execs", exec_id, "artifacts"))
        return [_artifact(one) for one in _field(answer, "items", list)]

    def read_artifact(self, exec_id: str, path: str, *, max_bytes: int = MAX_ANSWER) -> bytes:
        """Returns the content of an artifact."""
        return self._bytes(_quote("sandbox", "execs", exec_id, "artifacts", *path.split("/")), max_bytes)

    def save_artifacts(self, exec_id: str, directory: str | os.PathLike[str], *, max_bytes: int = 1 << 30) -> list[Path]:
        """Writes the artifacts of an exec into a directory, which is made if it is missing, and checks their digests.

        A name that would leave the directory, by .. or by a link, raises UnsafePath before anything of it is written.
        """
        found = self.artifacts(exec_id)
        names = [(one, _parts(one.path)) for one in found]
        if sys.platform in ("win32", "darwin"):  # their file systems do not tell these names apart
            same = [unicodedata.normalize("NFC", one.path).casefold() for one in found]
            if len(set(same)) < len(same):
                raise UnsafePath("two artifacts have names that are one file here; read them with read_artifact")
        if sum(one.size for one in found) > max_bytes:
            raise SecboxError(f"the artifacts have more than {max_bytes} bytes; raise max_bytes, or read some of them with read_artifact")
        folder = _Folder(directory)
        return [self._save(exec_id, one, folder, parts) for one, parts in names]

    def _save(self, exec_id: str, artifact: Artifact, folder: _Folder, parts: list[str]) -> Path:
        def write(answer: _Answer) -> Path:
            return folder.write(parts, checked(answer))

        def checked(answer: _Answer) -> Iterator[bytes]:
            digest, size = hashlib.sha256(), 0
            for piece in answer.pieces():
                digest.update(piece)
                size += len(piece)
                if size > artifact.size:
                    break
                yield piece
            if size != artifact.size or digest.hexdigest() != artifact.sha256:
                raise UnexpectedAnswer(f"the artifact {artifact.path!r} is not the one of the list")

        path = _quote("sandbox", "execs", exec_id, "artifacts", *artifact.path.split("/"))
        return self._http.send(_Call(self._http.timeout), "GET", path, write)

    def _bytes(self, path: str, max_bytes: int) -> bytes:
        return self._http.send(_Call(self._http.timeout), "GET", path, lambda answer: answer.read(max_bytes), headers={"Accept": "*/*"})

    # Sessions and files

    def start_session(
        self,
        *,
        project_id: str = "",
        name: str = "",
        image: str = "",
        env: Mapping[str, str] = {},
        idle_ms: int = 0,
        ttl_ms: int = 0,
        policy: Policy = {},
        task_id: str = "",
        conversation_id: str = "",
        user_id: str = "",
        key: str = "",
    ) -> Session:
        """Starts a container that stays. With `with`, it ends at the end of the block."""
        body: dict[str, Any] = {"project_id": project_id, "name": name, "image": image, "env": dict(env), "policy_overrides": policy}
        body |= {"idle_ms": idle_ms, "ttl_ms": ttl_ms, "conversation_id": conversation_id, "user_id": user_id}
        body |= {"task_ref": {"task_id": task_id} if task_id else None}
        answer = self.request("POST", "/sandbox/sessions", {k: v for k, v in body.items() if v}, key=key or _new_key())
        return Session(self, _load(SessionInfo, answer).session_id)

    def session(self, session_id: str) -> Session:
        """Returns a session that runs already, without a request."""
        return Session(self, session_id)

    def sessions(self, /, **filters: str) -> Generator[SessionInfo, None, None]:
        """Yields sessions, newest first."""
        yield from (_load(SessionInfo, one) for one in self._pages("/sandbox/sessions", "items", **filters))

    def project_files(self, project_id: str) -> Files:
        """Returns the files of a project: /workspace/work, and for reading /workspace/inputs."""
        return Files(self, _quote("sandbox", "projects", project_id))

    def new_webhook_secret(self) -> str:
        """Makes the secret that signs the webhooks of this token. The one before it stays valid for a day."""
        return _field(self.request("POST", "/webhooks/secret"), "secret", str)


class Session:
    """A container that stays, in which execs share files, processes and the state of contexts."""

    def __init__(self, client: Client, session_id: str) -> None:
        self._client = client
        self.session_id = session_id
        self._path = _quote("sandbox", "sessions", session_id)
        self.files = Files(client, self._path)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def run(self, job: Job, *, key: str = "", wait_s: float = WAIT) -> Result:
        """Runs a job in the session."""
        return self._client.run(dataclasses.replace(job, session_id=self.session_id), key=key, wait_s=wait_s)

    def cell(self, code: str, context: str = "main", *, key: str = "", wait_s: float = WAIT) -> Result:
        """Runs code in an interpreter that keeps its state; results has the values that it shows."""
        return self.run(Job(code=code, context=context), key=key, wait_s=wait_s)

    def submit(self, job: Job, *, key: str = "") -> State:
        """Starts a job in the session; with background it may run as long as the session."""
        return self._client.submit(dataclasses.replace(job, session_id=self.session_id), key=key)

    def stream(self, job: Job, *, key: str = "", stdin: Stdin | None = None) -> Generator[Event, None, None]:
        """Runs a job in the session, and yields its events as they come."""
        return self._client.stream(dataclasses.replace(job, session_id=self.session_id), key=key, stdin=stdin)

    def info(self) -> SessionInfo:
        return _load(SessionInfo, self._client.request("GET", self._path))

    def extend(self, *, idle_ms: int = 0, ttl_ms: int = 0) -> SessionInfo:
        """Sets when the session ends, from now on."""
        body = {name: value for name, value in (("idle_ms", idle_ms), ("ttl_ms", ttl_ms)) if value}
        return _load(SessionInfo, self._client.request("POST", self._path + "/extend", body, repeat=True))

    def link_port(self, port: int, *, ttl_s: int = 0) -> PortLink:
        """Makes a link to a port on which a server listens; it expires after an hour, or ttl_s."""
        body = {"ttl_seconds": ttl_s} if ttl_s else {}
        return _load(PortLink, self._client.request("POST", self._path + _quote("ports", str(port), "link"), body))

    def end_context(self, name: str) -> None:
        self._client.request("DELETE", self._path + _quote("contexts", name))

    def end(self) -> None:
        """Ends the session and what runs in it. It is no error that it has ended already."""
        try:
            self._client.request("DELETE", self._path, repeat=True)
        except Conflict as error:
            if error.code != "session_ended":
                raise


class Files:
    """The files of a session or a project. Paths are absolute, as jobs see them."""

    def __init__(self, client: Client, path: str) -> None:
        self._client, self._path = client, path + "/files"

    def list(self, path: str) -> Generator[FileInfo, None, None]:
        """Yields what is in a directory."""
        yield from (_load(FileInfo, one) for one in self._client._pages(self._path, "entries", path=path))

    def read(self, path: str, *, max_bytes: int = MAX_ANSWER) -> bytes:
        return self._client._bytes(self._path + "/content" + _query(path=path), max_bytes)

    def write(self, path: str, content: bytes | str) -> None:
        """Writes a file, and makes the directories above it."""
        self._put(path, content.encode() if isinstance(content, str) else content)

    def download(self, path: str, to: str | os.PathLike[str]) -> Path:
        """Writes a file to a local path, piece by piece."""

        def write(answer: _Answer) -> Path:
            return _Folder(Path(to).parent).write([Path(to).name], answer.pieces())

        http_ = self._client._http
        return http_.send(_Call(http_.timeout), "GET", self._path + "/content" + _query(path=path), write, headers={"Accept": "*/*"})

    def upload(self, file: str | os.PathLike[str], path: str) -> None:
        """Writes a local file of up to 500 MiB, piece by piece."""
        self._put(path, lambda: open(file, "rb"))

    def _put(self, path: str, body: bytes | Callable[[], BinaryIO]) -> None:
        http_, headers = self._client._http, {"Content-Type": "application/octet-stream"}
        http_.send(_Call(http_.timeout), "PUT", self._path + "/content" + _query(path=path), _Answer.json, body=body, headers=headers)

    def make_directory(self, path: str) -> None:
        self._client.request("PUT", self._path + "/directory" + _query(path=path))

    def move(self, path: str, to: str, *, replace: bool = False) -> None:
        self._client.request("POST", self._path + "/move", {"path": path, "to": to, "replace": replace})

    def remove(self, path: str, *, recursive: bool = False) -> None:
        self._client.request("DELETE", self._path + _query(path=path, recursive=recursive))


def _event(kind: str, event_id: str, data: Any) -> Event:
    if not isinstance(data, dict):
        raise UnexpectedAnswer("an event of core-api has no object; check the address")
    if kind in ("status", "end"):
        return Event(type=kind, id=event_id, state=_load(State, data))
    text, encoding = data.get("data"), data.get("encoding")
    try:
        content = base64.b64decode(str(text), validate=True) if encoding == "base64" else str(text).encode("utf-8")
    except ValueError:
        raise UnexpectedAnswer("an event of core-api has output that cannot be decoded; check the server's version") from None
    return Event(type=kind, id=event_id, data=content)


# Webhooks


def verify_webhook(
    secret: str | Iterable[str], headers: Mapping[str, str], body: bytes, *, tolerance_s: float = 300, now: float | None = None
) -> WebhookEvent:
    """Returns the event of a webhook if core-api has signed it with this secret, or with one of these, and not long ago.

    It raises WebhookError otherwise: answer 401 then. body is the body as it came. Ignore an id that was seen before.
    """
    given = {name.lower(): value for name, value in headers.items()}
    message_id, timestamp, signatures = (given.get("webhook-" + name, "") for name in ("id", "timestamp", "signature"))
    if not message_id or not re.fullmatch(r"[0-9]{1,12}", timestamp):
        raise WebhookError("the request has no webhook-id or no webhook-timestamp: it is no webhook of core-api")
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance_s:
        raise WebhookError("the webhook is too old or of the future: it is sent again, or check the clock")
    wanted = [_signature(one, f"{message_id}.{timestamp}.".encode() + body) for one in ([secret] if isinstance(secret, str) else secret)]
    found = [one[3:].encode() for one in signatures.split(" ")[:16] if one.startswith("v1,")]
    if not any([hmac.compare_digest(one, want) for one in found for want in wanted]):
        raise WebhookError("the webhook has no signature of this secret: core-api did not send it, or the token has another secret")
    try:
        event = json.loads(body)
        return WebhookEvent(id=message_id, type=event["type"], timestamp=event["timestamp"], state=_load(State, event["data"]))
    except (ValueError, KeyError, TypeError, RecursionError, UnexpectedAnswer):
        raise WebhookError("the webhook is signed, but no event of core-api that this version knows") from None


def _signature(secret: str, message: bytes) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the secret of the webhook must be whsec_ and base64, as core-api has shown it") from None
    return base64.b64encode(hmac.digest(key, message, "sha256"))


# asyncio


async def _in_thread(function: Callable[[], R], abort: _Abort) -> R:
    """Runs a function in a thread of its own. When the task is canceled, the function's connection is closed."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()

    def settle(result: R | None, error: BaseException | None) -> None:
        if not done.done():
            done.set_result(cast(R, result)) if error is None else done.set_exception(error)

    def work() -> None:
        _abort.set(abort)
        result, failed = None, None
        try:
            result = function()
        except BaseException as error:
            failed = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=work, name="secbox", daemon=True).start()
    try:
        return await done
    except asyncio.CancelledError:
        abort()
        raise


class _Async(Generic[S]):
    """Has the methods of a synchronous object for asyncio."""

    _sync: S


def _awaited(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[_Async[S], P], Coroutine[Any, Any, R]]:
    @functools.wraps(method)
    async def call(self: _Async[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await _in_thread(lambda: method(self._sync, *args, **kwargs), _Abort())

    return call


def _started(method: Callable[Concatenate[S, P], Session]) -> Callable[Concatenate[_Async[S], P], Coroutine[Any, Any, AsyncSession]]:
    @functools.wraps(method)
    async def call(self: _Async[S], /, *args: P.args, **kwargs: P.kwargs) -> AsyncSession:
        return AsyncSession(await _in_thread(lambda: method(self._sync, *args, **kwargs), _Abort()))

    return call


def _iterated(
    method: Callable[Concatenate[S, P], Generator[T, None, None]],
) -> Callable[Concatenate[_Async[S], P], AsyncGenerator[T, None]]:
    @functools.wraps(method)
    async def call(self: _Async[S], /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        items, abort, end = method(self._sync, *args, **kwargs), _Abort(), object()
        try:
            while (item := await _in_thread(lambda: next(items, end), abort)) is not end:
                yield cast(T, item)
        finally:
            abort()
            with suppress(ValueError):  # its thread is ending it
                items.close()

    return call


class AsyncFiles(_Async[Files]):
    """Files for asyncio."""

    def __init__(self, files: Files) -> None:
        self._sync = files

    list = _iterated(Files.list)
    read = _awaited(Files.read)
    write = _awaited(Files.write)
    download = _awaited(Files.download)
    upload = _awaited(Files.upload)
    make_directory = _awaited(Files.make_directory)
    move = _awaited(Files.move)
    remove = _awaited(Files.remove)


class AsyncSession(_Async[Session]):
    """A Session for asyncio."""

    def __init__(self, session: Session) -> None:
        self._sync = session
        self.session_id = session.session_id
        self.files = AsyncFiles(session.files)

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    run = _awaited(Session.run)
    cell = _awaited(Session.cell)
    submit = _awaited(Session.submit)
    stream = _iterated(Session.stream)
    info = _awaited(Session.info)
    extend = _awaited(Session.extend)
    link_port = _awaited(Session.link_port)
    end_context = _awaited(Session.end_context)
    end = _awaited(Session.end)


class AsyncClient(_Async[Client]):
    """A Client for asyncio: each call has a thread, and its connection is closed when its task is canceled."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8003",
        token: str = "",
        *,
        timeout: float = 60.0,
        retries: int = 5,
        ssl_context: ssl.SSLContext | None = None,
        plain_http: bool = False,
    ) -> None:
        self._sync = Client(url, token, timeout=timeout, retries=retries, ssl_context=ssl_context, plain_http=plain_http)

    def __repr__(self) -> str:
        return "Async" + repr(self._sync)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sync.close()

    request = _awaited(Client.request)
    run = _awaited(Client.run)
    submit = _awaited(Client.submit)
    stream = _iterated(Client.stream)
    send_stdin = _awaited(Client.send_stdin)
    follow = _iterated(Client.follow)
    wait = _awaited(Client.wait)
    wait_task = _awaited(Client.wait_task)
    cancel = _awaited(Client.cancel)
    batch = _awaited(Client.batch)
    invoke = _awaited(Client.invoke)
    record = _awaited(Client.record)
    records = _iterated(Client.records)
    output = _awaited(Client.output)
    artifacts = _awaited(Client.artifacts)
    read_artifact = _awaited(Client.read_artifact)
    save_artifacts = _awaited(Client.save_artifacts)
    sessions = _iterated(Client.sessions)
    new_webhook_secret = _awaited(Client.new_webhook_secret)
    start_session = _started(Client.start_session)

    def session(self, session_id: str) -> AsyncSession:
        return AsyncSession(self._sync.session(session_id))

    def project_files(self, project_id: str) -> AsyncFiles:
        return AsyncFiles(self._sync.project_files(project_id))
