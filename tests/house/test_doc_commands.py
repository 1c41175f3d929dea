"""The documents' blocks: each is run, compared with what it names, or has its reason here not to be.

Python blocks of README.md and docs/ are run by test_readme.py and test_docs.py. README's section "By hand" is
carried out here as it stands, but for its ports.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import processes
import pytest

from mooncake_client.node_config import NODE_FLAGS
from mooncake_master.config import MASTER_FLAGS
from mooncake_proxy.config import PROXY_FLAGS
from mooncake_store.flags import FlagTable
from mooncake_store.metadata_server.command import METADATA_SERVER_FLAGS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))]
HANG_S = 120
DAEMONS: dict[str, FlagTable[Any]] = {
    "mooncake_master": MASTER_FLAGS,
    "mooncake_client": NODE_FLAGS,
    "mooncake_proxy": PROXY_FLAGS,
    "mooncake_http_metadata_server": METADATA_SERVER_FLAGS,
}
"""Their command lines are read, not started."""

# The first word of each command that no test runs.
NOT_RUN = {
    "make": "the targets are how the tests themselves are started; their names are compared with Makefile",
    "apt-get": "needs root, and changes the machine",
    "cmake": "make build does the same through pip",
    "curl": "asks daemons that no document starts; tests of the daemons ask the same paths",
}


def blocks(document: str) -> list[tuple[str, str]]:
    """Language and text of each fenced block."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(document: str) -> list[list[str]]:
    """The words of each line of its shell blocks."""
    lines = [line for language, text in blocks(document) if language == "sh" for line in text.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def by_hand() -> str:
    """README's section that shows a master, a node and a client, each in a terminal."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return readme.split("## By hand\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_blocks_are_of_kinds_that_are_tested(document: str) -> None:
    for language, text in blocks(document):
        assert language in {"python", "sh", "json", ""}, f"no test looks at ```{language}:\n{text}"
        if language == "json":
            json.loads(text)
        if language == "python":
            assert document != "CONTRIBUTING.md", "no test runs the Python there"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_are_run_or_have_a_reason_not_to_be(document: str) -> None:
    run_here = [words for line in by_hand().splitlines() if (words := line.split("#")[0].split())]
    for words in commands(document):
        if words[0] in NOT_RUN or words in run_here:
            continue
        if words[0] in DAEMONS:
            DAEMONS[words[0]].load(words[1:])
            continue
        assert words[0] == "mooncake", f"{document}: {shlex.join(words)} is neither run nor has a reason"
        shown = subprocess.run(
            [command("mooncake"), words[1], "--help"], capture_output=True, text=True, timeout=HANG_S
        )
        assert shown.returncode == 0, f"{document}: {shlex.join(words)}\n{shown.stderr}"
        flags = {word.split("=")[0] for word in words[2:] if word.startswith("--")} - {"--master"}
        assert [flag for flag in flags if flag not in shown.stdout] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_make_targets_and_variables_exist(document: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for words in commands(document):
        if words[0] != "make":
            continue
        for word in words[1:]:
            name, is_variable, _ = word.partition("=")
            found = rf"\$\({name}\)" if is_variable else rf"^{re.escape(name)}:"
            assert re.search(found, makefile, re.MULTILINE), f"{document}: {shlex.join(words)}"


def command(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    assert found is not None, f"{name} is not installed beside {sys.executable}"
    return found


@pytest.mark.slow  # lends 1 GiB
def test_by_hand_works_as_it_stands(tmp_path: Path) -> None:
    """Its ports alone are replaced, because somebody may have them here."""
    section = by_hand()
    shells = [
        text for language, text in re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL) if language == "sh"
    ]
    (client,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    daemons, looks = shells
    master_words, node_words = (shlex.split(line) for line in daemons.splitlines())
    assert (master_words[:2], node_words[0]) == (["mooncake_master", "--port"], "mooncake_client")

    with processes.master(0, *master_words[3:]) as master:
        http = master.wait_for(processes.MASTER_READY).group(3)
        address = processes.address_of(master)
        assert "127.0.0.1:50001" in node_words
        flags = [address if word == "127.0.0.1:50001" else word for word in node_words[1:]]
        with processes.Process(processes.NODE, *flags) as node:
            node.wait_for(processes.NODE_READY)
            done = run(sys.executable, "-c", client.replace("127.0.0.1:50001", address), cwd=tmp_path)
            assert done == "[b'first', b'second', None]\n"

            look, curl = looks.splitlines()
            first, others = look.split("# or: ")
            assert "tcp://" in run(*with_path(first), cwd=tmp_path, master=address)
            known = run(command("mooncake"), "--help", cwd=tmp_path)
            assert [name for name in others.split(", ") if name.strip() not in known] == []
            (path,) = re.findall(r"localhost:9003(\S+)", curl)
            with urllib.request.urlopen(f"http://127.0.0.1:{http}{path}", timeout=HANG_S) as answer:
                assert b"keys" in answer.read().lower()


def with_path(line: str) -> list[str]:
    name, *arguments = shlex.split(line)
    return [command(name), *arguments]


def run(*words: str, cwd: Path, master: str = "") -> str:
    environment = os.environ | ({"MOONCAKE_MASTER": master} if master else {})
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
