"""Tests of secbox.py: against the core-api at SECBOX_SERVER, and against servers that answer wrongly."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import hashlib
import hmac
import http.server
import inspect
import json
import os
import random
import re
import secrets
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import typing
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import secbox
from secbox import Job

URL, TOKEN = os.environ.get("SECBOX_SERVER", ""), os.environ.get("SECBOX_TOKEN", "")
PROJECT, RUN = "python", secrets.token_hex(4)  # a server may have been tested before


class Real(unittest.TestCase):
    """What the client does with a real core-api."""

    client: secbox.Client

    @classmethod
    def setUpClass(cls) -> None:
        if not URL:
            raise AssertionError("SECBOX_SERVER is not set: go test ./clients starts a core-api and runs this")
        cls.client = secbox.Client(URL, TOKEN)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.client.close()

    def test_run_with_files(self) -> None:
        with tempfile.TemporaryDirectory() as d:
            here = Path(d)
            (here / "in").mkdir()
            (here / "in/binary").write_bytes(bytes(range(256)))
            (here / "in/tool.sh").write_text("#!/bin/sh\necho täsk ✓\n")
            (here / "in/tool.sh").chmod(0o755)
            (here / "in/link").symlink_to("/etc/passwd")
            inputs = secbox.input_files(here / "in", below="t1")
            self.assertEqual([one["path"] for one in inputs], ["t1/binary", "t1/tool.sh"])
            script = "cd /workspace/inputs/t1; ./tool.sh; mkdir -p ../../artifacts/d; cp binary ../../artifacts/d/'a %41'; ln -s /etc ../../artifacts/l; exit 3"
            result = self.client.run(Job(script=script, project_id=PROJECT, inputs=inputs, task_id="py-1-" + RUN, policy={"memory_mb": 128}))
            self.assertEqual((result.status, result.exit_code, result.stdout), ("failed", 3, "täsk ✓\n"))
            with self.assertRaises(secbox.ExecFailed) as failed:
                result.check()
            self.assertEqual(failed.exception.result.error_reason, "nonzero_exit")
            saved = self.client.save_artifacts(result.exec_id, here / "out")
            self.assertEqual(saved, [here / "out/d/a %41"])
            self.assertEqual(saved[0].read_bytes(), bytes(range(256)))
            self.assertEqual(self.client.read_artifact(result.exec_id, "d/a %41"), bytes(range(256)))
            self.assertEqual(self.client.output(result.exec_id), "täsk ✓\n".encode())
            (here / "out2").mkdir()
            (here / "out2/d").symlink_to(here)
            with self.assertRaises(secbox.UnsafePath):
                self.client.save_artifacts(result.exec_id, here / "out2")
        record = self.client.record(result.exec_id)
        self.assertEqual((record.status, record.task_id, record.raw["policy_snapshot"]["fields"]["memory_mb"]["value"]), ("failed", "py-1-" + RUN, 128))
        self.assertEqual([one.exec_id for one in self.client.records(task_id="py-1-" + RUN)], [result.exec_id])

    def test_stream_and_follow(self) -> None:
        job = Job(script=r"echo one; printf 'two\377' >&2; echo x > /workspace/artifacts/f; exit 4", project_id=PROJECT)
        events = list(self.client.stream(job))
        self.assertEqual((events[0].type, events[-1].type), ("status", "end"))
        self.assertEqual(b"".join(one.data for one in events if one.type == "stdout"), b"one\n")
        self.assertEqual(b"".join(one.data for one in events if one.type == "stderr"), b"two\xff")
        end = events[-1].state
        assert end is not None
        self.assertEqual((end.exit_code, [one.path for one in end.artifacts]), (4, ["f"]))
        rest = list(self.client.follow(end.exec_id, next(one.id for one in events if one.type == "stdout")))
        self.assertEqual([one.type for one in rest if one.type not in ("status", "stdout")][-1], "end")
        self.assertEqual(rest[-1].state and [one.path for one in rest[-1].state.artifacts], ["f"])
        self.assertEqual(list(self.client.follow(end.exec_id, events[-1].id)), [])

    def test_stdin(self) -> None:
        large = os.urandom(3 << 20)
        digest = hashlib.sha256(large).hexdigest() + "  -\n"
        job = Job(script="sha256sum", project_id=PROJECT)
        with tempfile.TemporaryFile() as file:
            file.write(large)
            file.seek(0)
            for stdin in (large, file, (large[at : at + 99_999] for at in range(0, len(large), 99_999))):
                self.assertEqual("".join(one.text for one in self.client.stream(job, stdin=stdin)), digest)

        echoed = threading.Event()  # the second line is sent when the first one has come back

        def lines() -> Iterator[bytes]:
            yield b"one\n"
            self.assertTrue(echoed.wait(60))
            yield b"two\n"

        got = b""
        for event in self.client.stream(Job(script="cat", project_id=PROJECT), stdin=lines()):
            got += event.data
            if got == b"one\n":
                echoed.set()
        self.assertEqual((got, event.type), (b"one\ntwo\n", "end"))
        self.assertEqual([one.text for one in self.client.stream(Job(script="true", project_id=PROJECT), stdin=large) if one.data], [])

        def broken() -> Iterator[bytes]:
            yield b"half"
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            list(self.client.stream(job, stdin=broken()))

    def test_invoke(self) -> None:
        called = self.client.invoke("shell.run", {"script": "echo $((6 * 7)); exit 3"}, project_id=PROJECT, policy={"memory_mb": 128})
        self.assertEqual((called.exec.status, called.outputs and called.outputs["stdout"]), ("failed", "42\n"))
        self.assertRaises(secbox.NotFound, self.client.invoke, "no.such", project_id=PROJECT)

    def test_submit_wait_cancel(self) -> None:
        queued = self.client.submit(Job(script="sleep 600", project_id=PROJECT, priority="high"), key="py-" + RUN)
        self.assertEqual(self.client.submit(Job(script="sleep 600", project_id=PROJECT, priority="high"), key="py-" + RUN).exec_id, queued.exec_id)
        with self.assertRaises(secbox.WaitTimeout):
            self.client.wait(queued.exec_id, wait_s=0.05)
        self.client.cancel(queued.exec_id)
        self.assertEqual(self.client.wait(queued.exec_id).status, "canceled")
        self.client.cancel(queued.exec_id)

    def test_session(self) -> None:
        with self.client.start_session(project_id=PROJECT, name="s", env={"GREETING": "hi"}) as session:
            self.assertEqual(session.cell("r = 2").status, "succeeded")
            self.assertEqual(session.cell("r * 21").results[0]["data"]["text/plain"], "42")
            self.assertEqual(session.run(Job(script="echo $GREETING > /tmp/note; cat /tmp/note")).stdout, "hi\n")
            files = session.files
            self.assertEqual(files.read("/tmp/note"), b"hi\n")
            files.write("/tmp/new/a", b"\0\xff")
            files.make_directory("/tmp/new/d")
            files.move("/tmp/new/a", "/tmp/new/d/b")
            self.assertEqual([(one.name, one.type) for one in files.list("/tmp/new")], [("d", "directory")])
            with tempfile.TemporaryDirectory() as d:
                self.assertEqual(files.download("/tmp/new/d/b", Path(d, "b")).read_bytes(), b"\0\xff")
                Path(d, "large").write_bytes(b"x" * (3 << 20))
                files.upload(Path(d, "large"), "/tmp/large")
            self.assertEqual(session.run(Job(script="wc -c < /tmp/large")).stdout, "3145728\n")
            files.remove("/tmp/new", recursive=True)
            self.assertGreater(session.extend(idle_ms=120_000).idle_ms, 119_999)
            self.assertIn(session.session_id, [one.session_id for one in self.client.sessions(project_id=PROJECT)])
            link = session.link_port(8000, ttl_s=60)
            self.assertRegex(link.url, rf"^http://8000-{session.session_id}\.preview\.localhost:\d+/\?secbox_link=")
            self.assertNotIn("secbox_link", repr(dataclasses.replace(link, raw={})))
            with self.assertRaises(secbox.BadRequest):
                session.link_port(80)
            background = session.submit(Job(script="echo up; sleep 600", background=True))
            self.assertEqual([one.text for one in self._first_output(background.exec_id)], ["up\n"])
            session.end_context("main")
        self.client.wait(session.session_id)
        self.assertEqual((session.info().status, session.info().end_reason), ("ended", "deleted"))
        session.end()
        self.assertEqual(self.client.wait(background.exec_id).error_reason, "session_ended")

    def _first_output(self, exec_id: str) -> Iterator[secbox.Event]:
        with contextlib.closing(self.client.follow(exec_id)) as events:
            yield next(one for one in events if one.type == "stdout")

    def test_project_files(self) -> None:
        files = self.client.project_files("python-files")
        files.write("/workspace/work/in/data.csv", "a,b")
        self.assertEqual(files.read("/workspace/work/in/data.csv"), b"a,b")
        self.assertEqual([one.size for one in files.list("/workspace/work/in")], [3])

    def test_batch(self) -> None:
        task = "py-batch-" + RUN
        jobs = [Job(script=f"exit {n}", project_id=PROJECT, task_id=task) for n in range(2)] + [Job(project_id=PROJECT)]
        items = self.client.batch(jobs, key="batch-" + RUN)
        self.assertEqual([one.error is None for one in items], [True, True, False])
        self.assertEqual(items[2].error and items[2].error.code, "invalid_request")
        self.assertEqual([one.exec_id for one in self.client.batch(jobs, key="batch-" + RUN)], [one.exec_id for one in items])
        done = self.client.wait_task(task)
        self.assertEqual((done.total, done.unended, done.statuses), (2, 0, {"succeeded": 1, "failed": 1}))

    def test_errors(self) -> None:
        with self.assertRaises(secbox.PolicyDenied) as denied:
            self.client.run(Job(script="true", project_id=PROJECT, policy={"memory_mb": 1 << 20}))
        self.assertEqual((denied.exception.code, denied.exception.status), ("policy_denied", 403))
        self.assertIn("memory_mb", denied.exception.detail + str(denied.exception.errors))
        self.assertEqual(self.client.record(denied.exception.exec_id).status, "rejected")
        with self.assertRaises(secbox.NotFound):
            self.client.record("019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d")
        with self.assertRaises(secbox.BadRequest):
            self.client.run(Job(script="true", project_id="../x"))
        with self.assertRaises(secbox.BadRequest) as large:
            self.client.run(Job(script="true", project_id=PROJECT, inputs=[{"path": "large", "content": "x" * (40 << 20)}]))
        self.assertEqual(large.exception.code, "body_too_large")
        with secbox.Client(URL, "secret-token-that-is-wrong") as wrong, self.assertRaises(secbox.Unauthorized) as refused:
            wrong.run(Job(script="true"))
        self.assertNotIn("secret-token", repr(wrong) + str(wrong) + str(refused.exception) + repr(refused.exception))

    def test_webhook(self) -> None:
        got: list[tuple[dict[str, str], bytes]] = []
        arrived = threading.Event()

        class Receiver(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                got.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()
                arrived.set()

            def log_message(self, *_: object) -> None:
                pass

        port = int(os.environ["SECBOX_WEBHOOK_PORT"])
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Receiver)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            old = self.client.new_webhook_secret()
            secret = self.client.new_webhook_secret()
            result = self.client.run(Job(script="exit 3", project_id=PROJECT, callback_url=f"http://127.0.0.1:{port}/hook"))
            self.assertTrue(arrived.wait(60))
        finally:
            server.shutdown()
            server.server_close()
        headers, body = got[0]
        for one in (secret, old, [secret, old]):  # the old one is valid for a day
            event = secbox.verify_webhook(one, headers, body)
        self.assertEqual((event.type, event.state.exec_id, event.state.exit_code), ("exec.ended", result.exec_id, 3))
        for wrong in (lambda: secbox.verify_webhook(secret, headers, body + b" "), lambda: secbox.verify_webhook(secret, headers, body, now=time.time() + 301)):
            self.assertRaises(secbox.WebhookError, wrong)

    def test_async(self) -> None:
        async def main() -> None:
            async with secbox.AsyncClient(URL, TOKEN) as client:
                async with await client.start_session(project_id=PROJECT) as session:
                    texts = [one.text async for one in session.stream(Job(script="echo a; echo b >&2")) if one.data]
                    self.assertEqual(sorted(texts), ["a\n", "b\n"])
                    both = await asyncio.gather(*(session.run(Job(script=f"echo {n}")) for n in range(2)))
                    self.assertEqual([one.stdout for one in both], ["0\n", "1\n"])
                    await session.files.write("/tmp/f", "x")
                    self.assertEqual([one.name async for one in session.files.list("/tmp") if one.name == "f"], ["f"])
                    events = session.stream(Job(script="sleep 600"))
                    begun = (await anext(events)).state
                    assert begun is not None
                    await events.aclose()
                    self.assertEqual((await client.record(begun.exec_id)).status, "running")  # it goes on
                    await client.cancel(begun.exec_id)
                    self.assertEqual((await client.wait(begun.exec_id)).status, "canceled")
                    self.assertIn(begun.exec_id, [one.exec_id async for one in client.records(session_id=session.session_id)])

        asyncio.run(main())

    def test_fields_are_those_of_the_contract(self) -> None:
        schemas = self.client.request("GET", "/openapi.json")["components"]["schemas"]

        def properties(name: str) -> set[str]:
            return set(schemas[name]["properties"])

        for kind, schema in [(secbox.Result, "ExecResult"), (secbox.State, "ExecState"), (secbox.SessionInfo, "Session"), (secbox.FileInfo, "FileEntry")]:
            own = set(kind.__dataclass_fields__) - {"raw"}
            self.assertLessEqual(own, properties(schema), kind)
            fields = kind.__dataclass_fields__.items()
            required = {name for name, one in fields if name != "raw" and one.default_factory is dataclasses.MISSING}
            self.assertLessEqual(required, set(schemas[schema]["required"]), kind)
            if schema == "ExecState":
                self.assertLessEqual(required, set(schemas["ExecRecord"]["required"]), "a record is read as a State")
        self.assertEqual(set(secbox.BatchItem.__dataclass_fields__), properties("ExecBatchItem"))
        self.assertEqual(set(secbox.TaskState.__dataclass_fields__) - {"raw"}, properties("TaskState"))
        self.assertEqual(set(secbox.Artifact.__dataclass_fields__), properties("Artifact"))
        self.assertEqual(set(secbox.InputFile.__annotations__), properties("InputFile"))
        self.assertEqual(set(secbox.Policy.__annotations__), properties("PolicyOverrides") - {"net", "fs"})
        command = {"script", "code", "cwd", "env", "stdin", "context"}
        self.assertLessEqual(command, properties("Command"))
        given = set(inspect.signature(secbox.Client.invoke).parameters) - {"self", "skill_id", "key", "wait_s", "policy", "task_id"}
        self.assertEqual(given | {"policy_overrides", "task_ref"}, properties("InvokeRequest") - {"stream", "priority", "queue_timeout_ms"})
        own = set(Job.__dataclass_fields__) - command - {"policy", "task_id"} | {"policy_overrides", "task_ref", "exec"}
        self.assertEqual(own, properties("ExecRequest") - {"stream"})

    def test_readme(self) -> None:
        page = Path(__file__).with_name("README.md").read_text()
        blocks = re.findall(r"```python\n(.*?)```", page, re.S)
        self.assertGreater(len(blocks), 3)
        with tempfile.TemporaryDirectory() as d, contextlib.chdir(d) if hasattr(contextlib, "chdir") else _chdir(d):
            Path("data.csv").write_text("a,b\n1,2\n")
            code = "\n".join(blocks).replace("http://127.0.0.1:8003", URL).replace("https://secbox.example.com", URL)
            with mock.patch.dict(os.environ, {"SECBOX_TOKEN": TOKEN}):
                exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


@contextlib.contextmanager
def _chdir(d: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(d)
    try:
        yield
    finally:
        os.chdir(before)


class Fake:
    """A server that answers as a test says: each connection gets the next of the answers, or the last one again."""

    def __init__(self, *answers: bytes | Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[bytes] = []
        self._tls = tls
        self._answers = list(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                threading.Thread(target=self._answer, args=(connection, answer), daemon=True).start()

    def _answer(self, connection: socket.socket, answer: bytes | Callable[[socket.socket], None]) -> None:
        with contextlib.suppress(OSError), self._tls.wrap_socket(connection, server_side=True) if self._tls else connection as connection:
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(1 << 16)
            head, _, body = head.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            while length and len(body) < int(length[1]):
                body += connection.recv(1 << 16)
            self.requests.append(head + b"\r\n\r\n" + body)
            if callable(answer):
                answer(connection)
            else:
                connection.sendall(answer)

    def close(self) -> None:
        self._listener.close()


def answer(status: str, body: object, *headers: str) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = "application/json" if status.startswith("2") else "application/problem+json"
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", "Connection: close"]
    if not any(one.startswith("Content-Type") for one in headers):
        head.append("Content-Type: " + kind)
    return "\r\n".join([*head, *headers, "", ""]).encode() + content


STATE = {name: "" for name in secbox.State.__dataclass_fields__ if name not in ("raw", "artifacts")} | {"exec_id": "e1", "status": "running", "exit_code": None}
RESULT = {name: "" for name in secbox.Result.__dataclass_fields__ if name not in ("raw", "artifacts", "results")} | {"exec_id": "e1", "status": "succeeded"}


def busy(code: str, status: int, *headers: str) -> bytes:
    return answer(f"{status} Busy", {"status": status, "code": code, "detail": "later"}, *headers)


def events(*all: tuple[str, str, object]) -> bytes:
    text = "".join(f"event: {kind}\ndata: {json.dumps(data)}\nid: {place}\n\n" for kind, place, data in all)
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n: hello\n\n" + text.encode()


class Hostile(unittest.TestCase):
    """What the client does with servers that answer wrongly, late or not at all."""

    def fake(self, *answers: bytes | Callable[[socket.socket], None], **options: typing.Any) -> tuple[Fake, secbox.Client]:
        server = Fake(*answers)
        self.addCleanup(server.close)
        client = secbox.Client(server.url, "token-of-the-test", **options)
        self.addCleanup(client.close)
        return server, client

    def run_against(self, *answers: bytes | Callable[[socket.socket], None], **options: typing.Any) -> secbox.SecboxError:
        _, client = self.fake(*answers, **options)
        with self.assertRaises(secbox.SecboxError) as raised:
            client.run(Job(script="true"))
        self.assertNotIn("token-of-the-test", str(raised.exception) + repr(raised.exception))
        return raised.exception

    def test_not_core_api(self) -> None:
        for wrong in (
            answer("302 Found", b"", "Location: http://127.0.0.1:1/"),
            answer("307 Temporary Redirect", b"", "Location: http://127.0.0.1:1/"),
            answer("200 OK", b"{broken"),
            answer("200 OK", b"[" * 100_000),
            answer("200 OK", [1]),
            answer("200 OK", {"exec_id": "e"}),
            answer("200 OK", {**RESULT, "artifacts": 5}),
            answer("200 OK", b"<html>", "Content-Type: text/html"),
            answer("500 Oh", b"<html>", "Content-Type: text/html"),
            answer("500 Oh", b"{broken"),
            b"HTTP/1.1 200 OK\r\nX: " + b"x" * (1 << 20) + b"\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: x\r\n" % n for n in range(1000)) + b"\r\n{}",
            b"SSH-2.0-OpenSSH_9.2\r\n",
        ):
            self.assertIsInstance(self.run_against(wrong), secbox.UnexpectedAnswer, wrong[:60])

    def test_endless_body(self) -> None:
        def endless(connection: socket.socket) -> None:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            while True:
                connection.sendall(b" " * (1 << 16))

        with mock.patch.object(secbox, "MAX_ANSWER", 1 << 20):
            self.assertIn("more than", str(self.run_against(endless)))
            _, client = self.fake(lambda one: (one.sendall(events()), endless(one))[0])
            self.assertRaises(secbox.SecboxError, list, client.stream(Job(script="true")))

    def test_redirect_gets_no_token(self) -> None:
        other, _ = self.fake(answer("200 OK", RESULT))
        self.run_against(answer("307 Temporary Redirect", b"", "Location: " + other.url + "/sandbox/execs"))
        self.assertEqual(other.requests, [])

    def test_repeats_have_one_key(self) -> None:
        cut = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        server, client = self.fake(b"", cut, busy("queue_full", 429, "Retry-After: 0"), busy("draining", 503, "Retry-After: 0"), answer("200 OK", RESULT))
        with mock.patch.object(secbox.random, "uniform", return_value=0):
            self.assertEqual(client.run(Job(script="true")).exec_id, "e1")
        keys = {re.search(rb"Idempotency-Key: (\w{32})", one)[1] for one in server.requests}  # type: ignore[index]
        self.assertEqual((len(server.requests), len(keys)), (5, 1))

    def test_repeats_are_bounded(self) -> None:
        server, client = self.fake(busy("queue_full", 429, "Retry-After: 0"), retries=2)
        with self.assertRaises(secbox.Busy):
            client.run(Job(script="true"))
        self.assertEqual(len(server.requests), 3)
        self.assertEqual(typing.cast(secbox.Busy, self.run_against(busy("queue_full", 429, "Retry-After: 3600"))).retry_after, 3600)
        with self.assertRaises(secbox.WaitTimeout):
            self.fake(busy("queue_full", 429, "Retry-After: 30"))[1].run(Job(script="true"), wait_s=5)
        self.assertIsInstance(self.run_against(answer("500 Oh", {"status": 500, "code": "internal", "detail": "see the log"})), secbox.ServerError)

    def test_unsafe_requests_are_sent_once(self) -> None:
        server, client = self.fake(b"")
        with self.assertRaises(secbox.ConnectionFailed):
            client.new_webhook_secret()
        self.assertEqual(len(server.requests), 1)

    def test_nobody_listens(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        with self.assertRaises(secbox.ConnectionFailed) as failed:
            secbox.Client(f"http://127.0.0.1:{port}", retries=0).run(Job(script="true"))
        self.assertIn("cannot be reached", str(failed.exception))

    def test_silent_server(self) -> None:
        never = threading.Event()
        self.addCleanup(never.set)
        _, client = self.fake(lambda _: typing.cast(None, never.wait()))
        with self.assertRaises(secbox.WaitTimeout):
            client.run(Job(script="true"), wait_s=0.1)

        def dripping(connection: socket.socket) -> None:
            while not never.wait(0.01):
                connection.sendall(b"H")

        with self.assertRaises(secbox.WaitTimeout):
            self.fake(dripping)[1].run(Job(script="true"), wait_s=0.2)

    def test_stream_goes_on(self) -> None:
        one, two = {"data": "one", "encoding": "utf-8", "offset": 0}, {"data": base64.b64encode(b"\xff").decode(), "encoding": "base64", "offset": 3}
        end = {**STATE, "status": "succeeded", "artifacts": [{"path": "f", "size": 1, "sha256": "0"}]}
        server, client = self.fake(
            events(),  # cut before the first event: the request is repeated by its key
            events(("status", "0-0", STATE), ("stdout", "3-0", one)) + b"event: stdout\ndata: {",
            events(("status", "3-0", STATE), ("later", "3-0", 1), ("stdout", "4-0", two), ("end", "4-0-end", end)),
        )
        with mock.patch.object(secbox.random, "uniform", return_value=0):
            got = list(client.stream(Job(script="true")))
        self.assertEqual([(each.type, each.data) for each in got], [("status", b""), ("stdout", b"one"), ("status", b""), ("stdout", b"\xff"), ("end", b"")])
        self.assertEqual([each.split(b" HTTP")[0] for each in server.requests], [b"POST /sandbox/execs"] * 2 + [b"GET /sandbox/execs/e1/events"])
        self.assertIn(b"Last-Event-ID: 3-0\r\n", server.requests[2])
        with mock.patch.object(secbox.random, "uniform", return_value=0), self.assertRaises(secbox.ConnectionFailed):
            list(self.fake(events(("status", "0-0", STATE)), events(), retries=1)[1].stream(Job(script="true")))

    def test_names_stay_in_the_directory(self) -> None:
        for name in ("../x", "/etc/x", "a/../../x", "a//b", "", ".", "a/\0"):
            _, client = self.fake(answer("200 OK", {"items": [{"path": name, "size": 1, "sha256": "0"}]}))
            with tempfile.TemporaryDirectory() as d, self.assertRaises(secbox.UnsafePath, msg=name):
                client.save_artifacts("e1", Path(d, "out"))
        for sizes in ((1 << 40, -(1 << 40)), ("1", 0), (None, 0)):  # their sum is not above max_bytes
            _, client = self.fake(answer("200 OK", {"items": [{"path": f"f{n}", "size": size, "sha256": "0"} for n, size in enumerate(sizes)]}))
            with tempfile.TemporaryDirectory() as d, self.assertRaisesRegex(secbox.UnexpectedAnswer, "size"):
                client.save_artifacts("e1", d)
        items = answer("200 OK", {"items": [{"path": "f", "size": 1, "sha256": "0" * 64}]})
        for content in (b"", b"x", b"x" * 100):
            _, client = self.fake(items, answer("200 OK", content, "Content-Type: application/octet-stream"))
            with tempfile.TemporaryDirectory() as d:
                Path(d, "f").symlink_to("/dev/null")
                self.assertRaises(secbox.UnexpectedAnswer, client.save_artifacts, "e1", d)
                self.assertEqual(os.listdir(d), ["f"])
        with mock.patch.object(secbox.os, "name", "nt"):
            for name in ("C:x", "a\\b", "aux.txt", "x.", "a:b"):
                self.assertRaises(secbox.UnsafePath, secbox._parts, name)
        if secbox._Folder.by_handle:
            with mock.patch.object(secbox._Folder, "by_handle", False), tempfile.TemporaryDirectory() as d:
                folder = secbox._Folder(Path(d, "out"))
                self.assertEqual(folder.write(["a", "f"], [b"x"]).read_bytes(), b"x")
                Path(d, "out/l").symlink_to(d)
                self.assertRaises(secbox.UnsafePath, folder.write, ["l", "f"], [b"x"])

    def test_proxy(self) -> None:
        proxy, _ = self.fake(answer("200 OK", RESULT))
        with mock.patch.dict(os.environ, {"http_proxy": proxy.url.replace("//", "//me:p%40ss@"), "no_proxy": "other.example"}):
            client = secbox.Client("http://secbox.example:8003/base", "t", plain_http=True)
            self.assertEqual(client.run(Job(script="true")).exec_id, "e1")
            head = proxy.requests[0].decode()
            self.assertTrue(head.startswith("POST http://secbox.example:8003/base/sandbox/execs HTTP/1.1\r\n"), head)
            self.assertIn("Host: secbox.example:8003\r\n", head)
            self.assertIn("Proxy-Authorization: Basic " + base64.b64encode(b"me:p@ss").decode(), head)
            _, direct = self.fake(answer("200 OK", RESULT))
            self.assertEqual(direct.run(Job(script="true")).exec_id, "e1")
            self.assertEqual(len(proxy.requests), 1)
        with mock.patch.dict(os.environ, {"https_proxy": proxy.url}), self.assertRaises(secbox.SecboxError):
            secbox.Client("https://secbox.example", "secret-of-tls", retries=0).run(Job(script="true"))
        self.assertTrue(proxy.requests[1].startswith(b"CONNECT secbox.example:443 HTTP/1."))
        self.assertNotIn(b"secret-of-tls", proxy.requests[1])

    def test_tls(self) -> None:
        with tempfile.TemporaryDirectory() as d:
            key, certificate = os.path.join(d, "key"), os.path.join(d, "certificate")
            words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=secbox -addext subjectAltName=IP:127.0.0.1"
            subprocess.run(["openssl", *words.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate, key)
            trusted = ssl.create_default_context(cafile=certificate)
        one = {"data": "x" * 10_000, "encoding": "utf-8", "offset": 0}
        end = {**STATE, "status": "succeeded", "artifacts": []}
        server = Fake(answer("200 OK", RESULT), events(("stdout", "1-0", one), ("end", "1-0-end", end)), tls=tls)
        self.addCleanup(server.close)
        url = server.url.replace("http:", "https:")
        client = secbox.Client(url, "t", ssl_context=trusted)
        self.assertEqual(client.run(Job(script="x" * 1_000_000)).exec_id, "e1")
        self.assertEqual([len(each.data) for each in client.stream(Job(script="true"))], [10_000, 0])
        with self.assertRaises(secbox.ConnectionFailed) as refused:
            secbox.Client(url, "secret-of-tls").run(Job(script="true"))
        self.assertIn("certificate verify failed", str(refused.exception))
        self.assertEqual(len(server.requests), 2)  # the token did not go to the other one

    def test_mutated_answers_are_typed_errors(self) -> None:
        piece, end = {"data": "one", "encoding": "utf-8", "offset": 0}, {**STATE, "status": "succeeded", "artifacts": []}
        whole = [
            answer("200 OK", {**RESULT, "artifacts": [{"path": "f", "size": 1, "sha256": "0"}]}),
            answer("200 OK", {"items": [{"path": "f", "size": 1, "sha256": "0"}, {"exec_id": "e1"}, {"error": {"code": "x", "status": 400}}]}),
            answer("200 OK", {"items": [{"error": {"status": 400}}, {"error": {}}, {"error": {"code": "x"}}]}),
            answer("404 No", {"code": "x", "detail": "d", "errors": [{"field": "a", "reason": "b"}]}),
            events(("status", "0-0", STATE), ("stdout", "3-0", piece), ("end", "e", end)),
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n2\r\n1}\r\n0\r\n\r\n",
        ]
        chance = random.Random(17)
        for _ in range(300):
            sent = bytearray(chance.choice(whole))
            for _ in range(chance.choice((1, 1, 3))):
                at, length = chance.randrange(len(sent)), chance.randrange(20)
                other = chance.choice((b"null", b"[]", b"{}", b"5", b"1e999", b'"', b"\r\n", b"\n\n", b"\xff", bytes(sent[at : at + length]) * 2, b""))
                sent[at : at + length * chance.randrange(2)] = other
            server = Fake(bytes(sent))
            client = secbox.Client(server.url, timeout=1, retries=0)
            calls: list[Callable[[], object]] = [
                lambda: client.run(Job(script="true"), wait_s=1),
                lambda: list(client.stream(Job(script="true"))),
                lambda: client.artifacts("e1"),
                lambda: client.batch([Job(script="true")] * 3),
                lambda: list(client.records()),
            ]
            with contextlib.suppress(secbox.SecboxError), mock.patch.object(secbox, "STREAM_SILENCE", 1.0):
                chance.choice(calls)()
            client.close()
            server.close()

    def test_addresses_and_tokens(self) -> None:
        here = "http://127.0.0.1"
        for url, token in (("ftp://x", ""), ("http://u:p@x", ""), ("http://x?y", ""), ("http://10.0.0.1", "t"), (here, "a\nb"), (here, "ä")):
            with self.assertRaises(ValueError) as refused:
                secbox.Client(url, token)
            self.assertNotIn("a\nb", str(refused.exception))

    def test_cancel_of_a_task_closes_its_connection(self) -> None:
        closed, asked = threading.Event(), threading.Event()

        def silent(connection: socket.socket) -> None:
            asked.set()
            if connection.recv(1) == b"":
                closed.set()

        server, _ = self.fake(silent)

        async def main() -> None:
            client = secbox.AsyncClient(server.url, "t")
            task = asyncio.create_task(client.run(Job(script="true")))
            await asyncio.to_thread(asked.wait)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        self.assertTrue(closed.wait(30))

    def test_webhooks(self) -> None:
        secret, body = "whsec_" + base64.b64encode(b"k" * 32).decode(), json.dumps({"type": "exec.ended", "timestamp": "t", "data": STATE}).encode()

        def headers(key: bytes = b"k" * 32, at: int = 1000, signed: bytes = body) -> dict[str, str]:
            mac = base64.b64encode(hmac.digest(key, b"msg_1.%d." % at + signed, "sha256")).decode()
            return {"Webhook-Id": "msg_1", "Webhook-Timestamp": str(at), "Webhook-Signature": "v1,AAAA v2,x v1," + mac}

        self.assertEqual(secbox.verify_webhook(["whsec_AAAA", secret], headers(), body, now=1200).state.exec_id, "e1")
        no_event = b'{"type": 1}'
        for given, content in (
            (headers(b"x" * 32), body),
            (headers(at=899), body),
            (headers(at=1501), body),
            ({**headers(), "Webhook-Timestamp": "9" * 30}, body),
            ({**headers(), "Webhook-Id": "msg_2"}, body),
            ({}, body),
            (headers(signed=no_event), no_event),
        ):
            self.assertRaises(secbox.WebhookError, secbox.verify_webhook, secret, given, content, now=1200)
        self.assertRaises(ValueError, secbox.verify_webhook, "whsec_%%", headers(), body, now=1200)


if __name__ == "__main__":
    unittest.main()
