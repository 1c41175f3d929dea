"""Tensors' headers beside those that Mooncake's own wheel writes, where `make bench-peers` has set it up."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from mooncake_client.dropin.tensor_format import DTYPE_CODES, Header

WHEEL_PYTHON = (
    Path(__file__).resolve().parents[2] / "benchmarks" / "peers" / "venvs" / "mooncake" / "bin" / "python"
)
SHAPES = ((), (3,), (2, 3), (0, 3), (1, 2, 3, 4, 5, 6, 7, 8))
PROGRAM = """
import json, sys
try:
    import torch
except ImportError:
    sys.exit("torch")
import mooncake.store as store
shapes, names = json.load(sys.stdin)
headers = {}
for name in names:
    for shape in shapes:
        tensor = torch.zeros(shape, dtype=getattr(torch, name))
        headers[f"{name} {tuple(shape)}"] = store._serialize_tensor(tensor)[0].hex()
print(json.dumps(headers))
"""


def test_headers_are_those_of_mooncakes_wheel() -> None:
    if not WHEEL_PYTHON.exists():
        pytest.skip("Mooncake's wheel is not installed: make bench-peers PEERS=mooncake")
    done = subprocess.run(
        [WHEEL_PYTHON, "-c", PROGRAM],
        input=json.dumps((SHAPES, [*DTYPE_CODES])),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.stderr.strip().endswith("torch"):
        pytest.skip(
            "Mooncake's wheel has no torch beside it: benchmarks/peers/venvs/mooncake/bin/pip install torch"
        )
    assert done.returncode == 0, done.stderr
    headers = json.loads(done.stdout.splitlines()[-1])
    assert len(headers) == len(SHAPES) * len(DTYPE_CODES)
    for name, code in DTYPE_CODES.items():
        for shape in SHAPES:
            assert headers[f"{name} {shape}"] == Header(code, shape, shape).pack().hex(), (name, shape)
