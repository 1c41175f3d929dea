"""A user's installation: from the source distribution, in a fresh environment, used elsewhere."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """This one without what points at this checkout's virtual environment."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment() if env is None else env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_source_distribution_installs_and_runs_elsewhere(tmp_path: Path) -> None:
    build = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    run(sys.executable, "-c", build, tmp_path, cwd=ROOT)
    (archive,) = tmp_path.glob("mooncake_store-*.tar.gz")
    with tarfile.open(archive) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    assert {"CMakeLists.txt", "LICENSE", "README.md", "native/bindings/module.cc"} <= names
    assert not [name for name in names if re.match(r"\.venv|\.ci|build/|.*\.so$", name)]

    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", archive, cwd=tmp_path)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    show = "import mooncake_store as m; print(m.__version__, m._core.version(), m.__path__[0])"
    run(python, "-W", "error", "-c", "import mooncake_store.v1.master_pb2_grpc", cwd=elsewhere)
    version, native, location = run(python, "-c", show, cwd=elsewhere).split()
    assert version == native
    installed = Path(location)
    assert installed.is_relative_to(tmp_path / "venv")
    assert {"py.typed", "_core.pyi", "_version.py"} <= {path.name for path in installed.iterdir()}

    top_level = {path.name for path in installed.parent.iterdir()}
    assert top_level.isdisjoint({"tests", "tools", "native", "examples", "benchmarks", "proto"})
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert example is not None
    run(python, "-W", "error", "-c", example.group(1), cwd=elsewhere)
    for command in ("mooncake_master", "mooncake_client", "mooncake_proxy"):
        assert command in run(python.parent / command, "--help", cwd=elsewhere)


def built_wheel() -> Path:
    """What `make wheels` left for this Python, unless the sources have changed since."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    wheels = list((ROOT / "dist").glob(f"mooncake_store-*-{tag}-{tag}-*manylinux*.whl"))
    if not wheels:
        pytest.skip("dist/ holds no wheel for this Python: make wheels")
    wheel = max(wheels, key=lambda path: path.stat().st_mtime)
    sources = [
        path
        for folder in ("native", "mooncake_store", "master", "client", "proxy")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".cc", ".h", ".py", ".pyi"}
    ]
    if any(path.stat().st_mtime > wheel.stat().st_mtime for path in sources):
        pytest.skip(f"{wheel.name} is older than the sources: make wheels")
    return wheel


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_wheel_installs_and_serves_where_there_is_no_compiler(tmp_path: Path) -> None:
    """Seconds from the start to the first put and get are printed (UP 11 promises 5), and decide nothing."""
    wheel = built_wheel()
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    bare = environment() | {"PATH": str(tmp_path / "venv" / "bin")}
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--only-binary=:all:", wheel, cwd=tmp_path, env=bare)

    for command, extra, arguments in (
        ("mooncake_master", "master", ["--port=0"]),
        ("mooncake_proxy", "proxy", ["--port=0", "--model=m", "--decode=127.0.0.1:1"]),
        ("mooncake", "cli", ["status"]),
    ):
        done = subprocess.run(
            [python.parent / command, *arguments],
            cwd=tmp_path,
            env=bare,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode != 0
        assert f"is missing: pip install 'mooncake-store[{extra}]'" in done.stderr
        assert "Traceback" not in done.stderr

    run(python, "-m", "pip", "install", "--only-binary=:all:", f"{wheel}[all]", cwd=tmp_path, env=bare)
    print(run(python, "-W", "error", ROOT / "tools" / "smoke_installed.py", cwd=tmp_path, env=bare))


def test_checkout_without_the_native_module_says_so_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import mooncake_store"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("ImportError: mooncake_store._core is not built")
    assert "pip install -e ." in last
