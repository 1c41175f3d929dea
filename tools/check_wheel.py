"""Refuses a wheel that would not run on every machine its tag promises; `make wheels` runs it.

Three rules for each shared library inside, from what `objdump` says of it: it asks for no symbol version and
no library beyond manylinux_2_28 (glibc 2.28: RHEL 8, Debian 10, Ubuntu 20.04); it has no search path; and on
x86-64 no function but the kernels, which are chosen at run time, has an instruction that the first x86-64
processors lack. The last needs the symbol table, so wheels are not stripped; backtraces profit too.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

# PEP 600 and auditwheel's policy of manylinux_2_28, which is the same on x86-64 and aarch64.
VERSIONS_MAX = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
LIBRARIES = re.compile(
    r"lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so\.\d+|ld-linux-(x86-64\.so\.2|aarch64\.so\.1)"
)

# native/wire/crc32c_x86.cc: chosen by what the running processor says of itself.
KERNELS = re.compile(r"\b((update|copy)_by_\w+|copy_in_chunks|fold_\w+|load_lane|load_vector)\b")

# Mnemonics that came after SSE2. tzcnt is not among them: on an older processor it runs as bsf, which is what
# compilers mean by it.
LATER = re.compile(
    r"v(?!er[rw]\b|m[a-z]+\b)[a-z]\w+"  # AVX and later
    r"|crc32\w*|pclmul\w*|popcnt|lzcnt|movbe|aes\w+|sha(1|256)\w+|rdrand|rdseed|adcx|adox"
    r"|andn|bextr|bls(i|r|msk)|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx"
    r"|addsubp[sd]|h(add|sub)p[sd]|lddqu|mov(d|sh|sl)dup|fisttp\w*"  # SSE3
    r"|pshufb|ph(add|sub)\w+|pmaddubsw|pmulhrsw|psign[bwd]|pabs[bwd]|palignr"  # SSSE3
    r"|p?blend\w+|dpp[sd]|extractps|insertps|mpsadbw|packusdw|pcmp(eq|gt)q|pextr[bdq]|pinsr[bdq]"
    r"|p(max|min)(sb|sd|ud|uw)|pmov[sz]x\w+|pmuldq|pmulld|ptest|round[sp][sd]|pcmp[ei]str[im]|movntdqa"
)


def main(argv: list[str]) -> int:
    """Exit status 1 when a wheel breaks a rule; each breach is a line."""
    breaches = [f"{path}: {breach}" for path in argv for breach in check_wheel(Path(path))]
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


def check_wheel(wheel: Path) -> Iterator[str]:
    """The breaches of every shared library in it."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if re.search(r"\.so(\.\d+)*$", name)]
        if not names:
            yield "holds no shared library"
        for name in names:
            for breach in check_library(Path(archive.extract(name, folder))):
                yield f"{name}: {breach}"


def check_library(library: Path) -> Iterator[str]:
    """The breaches of one shared library."""
    headers = _objdump("-p", library)
    for text in re.findall(r"^ +NEEDED +(\S+)", headers, re.MULTILINE):
        if not LIBRARIES.fullmatch(text):
            yield f"needs {text}, which not every machine has"
    for text in re.findall(r"^ +(?:RPATH|RUNPATH) +(\S+)", headers, re.MULTILINE):
        yield f"searches for libraries in {text}"
    wanted = re.findall(r"\b(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)$", headers, re.MULTILINE)
    for family, version in sorted(set(wanted)):
        if tuple(map(int, version.split("."))) > VERSIONS_MAX[family]:
            limit = ".".join(map(str, VERSIONS_MAX[family]))
            yield f"needs {family}_{version}; manylinux_2_28 has {family}_{limit}"
    if "x86-64" in headers:
        yield from _later_instructions(library)


def _later_instructions(library: Path) -> Iterator[str]:
    """One line a function that a processor of the first x86-64 generation could not run."""
    if "no symbols" in _objdump("-t", library):
        yield "has no symbol table to tell functions by; build it with install.strip=false"
        return
    function, told = "", ""
    for line in _objdump("-dC", "--no-show-raw-insn", library).splitlines():
        if header := re.fullmatch(r"[0-9a-f]+ <(.*)>:", line):
            function = header[1]
        elif instruction := re.match(r" +[0-9a-f]+:\s+(?:(?:rep|repz|lock|data16|notrack) )*(\w+)", line):
            is_later = LATER.fullmatch(instruction[1]) and not KERNELS.search(function)
            if is_later and told != function:
                told = function
                yield f"{instruction[1]} in {function}, which is not a kernel chosen at run time"


def _objdump(*arguments: str | Path) -> str:
    return subprocess.run(
        ["objdump", *map(str, arguments)], capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
