"""Backends of engines, unmodified: one process saves, another that lends nothing loads what it saved."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from master.running import RunningMaster

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("engine_backends.py")
ENGINES = ("vllm", "sglang", "lmcache", "encoder_cache")


def start(engine: str, master: str, act: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(PROGRAM), engine, master, act],
        env={**os.environ, "PYTHONPATH": str(ROOT / "compat")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_one_process_saves_and_another_loads(engine: str) -> None:
    with RunningMaster() as daemon:
        master = f"127.0.0.1:{daemon.grpc_port}"
        with start(engine, master, "save") as saver:
            assert saver.stdout is not None
            assert saver.stdout.readline() == '{"did": "save"}\n'
            with start(engine, master, "load") as loader:
                assert loader.stdout is not None
                assert loader.stdout.read() == '{"did": "load"}\n'
            assert loader.returncode == 0
            assert saver.stdin is not None
            saver.stdin.close()
        assert saver.returncode == 0
