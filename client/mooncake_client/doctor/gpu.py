"""Can values come from and go to a GPU here, through pinned memory of the host?

Asked of torch in a process of its own: importing it takes seconds, and a driver that hangs must hang no more
than that.
"""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
from typing import Final

from mooncake_client.doctor.checks import Check

ANSWER_S: Final = 30.0
"""torch and a CUDA context take 5 to 15 s where files are cold."""
_END_S: Final = 1.0
_ASK: Final = """
import torch
if not torch.cuda.is_available():
    print("no", torch.__version__, "sees no CUDA device")
else:
    device = torch.device("cuda", 0)
    pinned = torch.arange(256, dtype=torch.uint8).pin_memory()
    back = torch.empty(256, dtype=torch.uint8, pin_memory=True)
    back.copy_(pinned.to(device, non_blocking=True), non_blocking=False)
    same = bool((back == pinned).all())
    print("yes" if same else "wrong", torch.__version__, torch.cuda.device_count(), "x",
          torch.cuda.get_device_name(0))
"""


def gpu_checks() -> list[Check]:
    if importlib.util.find_spec("torch") is None:
        return [Check("gpu.staging", "ok", "torch is not installed: tensors on a GPU are no concern here")]
    return [_asked()]


def _asked() -> Check:
    remedy = "see nvidia-smi: a driver that does not answer also stops put and get of tensors on the GPU"
    process = subprocess.Popen(
        [sys.executable, "-c", _ASK],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        out, err = process.communicate(timeout=ANSWER_S)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # one stuck in the driver cannot even be killed
            process.communicate(timeout=_END_S)
        return Check(
            "gpu.staging", "warn", f"torch and its driver did not answer within {ANSWER_S:g} s", remedy
        )
    finding, _, said = out.strip().partition(" ")
    if finding == "yes":
        return Check("gpu.staging", "ok", f"tensors go through pinned memory; torch {said}")
    if finding == "no":
        return Check("gpu.staging", "ok", f"torch {said}: only tensors of the host are put and read here")
    if finding == "wrong":
        return Check("gpu.staging", "fail", f"bytes came back from the GPU changed; torch {said}", remedy)
    last = (err.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
    return Check("gpu.staging", "warn", f"torch does not work here: {last[:300]}", remedy)
