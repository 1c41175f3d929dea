"""vLLM itself with our connector, on a CPU: texts and counters, never times (docs/engines.md)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from processes import NODE_READY, address_of, free_port, master, node, wait_until

PYTHON = os.environ.get("MOONCAKE_ENGINES_PYTHON", "")
MODEL = os.environ.get("MOONCAKE_ENGINES_MODEL", "")
START_S, ANSWER_S = 300, 280
BLOCK_TOKENS = 128
HITS, FAILED = "vllm:external_prefix_cache_hits_total", 'client_total{engine="0",kind="failed_load_blocks"'
LOADED, SAVED = 'client_total{engine="0",kind="loaded_blocks"', 'client_total{engine="0",kind="saved_blocks"'
PROMPTS = [
    "Once upon a time in a small town by the sea there lived a clock maker. " * 85,
    "The history of the lighthouse begins with a storm and a ship. " * 100,
]

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (PYTHON and MODEL), reason="MOONCAKE_ENGINES_PYTHON or MOONCAKE_ENGINES_MODEL is not set"
    ),
]


class Server:
    """One vLLM server; context manager."""

    def __init__(self, folder: Path, master_address: str, role: str | None) -> None:
        self.port, self.blocks = free_port(), 0
        self.log = folder / f"server-{self.port}.log"
        (folder / "rpc").mkdir(exist_ok=True)
        command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", MODEL]
        command += ["--served-model-name=m", "--host=127.0.0.1", f"--port={self.port}", "--dtype=bfloat16"]
        command += ["--max-model-len=2048", "--max-num-seqs=8", "--enforce-eager"]
        if role is not None:
            transfer = {
                "kv_connector": "MooncakeStoreConnector",
                "kv_connector_module_path": "mooncake_client.connectors.vllm",
                "kv_role": role,
            }
            command.append(f"--kv-transfer-config={json.dumps(transfer)}")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "HF_HUB_OFFLINE": "1",
                    "VLLM_CPU_KVCACHE_SPACE": "1",
                    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                    "OMP_NUM_THREADS": "2",
                    "VLLM_NO_USAGE_STATS": "1",
                    "DO_NOT_TRACK": "1",
                    "VLLM_SERVER_DEV_MODE": "1",
                    "VLLM_HOST_IP": "127.0.0.1",
                    "MOONCAKE_MASTER": master_address,
                },
            )

    def __enter__(self) -> Server:
        deadline = time.monotonic() + START_S
        pause = 0.5
        while True:
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            try:
                self.get("/health")
                return self
            except (URLError, ConnectionError, TimeoutError):
                assert time.monotonic() < deadline, self.log.read_text()[-4000:]
                time.sleep(pause)

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(60)

    def get(self, path: str, body: bytes | None = None) -> bytes:
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(f"http://127.0.0.1:{self.port}{path}", body, headers), timeout=ANSWER_S) as page:
            answer: bytes = page.read()
            return answer

    def text(self, prompt: str) -> str:
        """Greedy; `blocks` becomes the sum of full blocks of the prompts that were asked."""
        body = {"model": "m", "prompt": prompt, "max_tokens": 16, "temperature": 0}
        answer: Any = json.loads(self.get("/v1/completions", json.dumps(body).encode()))
        self.blocks += answer["usage"]["prompt_tokens"] // BLOCK_TOKENS
        text: str = answer["choices"][0]["text"]
        return text

    def forget(self) -> None:
        """Drop what this server computed from its own cache."""
        self.get("/reset_prefix_cache", b"")

    def count(self, name: str) -> float:
        lines = self.get("/metrics").decode().splitlines()
        found = [line for line in lines if name in line and not line.startswith("#")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)


@pytest.fixture
def pool() -> Iterator[tuple[str, list[Any]]]:
    """A master's address, and the two nodes over which its blocks are spread."""
    with master() as running:
        address = address_of(running)
        flags = ("--global_segment_size=96mb",)
        with node(address, *flags) as one, node(address, *flags) as other:
            for each in (one, other):
                each.wait_for(NODE_READY)
            yield address, [one, other]


def test_engines_share_blocks_and_outlive_their_owner(pool: tuple[str, list[Any]], tmp_path: Path) -> None:
    """The texts are those of a server without a store, also when half of the blocks are lost."""
    address, nodes = pool
    with Server(tmp_path, address, None) as plain:
        wanted = [plain.text(prompt) for prompt in PROMPTS]
    with Server(tmp_path, address, "kv_producer") as prefill:
        assert [prefill.text(prompt) for prompt in PROMPTS] == wanted
        wait_until(lambda: prefill.count(SAVED) == prefill.blocks > 0, "all blocks are saved")
        assert prefill.count(HITS) == 0
        blocks = prefill.blocks
    with Server(tmp_path, address, "kv_both") as decode:
        assert [decode.text(prompt) for prompt in PROMPTS] == wanted
        assert decode.count(HITS) == blocks * BLOCK_TOKENS
        assert decode.count(LOADED) == blocks
        for each in nodes:  # half of the blocks are lost, then all
            decode.forget()
            each.end(signal.SIGKILL)
            assert [decode.text(prompt) for prompt in PROMPTS] == wanted
        assert decode.count(LOADED) < 2 * blocks
