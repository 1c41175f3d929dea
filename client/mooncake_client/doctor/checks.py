"""What a check of `mooncake doctor` is: a verdict, the reason, the remedy; and how each is bounded in time.

Owns the words of verdicts, their text and JSON. Must not know what is checked.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeVar

Verdict = Literal["ok", "warn", "fail"]
EXIT_STATUS: Final[dict[Verdict, int]] = {"ok": 0, "warn": 1, "fail": 2}
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Check:
    """One finding. name: `group.subject`, stable, for programs. remedy: empty where nothing is to be done."""

    name: str
    verdict: Verdict
    reason: str
    remedy: str = ""


class Late(Exception):
    """Nothing came within the deadline. Who was asked may run on, on a thread that ends with the process."""


def within(seconds: float, ask: Callable[[], ResultT]) -> ResultT:
    """What `ask` returns or raises, or Late: name servers, file systems and drivers know no deadlines."""
    [answer] = all_within(seconds, [ask])
    if isinstance(answer, BaseException):
        raise answer
    return answer


def all_within(
    seconds: float, asks: Sequence[Callable[[], ResultT]], threads_max: int = 16
) -> list[ResultT | BaseException]:
    """As `within`, of many, `threads_max` at a time; in order, what was raised as it is."""
    late = Late(f"no answer within {seconds:g} s")
    answers: list[ResultT | BaseException] = [late] * len(asks)
    waiting = iter(enumerate(asks))
    lock = threading.Lock()
    done: queue.SimpleQueue[tuple[int, ResultT | BaseException]] = queue.SimpleQueue()
    deadline = time.monotonic() + seconds

    def work() -> None:
        while time.monotonic() < deadline:
            with lock:
                index, ask = next(waiting, (-1, None))
            if ask is None:
                return
            try:
                done.put((index, ask()))
            except BaseException as error:  # handed to who asked
                done.put((index, error))

    for _ in range(min(threads_max, len(asks))):
        threading.Thread(target=work, name="doctor", daemon=True).start()
    for _ in asks:
        try:
            index, answer = done.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        answers[index] = answer
    return answers


def checked(name: str, seconds: float, check: Callable[[], Sequence[Check]], remedy: str = "") -> list[Check]:
    """The findings of a check; one that is late or breaks is a failure itself, and the others go on."""
    try:
        return list(within(seconds, check))
    except Late as late:
        return [Check(name, "fail", str(late), remedy)]
    except Exception as error:  # a doctor who stops at the first surprise helps nobody
        return [Check(name, "fail", f"the check itself failed: {type(error).__name__}: {error}", remedy)]


def worst(checks: Sequence[Check]) -> Verdict:
    verdicts = {check.verdict for check in checks}
    return "fail" if "fail" in verdicts else "warn" if "warn" in verdicts else "ok"


def as_json(checks: Sequence[Check]) -> str:
    found: dict[str, Any] = {"verdict": worst(checks), "checks": [asdict(check) for check in checks]}
    return json.dumps(found, indent=2)


def as_lines(checks: Sequence[Check]) -> Iterator[str]:
    """For people: a line a check, its remedy below it, and at the end what it comes to."""
    width = max((len(check.name) for check in checks), default=0)
    for check in checks:
        yield f"{check.verdict:<4}  {check.name:<{width}}  {printable(check.reason)}"
        if check.remedy:
            yield f"{'':<4}  {'':<{width}}  do: {printable(check.remedy)}"
    count = {verdict: sum(check.verdict == verdict for check in checks) for verdict in EXIT_STATUS}
    yield f"{worst(checks)}: {count['ok']} ok, {count['warn']} to look at, {count['fail']} failed"


def printable(text: str) -> str:
    """One line of it. Names and messages come from elsewhere and may not move a terminal's cursor."""
    return "".join(one if one.isprintable() else " " for one in text)
