"""tools/check_wheel.py refuses what an older machine could not load or run, and nothing else."""

import importlib.util
import platform
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump (binutils) is not installed"),
]
x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions are checked on x86-64 only")


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_wheel", ROOT / "tools" / "check_wheel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECK_WHEEL = _load()


@pytest.fixture
def breaches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """What the tool says of a wheel with one library, compiled from the given text with the given flags."""

    def check(code: str, *flags: str) -> list[str]:
        source, library, wheel = (tmp_path / name for name in ("code.cc", "code.so", "code.whl"))
        source.write_text(code, encoding="utf-8")
        subprocess.run(
            ["g++", "-shared", "-fPIC", "-O1", str(source), *flags, "-o", str(library)],
            check=True,
            timeout=120,
        )
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(library, "package/code.so")
        status = CHECK_WHEEL.main([str(wheel)])
        lines = capsys.readouterr().out.splitlines()
        assert status == (1 if lines else 0)
        return [line.removeprefix(f"{wheel}: package/code.so: ") for line in lines]

    return check


def test_a_plain_library_passes(breaches: Callable[..., list[str]]) -> None:
    assert breaches("#include <cstring>\nsize_t f(const char* s) { return strlen(s); }") == []


def test_a_symbol_of_a_newer_libc_is_named(breaches: Callable[..., list[str]], tmp_path: Path) -> None:
    # The same symbol that a build on a newer system would ask for; a library of that name stands in for libc.
    folder = tmp_path / "newer"
    folder.mkdir()
    (folder / "versions").write_text("GLIBC_2.30 { global: newer; local: *; };", encoding="utf-8")
    subprocess.run(
        [
            "g++",
            "-shared",
            "-fPIC",
            "-o",
            str(folder / "libc.so.6"),
            "-Wl,-soname,libc.so.6",
            f"-Wl,--version-script={folder / 'versions'}",
            "-x",
            "c++",
            "-",
        ],
        input=b'extern "C" int newer() { return 1; }',
        check=True,
        timeout=120,
    )
    found = breaches(
        'extern "C" int newer(); int f() { return newer(); }', "-nostdlib", str(folder / "libc.so.6")
    )
    assert found == ["needs GLIBC_2.30; manylinux_2_28 has GLIBC_2.28"]


def test_a_library_that_not_every_machine_has_is_named(
    breaches: Callable[..., list[str]], tmp_path: Path
) -> None:
    subprocess.run(
        ["g++", "-shared", "-o", str(tmp_path / "libodd.so.3"), "-Wl,-soname,libodd.so.3", "-x", "c++", "-"],
        input=b"int odd() { return 1; }",
        check=True,
    )
    found = breaches(
        "int odd(); int f() { return odd(); }", str(tmp_path / "libodd.so.3"), "-Wl,-rpath,/opt/odd"
    )
    assert found == [
        "needs libodd.so.3, which not every machine has",
        "searches for libraries in /opt/odd",
    ]


VECTORS = """
#include <immintrin.h>
#define LATER __attribute__((target("avx2"), noinline))
LATER void {name}(float* data) {{
    _mm256_storeu_ps(data, _mm256_sqrt_ps(_mm256_loadu_ps(data)));
}}
"""


@x86_64
def test_an_instruction_of_a_later_processor_is_named_with_its_function(
    breaches: Callable[..., list[str]],
) -> None:
    (breach,) = breaches(VECTORS.format(name="everywhere"))
    assert "everywhere(float*), which is not a kernel chosen at run time" in breach
    assert breach.startswith("v")


@x86_64
def test_a_kernel_that_is_chosen_at_run_time_may_have_them(breaches: Callable[..., list[str]]) -> None:
    assert breaches(VECTORS.format(name="update_by_vectors")) == []


@x86_64
@pytest.mark.parametrize("flag", ["-mcrc32", "-mpopcnt", "-msse4.1", "-mbmi2"])
def test_a_library_built_for_a_later_processor_is_seen(breaches: Callable[..., list[str]], flag: str) -> None:
    code = {
        "-mcrc32": "unsigned f(unsigned a, unsigned b) { return __builtin_ia32_crc32si(a, b); }",
        "-mpopcnt": "int f(unsigned a) { return __builtin_popcount(a); }",
        "-msse4.1": "#include <smmintrin.h>\n__m128i f(__m128i a) { return _mm_mullo_epi32(a, a); }",
        "-mbmi2": "unsigned f(unsigned a, unsigned b) { return a << (b & 31); }",
    }[flag]
    assert len(breaches(code, flag)) == 1


@x86_64
def test_without_a_symbol_table_nothing_is_believed(breaches: Callable[..., list[str]]) -> None:
    (breach,) = breaches("int f() { return 1; }", "-s")
    assert "no symbol table" in breach


def test_a_wheel_without_native_code_is_not_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "empty.whl", "w") as archive:
        archive.writestr("package/__init__.py", "")
    assert CHECK_WHEEL.main([str(tmp_path / "empty.whl")]) == 1
    assert "holds no shared library" in capsys.readouterr().out
