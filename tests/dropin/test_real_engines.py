"""LMCache's, SGLang's and vLLM's own classes, where an interpreter has them: docs/dropin.md says how."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from master.running import RunningMaster

PROGRAM = Path(__file__).with_name("real_engines.py")
PYTHON = os.environ.get("MOONCAKE_ENGINES_PYTHON", sys.executable)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["lmcache", "sglang", "vllm"])
def test_classes_of_the_engine_itself(engine: str) -> None:
    # find_spec does not import it, which takes half a minute and may need a GPU.
    look = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ({engine!r}, 'mooncake'))))"
    if subprocess.run([PYTHON, "-c", look], check=False).returncode != 0:
        pytest.skip(f"{engine} and mooncake-store-compat are not installed for {PYTHON}")
    with RunningMaster() as daemon:
        done = subprocess.run(
            [PYTHON, str(PROGRAM), engine, f"127.0.0.1:{daemon.grpc_port}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.stdout.splitlines()[-1:] == ["done"], done.stdout[-3000:] + done.stderr[-3000:]
    assert done.returncode == 0
