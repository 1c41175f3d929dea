"""The Python blocks of docs/ run from top to bottom and print what their comments say."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mooncake_client import Store

ROOT = Path(__file__).resolve().parents[2]
API = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")

PROMISED = re.compile(r"^print\(.*\)  # ([^;:\n]*)", re.MULTILINE)
"""What a line prints, up to an explanation after `;` or `:`."""


def python_of(document: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL))


@pytest.mark.parametrize("document", [path for path in sorted(ROOT.glob("docs/*.md")) if python_of(path)])
def test_python_blocks_run_in_order_and_print_what_they_say(document: Path, tmp_path: Path) -> None:
    code = python_of(document)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    printed = iter(done.stdout.splitlines())
    promised = [match.group(1).strip() for match in PROMISED.finditer(code)]
    assert promised
    for promise in promised:
        assert promise in printed, f"nothing after the line before printed {promise!r}:\n{done.stdout}"


def test_the_reference_promises_what_its_examples_print() -> None:
    assert len(PROMISED.findall(python_of(ROOT / "docs" / "python-api.md"))) > 20


def test_every_public_name_of_store_is_described() -> None:
    names = [name for name in vars(Store) if not name.startswith("_")]
    assert [name for name in names if not re.search(rf"\b{name}\b", API)] == []


@pytest.mark.parametrize(
    ("command", "module", "table"),
    [
        ("mooncake_master", "mooncake_master.config", "MASTER_FLAGS"),
        ("mooncake_client", "mooncake_client.node_config", "NODE_FLAGS"),
        ("mooncake_proxy", "mooncake_proxy.config", "PROXY_FLAGS"),
    ],
)
def test_operations_describes_every_flag_and_no_other(command: str, module: str, table: str) -> None:
    flags = getattr(importlib.import_module(module), table).flags
    section = OPERATIONS.split(f"## Flags of `{command}`", 1)[1].split("\n## ", 1)[0]
    named = set(re.findall(r"`--([a-z_]+)", section)) | {"config_path"}
    settings = {row.name for row in flags if row.field}
    assert named == settings
