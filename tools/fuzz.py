"""Builds the fuzz targets with libFuzzer and runs each for a while; `make fuzz` calls it.

    python tools/fuzz.py [--seconds 30] [--seed 1] [--only master_fuzz] [--minimize]
    python tools/fuzz.py --clang     # the compiler it would use; fails where there is none

A target starts from tests/fuzz/corpus/TARGET and keeps what it finds in build/fuzz/corpus/TARGET. An input
that kills it is left in build/fuzz/crashes, with the command that replays it. --minimize then rewrites the
corpus of the repository: the target's seeds and the smallest inputs that reach what all inputs known reach.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "fuzz"
CORPUS = ROOT / "tests" / "fuzz" / "corpus"

# What one input may cost: no peer's few bytes may make us allocate more, or wait longer.
LIMITS = ["-max_len=16384", "-timeout=25", "-malloc_limit_mb=256", "-rss_limit_mb=2048"]
NO_CLANG = (
    "make fuzz needs clang with libFuzzer. On Debian: apt-get install clang libclang-rt-dev "
    "(the corpus is replayed without them by `pytest tests/native`)"
)


def find_clang() -> str | None:
    """A clang++ that links libFuzzer, or None."""
    for name in ("clang++", *(f"clang++-{version}" for version in range(21, 13, -1))):
        if path := shutil.which(name):
            command = [path, "-fsanitize=fuzzer", "-x", "c++", "-", "-o", "/dev/null"]
            program = 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }'
            if subprocess.run(command, input=program, text=True, capture_output=True).returncode == 0:
                return path
    return None


def build(clang: str, targets: list[str]) -> None:
    bin_folder = Path(sys.executable).parent
    configure: list[str | Path] = [
        bin_folder / "cmake",
        *("-S", ROOT, "-B", BUILD, "-G", "Ninja"),
        "-DMOONCAKE_SANITIZE=fuzzer",
        "-DMOONCAKE_TESTS=ON",
        f"-DCMAKE_CXX_COMPILER={clang}",
        f"-DCMAKE_MAKE_PROGRAM={bin_folder / 'ninja'}",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    both = [name for target in targets for name in (target, f"{target}_replay")]
    subprocess.run([bin_folder / "cmake", "--build", BUILD, "--target", *both], check=True)


def run(target: str, seconds: int, seed: int) -> bool:
    """Fuzzes one target and prints a line about it; False when it died."""
    found = BUILD / "corpus" / target
    crashes = BUILD / "crashes"
    for folder in (found, crashes, CORPUS / target):
        folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([BUILD / "native_tests" / f"{target}_replay", f"--write-seeds={found}"], check=True)
    command: list[str | Path] = [BUILD / target, *LIMITS, f"-max_total_time={seconds}", f"-seed={seed}"]
    command += [f"-artifact_prefix={crashes}/{target}-", "-print_final_stats=1", found, CORPUS / target]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    progress = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", done.stderr)
    executions = re.search(r"stat::number_of_executed_units: +(\d+)", done.stderr)
    coverage, features, inputs = progress[-1] if progress else ("?", "?", "?")
    count = executions[1] if executions else "?"
    print(f"{target}: {count} executions in {seconds} s, cov {coverage}, ft {features}, {inputs} inputs")
    if done.returncode == 0:
        return True
    print("\n".join(done.stderr.splitlines()[-60:]))
    if crash := re.search(r"Test unit written to (\S+)", done.stderr):
        print(f"{target} died. Again: {BUILD / target} {crash[1]}")
        print(f"When it is understood, keep the input: cp {crash[1]} {CORPUS / target}/")
    return False


def minimize(target: str) -> None:
    """Writes the repository's corpus anew. Inputs kept for a bug that was fixed are named regression-*."""
    corpus = CORPUS / target
    kept = BUILD / "minimized" / target
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    subprocess.run([BUILD / "native_tests" / f"{target}_replay", f"--write-seeds={kept}"], check=True)
    for regression in corpus.glob("regression-*"):
        shutil.copy(regression, kept)
    # Control flow alone decides (not counts): a corpus of some dozens of inputs, not of thousands.
    merge: list[str | Path] = [
        BUILD / target,
        "-merge=1",
        "-use_value_profile=0",
        "-use_counters=0",
        "-max_len=4096",
    ]
    subprocess.run([*merge, kept, BUILD / "corpus" / target, corpus], check=True, capture_output=True)
    shutil.rmtree(corpus, ignore_errors=True)
    shutil.copytree(kept, corpus)
    sizes = [path.stat().st_size for path in corpus.iterdir()]
    print(f"{target}: {len(sizes)} inputs, {sum(sizes)} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=30, help="for each target")
    parser.add_argument("--seed", type=int, default=0, help="of its mutations; 0 = another one each time")
    parser.add_argument("--only", default="", help="the one target to run")
    parser.add_argument("--minimize", action="store_true", help="rewrite tests/fuzz/corpus afterwards")
    parser.add_argument("--clang", action="store_true", help="only print the compiler it would use")
    options = parser.parse_args()
    targets = sorted(path.stem for path in (ROOT / "tests" / "fuzz").glob("*_fuzz.cc"))
    if options.only:
        if options.only not in targets:
            parser.error(f"--only '{options.only}' is none of {', '.join(targets)}")
        targets = [options.only]
    clang = find_clang()
    if clang is None:
        print(NO_CLANG, file=sys.stderr)
        return 1
    if options.clang:
        print(clang)
        return 0
    build(clang, targets)
    died = [target for target in targets if not run(target, options.seconds, options.seed)]
    if options.minimize and not died:
        for target in targets:
            minimize(target)
    return 1 if died else 0


if __name__ == "__main__":
    sys.exit(main())
