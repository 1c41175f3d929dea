"""What README shows runs as it stands there, and the documents' links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def python_example() -> str:
    """The first Python block of README; tests/house/test_packaging.py runs it too."""
    match = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert match is not None
    return match.group(1)


def test_example_runs_where_a_newcomer_pastes_it(tmp_path: Path) -> None:
    for directory in (tmp_path, ROOT):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", python_example()],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        *sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md")),
    ],
)
def test_links_between_documents_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    targets = {target for target in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in target}
    missing = [target for target in targets if not (ROOT / document).parent.joinpath(target).exists()]
    assert missing == []
