"""Every command, run as its user runs it: what it prints, and what happens when nobody reads that."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mooncake_store import __version__

COMMANDS = (
    "mooncake_master",
    "mooncake_client",
    "mooncake_proxy",
    "mooncake_http_metadata_server",
    "mooncake",
)
HANG_S = 60


def path_of(command: str) -> str:
    found = shutil.which(command, path=str(Path(sys.executable).parent))
    assert found is not None, f"{command} is not installed beside {sys.executable}"
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_version_is_one_line(command: str) -> None:
    done = subprocess.run([path_of(command), "--version"], capture_output=True, text=True, timeout=HANG_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{command} {__version__}\n", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_into_a_reader_that_went_says_nothing(command: str) -> None:
    process = subprocess.Popen(
        [path_of(command), "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdout.close()  # as `| head` has gone, or `| true` never read
        assert process.stderr.read() == ""
        assert process.wait(HANG_S) in (1, 141)
