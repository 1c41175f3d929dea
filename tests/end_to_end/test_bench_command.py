"""`mooncake bench` against real processes: figures, bytes that are checked, keys that never stay behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from processes import Process, address_of, master, node

from mooncake_client import Store
from mooncake_client.bench import Bench, Figures, Plan, Tally, check_room, figures_of
from mooncake_client.cli import main
from mooncake_store.errors import InvalidArgument, NoSpace

HANG_S = 60


@pytest.fixture(scope="module")
def pool() -> Iterator[str]:
    """The master's address; one node lends 16 MiB."""
    with master() as daemon:
        address = address_of(daemon)
        with node(address) as lender:
            lender.wait_for("lending")
            yield address


def quiet(_: str, __: float) -> None:
    """No progress is shown."""


def keys_of(address: str) -> list[bytes]:
    with Store(address) as store:
        return list(store.keys("mooncake-bench/"))


def bench(address: str, *arguments: str) -> list[str]:
    return ["--master", address, "bench", "--seconds=0.3", "--size=4KiB", *arguments]


def test_json_has_figures_of_each_work_and_nothing_stays(
    pool: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(bench(pool, "--batch=8", "--threads=2", "--json")) == 0
    report = json.loads(capfd.readouterr().out)
    assert (report["size_bytes"], report["batch"]) == (4096, 8)
    assert [one["work"] for one in report["works"]] == ["put", "get", "exists"]
    for one in report["works"]:
        assert one["calls"] >= 2
        assert one["values"] == 8 * one["calls"]
        assert (one["misses"], one["wrong"]) == (0, 0)
        assert 0 < one["p50_ms"] <= one["p90_ms"] <= one["p99_ms"] <= one["max_ms"]
    assert keys_of(pool) == []


def test_the_table_names_the_works(pool: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--master", pool, "--seconds=0.1", "--size=1KiB", "--work=get,exists"]) == 0
    shown = capfd.readouterr().out
    assert "get" in shown
    assert "exists" in shown
    assert "put " not in shown
    assert keys_of(pool) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_removes_the_keys(pool: str, number: signal.Signals) -> None:
    code = "import sys; from mooncake_client.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["--master", pool, "bench", "--seconds=600", "--size=64KiB", "--batch=4", "--threads=2"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            with Store(pool) as store:
                looks = threading.Event()
                for _ in range(20 * HANG_S):
                    if list(store.keys("mooncake-bench/")):
                        break
                    assert running.poll() is None
                    looks.wait(0.05)
            running.send_signal(number)
            _, error = running.communicate(timeout=HANG_S)
        finally:
            running.kill()
    assert running.returncode == 130, error
    assert error == "mooncake: interrupted; its keys are being removed\n"
    assert keys_of(pool) == []


def test_wrong_bytes_are_counted_and_fail_the_command(
    pool: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    honest = Store.get_into_many

    def bent(self: Store, keys: Any, targets: Any, **options: Any) -> Any:
        answers = honest(self, keys, targets, **options)
        targets[-1][-1] ^= 1
        return answers

    monkeypatch.setattr(Store, "get_into_many", bent)
    assert main(bench(pool, "--batch=3", "--json")) == 1
    captured = capfd.readouterr()
    wrong = {one["work"]: one["wrong"] for one in json.loads(captured.out)["works"]}
    assert wrong["get"] > 0
    assert captured.err == f"mooncake: {wrong['get']} values had other bytes than were put\n"
    assert keys_of(pool) == []


def test_a_value_that_is_not_read_does_not_pass_for_the_one_before(pool: str) -> None:
    with Store(pool) as store:
        bench = Bench(store, Plan(1024, batch=2, seconds=0.1, works=("get",)))
        try:
            (figures,) = bench.run(quiet)
            assert (figures.misses, figures.wrong) == (0, 0)
            store.get_into_many = lambda keys, _: [1024 for _ in keys]  # type: ignore[method-assign,assignment,misc]
            (figures,) = bench.run(quiet)
            assert figures.wrong == figures.values > 0
        finally:
            bench.remove_keys()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--size=1GiB",), "--size 1GiB is more than the largest segment, 16MiB"),
        (("--size=1MiB", "--batch=16"), "need 48MiB"),
        (("--size=abc",), "--size: 'abc'"),
        (("--size=0",), "size: 0"),
        (("--batch=0",), "batch: 0"),
        (("--threads=1000",), "threads: 1000"),
        (("--seconds=-1",), "seconds: -1"),
        (("--work=put,fly",), "'fly'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    pool: str, arguments: tuple[str, ...], named: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--master", pool, "bench", *arguments]) == 1
    error = capfd.readouterr().err
    assert error.startswith("mooncake: ")
    assert error.count("\n") == 1
    assert named in error


def test_a_pool_without_memory_is_told_how_to_get_some(capfd: pytest.CaptureFixture[str]) -> None:
    with master() as daemon:
        assert main(bench(address_of(daemon))) == 1
    error = capfd.readouterr().err
    assert "no node lends memory" in error
    assert "mooncake_client --master_server_address" in error


def test_others_values_are_not_evicted_for_it(pool: str) -> None:
    with Store(pool) as store:
        store.put("mine", bytes(10 << 20))
        try:
            plan = Plan(1 << 20, batch=2, seconds=0.1)
            with pytest.raises(NoSpace, match=r"the pool has \d MiB before it would evict"):
                check_room(store, plan)
            store.put("mine too", bytes(31 << 17))  # 13.9 MiB: beyond 85 %, below the watermark
            with pytest.raises(NoSpace, match=r"used beyond 85%: .* would evict others'"):
                check_room(store, Plan(1, seconds=0.1))
        finally:
            store.remove_many(["mine", "mine too"])


def test_figures_count_all_threads() -> None:
    tallies = [Tally([0.001] * 98, values=98), Tally([0.010, 0.100], values=2, misses=1)]
    figures = figures_of("get", tallies, elapsed_s=2.0, size_bytes=1000)
    assert figures == Figures(
        "get",
        calls=100,
        values=100,
        misses=1,
        elapsed_s=2.0,
        bytes_a_second=1000 * (98 / sum([0.001] * 98) + 2 / 0.11),
        values_a_second=98 / sum([0.001] * 98) + 2 / 0.11,
        p50_ms=1,
        p90_ms=1,
        p99_ms=10,
        max_ms=100,
    )
    assert figures_of("exists", tallies, 2.0, 1000).bytes_a_second == 0
    assert figures_of("get", [Tally()], 2.0, 1000).p99_ms == 0


def test_a_plan_refuses_what_cannot_be_meant() -> None:
    with pytest.raises(InvalidArgument, match="seconds: nan"):
        Plan(1, seconds=float("nan"))


def test_a_node_that_is_lost_ends_it_with_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    """Puts have nowhere to go once the only node was killed."""
    with master() as daemon:
        address = address_of(daemon)
        lender: Process
        with node(address) as lender:
            lender.wait_for("lending")
            killer = threading.Timer(0.3, lender.send, [signal.SIGKILL])
            killer.start()
            status = main(["--master", address, "bench", "--seconds=60", "--size=4KiB", "--work=put"])
            killer.join()
    assert status == 1
    error = capfd.readouterr().err
    assert error.startswith("mooncake: put of key ")
    assert error.count("\n") == 1
