"""`mooncake_proxy` as a process: its flags, its log, its end."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import processes
import pytest

from mooncake_proxy.config import PROXY_FLAGS, ProxyConfig, Secrets
from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import InvalidArgument

PROXY = "mooncake_proxy.cli"
READY = r"serves m on 127\.0\.0\.1:(\d+)"
WELL = r"instance \S+ is well"
HANG_S = 60


class Engine(ThreadingHTTPServer):
    """Its answers wait for `may_answer`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.may_answer = threading.Event()
        self.asked = threading.Event()


class Answers(BaseHTTPRequestHandler):
    server: Engine
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b'{"data": [{"id": "m"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.set()
        self.server.may_answer.wait(HANG_S)
        self._answer(b'{"choices": []}')

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def engine() -> Iterator[Engine]:
    with Engine() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def completion(port: int) -> Any:
    body = json.dumps({"model": "m", "prompt": "Hello"}).encode()
    request = Request(
        f"http://127.0.0.1:{port}/v1/completions", body, headers={"Content-Type": "application/json"}
    )
    with urlopen(request, timeout=HANG_S) as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_lets_running_requests_end(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADMIN_API_KEY", "do-not-print-me")
    with engine() as server:
        address = f"127.0.0.1:{server.server_address[1]}"
        flags = ("--model", "m", "--prefill", address, "--decode", address, "--port=0", "--host=127.0.0.1")
        with processes.Process(PROXY, *flags, "--scheduling", "round_robin") as proxy:
            port = int(proxy.wait_for(READY)[1])
            proxy.wait_for(WELL)
            got: list[Any] = []
            client = threading.Thread(target=lambda: got.append(completion(port)))
            client.start()
            assert server.asked.wait(HANG_S)
            proxy.send(number)
            proxy.wait_for("stopping")
            processes.wait_until(lambda: not accepts(port), "the port is closed")
            server.may_answer.set()
            client.join(HANG_S)
            assert got == [{"choices": []}]
            assert proxy.wait() == 0
            assert "do-not-print-me" not in proxy.log
            assert "ADMIN_API_KEY is set" in proxy.log


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_requests_that_do_not_end_are_cut_off_after_stop_timeout() -> None:
    with engine() as server:
        address = f"127.0.0.1:{server.server_address[1]}"
        with processes.Process(
            PROXY, "-m", "m", "-d", address, "--port=0", "--host=127.0.0.1", "--stop_timeout=50ms"
        ) as proxy:
            port = int(proxy.wait_for(READY)[1])
            proxy.wait_for(WELL)
            body = b'{"prompt": "x"}'
            head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as client:
                client.sendall(head + body)
                assert server.asked.wait(HANG_S)
                assert proxy.end() == 0
                assert client.recv(1_000) == b""
            assert "1 requests are cut off (--stop_timeout)" in proxy.log
        server.may_answer.set()


def test_a_second_signal_ends_it_at_once() -> None:
    with engine() as server:
        address = f"127.0.0.1:{server.server_address[1]}"
        with processes.Process(PROXY, "-m", "m", "-d", address, "--port=0", "--host=127.0.0.1") as proxy:
            port = int(proxy.wait_for(READY)[1])
            proxy.wait_for(WELL)
            body = b'{"prompt": "x"}'
            head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as client:
                client.sendall(head + body)
                assert server.asked.wait(HANG_S)
                proxy.send(signal.SIGTERM)
                proxy.wait_for("stopping")
                assert proxy.end(signal.SIGTERM) == -signal.SIGTERM
        server.may_answer.set()


def test_a_port_in_use_names_the_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with processes.Process(
            PROXY, "-m", "m", "-d", "127.0.0.1:1", f"--port={port}", "--host=127.0.0.1"
        ) as proxy:
            assert proxy.wait() == 1
            assert re.search(rf"cannot listen on 127\.0\.0\.1:{port} \(port {port}, flag --port\)", proxy.log)


def test_the_guides_command_line_is_understood() -> None:
    words = (
        "--model Qwen/Q --prefill localhost:8100 localhost:8101 --decode localhost:8200 localhost:8201 "
        "--port 8000 --scheduling round_robin"
    )
    config = PROXY_FLAGS.load(words.split()).config
    assert config.prefill == (Endpoint("localhost", 8100), Endpoint("localhost", 8101))
    assert config.decode == (Endpoint("localhost", 8200), Endpoint("localhost", 8201))
    assert (config.model, config.port, config.scheduling) == ("Qwen/Q", 8000, "round_robin")
    short = PROXY_FLAGS.load(["-m", "Qwen/Q", "-p", "[::1]:1,a:2", "b:3", "-d=c:4", "-d", "d:5"]).config
    assert list(map(str, short.prefill)) == ["[::1]:1", "a:2", "b:3"]
    assert list(map(str, short.decode)) == ["c:4", "d:5"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-d a:1", "--model is not given"),
        ("-m m", "--decode is not given"),
        ("-m m -d a:1 --prefil b:2", r"--prefil is unknown; did you mean --prefill\?"),
        ("-m m -d http://a:1", "http:// addresses are not supported"),
        ("-m m -d a", "has no port"),
        ("-m m -d 0.0.0.0:1", "means every interface"),
        ("-m m -d a:1 --scheduling random", "choose one of round_robin"),
        ("-m m -d a:1 --decode", "a value must follow"),
        ("-m m -d a:1 --bodies_bytes_max 1MB", "is less than --body_bytes_max"),
    ],
)
def test_a_wrong_flag_is_named(words: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        PROXY_FLAGS.load(words.split())


def test_a_file_may_hold_the_lists(tmp_path: Path) -> None:
    file = tmp_path / "proxy.json"
    file.write_text(json.dumps({"model": "m", "prefill": ["a:1", "b:2"], "decode": "c:3,d:4"}))
    config = PROXY_FLAGS.load([f"--config_path={file}"]).config
    assert list(map(str, config.prefill + config.decode)) == ["a:1", "b:2", "c:3", "d:4"]


def test_secrets_come_by_the_environment_and_are_not_shown() -> None:
    secrets = Secrets.of({"ADMIN_API_KEY": "hidden-1", "OPENAI_API_KEY": "hidden-2"})
    assert "hidden" not in repr(secrets)
    with pytest.raises(InvalidArgument, match="ADMIN_API_KEY") as refused:
        Secrets.of({"ADMIN_API_KEY": "line\nbreak"})
    assert "line" not in str(refused.value)


def test_help_needs_no_aiohttp() -> None:
    code = "import sys; sys.modules['aiohttp'] = None; from mooncake_proxy.cli import main; main(['--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--prefill, -p" in done.stdout
    assert "ADMIN_API_KEY" in done.stdout


def test_settings_are_checked_at_every_door() -> None:
    with pytest.raises(InvalidArgument, match="requests_max"):
        ProxyConfig(model="m", decode=(Endpoint("a", 1),), requests_max=0)
