"""tools/check_purity.py sees what it promises to see, and finds nothing here."""

import contextlib
import importlib.util
import io
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _load_check_purity() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_purity", ROOT / "tools" / "check_purity.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECK_PURITY = _load_check_purity()


def check(root: Path) -> tuple[int, str]:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = CHECK_PURITY.main([str(root)])
    return code, output.getvalue()


def plant(root: Path, path: str, text: str) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    plant(tmp_path, "native/wire/frame.h", "#include <cstdint>\n#include <atomic>\n")
    plant(
        tmp_path, "native/net/loop.h", '#include "wire/frame.h"\n#include <thread>\n#include <sys/epoll.h>\n'
    )
    plant(tmp_path, "native/metadata/object.cc", '#include "wire/frame.h"\n#include <vector>\n')
    plant(tmp_path, "native/node/core/directory.h", '#include "wire/frame.h"\n')
    plant(
        tmp_path,
        "native/node/memory.cc",
        '#include "node/core/directory.h"\n#include "net/loop.h"\n#include <mutex>\n',
    )
    plant(tmp_path, "native/client/core/retry.h", "#include <cstdint>\n")
    plant(tmp_path, "native/master/lane.cc", '#include "wire/frame.h"\n#include <chrono>\n')
    plant(tmp_path, "mooncake_store/__init__.py", "import os\n")
    plant(tmp_path, "master/mooncake_master/cli.py", "from mooncake_store import _core\n")
    plant(tmp_path, "client/mooncake_client/store.py", "import mooncake_store.errors\n")
    assert check(tmp_path) == (0, "")
    return tmp_path


def test_this_checkout_is_pure() -> None:
    assert check(ROOT) == (0, "")


@pytest.mark.parametrize(
    "header", ["thread", "mutex", "chrono", "random", "fstream", "sys/socket.h", "unistd.h"]
)
@pytest.mark.parametrize("folder", ["wire", "metadata", "node/core", "client/core"])
def test_impure_header_in_a_core_is_named_with_its_line(clean: Path, folder: str, header: str) -> None:
    plant(clean, f"native/{folder}/planted.h", f"#pragma once\n  #  include <{header}>\n")
    code, output = check(clean)
    assert code == 1
    assert output == f"native/{folder}/planted.h:2: <{header}> in a sans-IO core (native/{folder})\n"


@pytest.mark.parametrize(
    ("source", "included", "target"),
    [
        ("metadata/planted.cc", "net/loop.h", "net"),
        ("wire/planted.cc", "metadata/object.cc", "metadata"),
        ("node/core/planted.cc", "node/memory.cc", "node"),
        ("client/core/planted.cc", "node/core/directory.h", "node/core"),
        ("net/planted.cc", "node/memory.cc", "node"),
        ("master/planted.cc", "node/core/directory.h", "node/core"),
    ],
)
def test_include_against_the_direction_is_refused(
    clean: Path, source: str, included: str, target: str
) -> None:
    plant(clean, f"native/{source}", f'#include "{included}"\n')
    code, output = check(clean)
    folder = source.rsplit("/", 1)[0]
    assert code == 1
    assert output == f'native/{source}:1: native/{folder} must not include native/{target} ("{included}")\n'


def test_folder_without_a_rule_and_relative_include_are_refused(clean: Path) -> None:
    plant(clean, "native/stray/planted.h", "")
    plant(clean, "native/net/planted.cc", '#include "loop.h"\n')
    code, output = check(clean)
    assert code == 1
    assert "native/stray has no line in NATIVE_INCLUDES" in output
    assert '"loop.h" is not a path below native/' in output


@pytest.mark.parametrize(
    ("path", "line", "message"),
    [
        (
            "mooncake_store/keys.py",
            "import mooncake_client",
            "mooncake_store must not import mooncake_client",
        ),
        (
            "master/mooncake_master/cli.py",
            "from mooncake_client.store import Store",
            "mooncake_master must not import mooncake_client.store",
        ),
        (
            "client/mooncake_client/store.py",
            "def f():\n    import mooncake_master.cli",
            "mooncake_client must not import mooncake_master.cli",
        ),
    ],
)
def test_python_import_against_the_direction_is_refused(
    clean: Path, path: str, line: str, message: str
) -> None:
    plant(clean, path, line + "\n")
    code, output = check(clean)
    assert code == 1
    assert output == f"{path}:{line.count(chr(10)) + 1}: {message}\n"
