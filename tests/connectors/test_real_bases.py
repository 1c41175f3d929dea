"""The connectors over the engines' own classes, where an interpreter has them: docs/engines.md says how."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from master.running import RunningMaster

PROGRAM = Path(__file__).with_name("real_bases.py")
PYTHON = os.environ.get("MOONCAKE_ENGINES_PYTHON", sys.executable)


@pytest.mark.slow
@pytest.mark.parametrize("connector", ["lmcache", "lmcache_l2", "sglang"])
def test_a_connector_over_the_classes_of_its_engine(connector: str) -> None:
    engine = connector.partition("_")[0]
    needed = (engine, "mooncake_client")
    look = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, {needed!r})))"
    if subprocess.run([PYTHON, "-c", look], check=False).returncode != 0:
        pytest.skip(f"{engine} and mooncake-store are not installed for {PYTHON}")
    with RunningMaster() as daemon:
        done = subprocess.run(
            [PYTHON, str(PROGRAM), connector, f"127.0.0.1:{daemon.grpc_port}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
    assert done.stdout.splitlines()[-1:] == ["done"], done.stdout[-3000:] + done.stderr[-3000:]
    assert done.returncode == 0
