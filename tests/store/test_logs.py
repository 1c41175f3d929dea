"""What the daemons' one handler writes: forms, hidden secrets, counted repetitions. The clock is a fake."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mooncake_store.logs import (
    INTERVAL_S,
    MESSAGES_MAX,
    REPEATS_MAX,
    JsonFormatter,
    LimitedHandler,
    TextFormatter,
    fields,
)


class Log:
    """A logger of its own over a handler whose clock stands still."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.now_s = 1_000.0
        self.stream = io.StringIO()
        self.handler = LimitedHandler(self.stream, clock=lambda: self.now_s)
        self.handler.setFormatter(formatter)
        self.logger = logging.Logger("mooncake_store.test")
        self.logger.addHandler(self.handler)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def text() -> Iterator[Log]:
    log = Log(TextFormatter())
    yield log
    log.handler.close()


@pytest.fixture
def as_json() -> Iterator[Log]:
    log = Log(JsonFormatter())
    yield log
    log.handler.close()


def test_a_line_has_time_level_logger_and_message(text: Log) -> None:
    text.logger.warning("%d of %s", 3, "many")
    (line,) = text.lines
    time, level, logger, message = line.split(" ", 3)
    assert time.endswith("Z")
    assert (level, logger, message) == ("WARNING", "mooncake_store.test:", "3 of many")


def test_no_message_can_pass_for_another_record(text: Log) -> None:
    text.logger.info("peer says %s", "hello\n2026-01-01T00:00:00.000Z ERROR forged: x\r\x1b[2J\u2028y")
    first, second = text.lines
    assert first.endswith("peer says hello")
    assert second == "  2026-01-01T00:00:00.000Z ERROR forged: x\\x0d\\x1b[2J\\x2028y"


def test_json_is_one_object_a_line_with_the_records_fields(as_json: Log) -> None:
    as_json.logger.info("segment %s\njoined", "a", extra=fields(segment="a", bytes=5, level="not this"))
    (line,) = as_json.lines
    entry = json.loads(line)
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "info",
        "logger": "mooncake_store.test",
        "message": "segment a\njoined",
        "segment": "a",
        "bytes": 5,
    }


@pytest.mark.parametrize("form", ["text", "as_json"])
def test_an_exception_is_told_and_its_secrets_are_not(form: str, request: pytest.FixtureRequest) -> None:
    log: Log = request.getfixturevalue(form)
    try:
        raise ValueError("cannot reach redis://me:hunter2@host")
    except ValueError:
        log.logger.exception("backend %s", "etcd://u:hunter2@e", extra=fields(url="x://u:hunter2@e"))
    written = log.stream.getvalue()
    assert "ValueError" in written
    assert "Traceback" in written
    assert "hunter2" not in written
    assert len(log.lines) == (1 if form == "as_json" else written.count("\n"))


def test_one_message_is_written_so_often_and_then_counted(text: Log) -> None:
    for number in range(10_000):
        text.logger.warning("key %d is missing", number)
    assert len(text.lines) == REPEATS_MAX
    text.now_s += INTERVAL_S
    text.logger.warning("key %d is missing", 10_000)
    told, written = text.lines[REPEATS_MAX:]
    assert told.endswith(
        f"{10_000 - REPEATS_MAX} more like this were not logged; the last: key 9999 is missing"
    )
    assert written.endswith("key 10000 is missing")


def test_a_count_is_told_with_the_next_record_of_any_kind(text: Log) -> None:
    for _ in range(REPEATS_MAX + 5):
        text.logger.warning("again")
    text.now_s += INTERVAL_S
    text.logger.info("another")
    assert text.lines[-2].endswith("5 more like this were not logged; the last: again")


def test_a_count_is_told_at_the_end(text: Log) -> None:
    for _ in range(REPEATS_MAX + 1):
        text.logger.warning("again")
    text.handler.close()
    assert text.lines[-1].endswith("1 more like this were not logged; the last: again")


def test_messages_that_differ_do_not_share_a_bound(text: Log) -> None:
    for number in range(REPEATS_MAX + 1):
        text.logger.warning("%s", f"flag {number} is ignored")
        text.logger.warning("one")
        text.logger.error("one")
    assert len(text.lines) == 3 * REPEATS_MAX + 1


def test_the_number_of_counted_messages_is_bounded(text: Log) -> None:
    for _ in range(REPEATS_MAX + 3):
        text.logger.warning("the first")
    for number in range(MESSAGES_MAX):
        text.logger.warning("%s", f"message {number}")
    assert any(line.endswith("3 more like this were not logged; the last: the first") for line in text.lines)
    assert len(text.handler._windows) == MESSAGES_MAX


def test_a_wrong_log_call_harms_nobody(text: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    text.logger.warning("%d and %d", 1)
    text.logger.warning("after")
    assert text.lines[-1].endswith("after")


ENGINE = """
import logging, sys
before = list(logging.getLogger().handlers)
from mooncake_client import Store, StoreError
with Store.embedded("16mb") as store:
    store.put("a", b"x")
    assert store.get("a") == b"x" and store.get("b") is None
try:
    Store("127.0.0.1:1", connect_timeout_ms=50)
except StoreError:
    pass
assert logging.getLogger().handlers == before == [], logging.getLogger().handlers
assert logging.getLogger().level == logging.WARNING
ours = [name for name in logging.root.manager.loggerDict if name.partition(".")[0].startswith("mooncake")]
assert {name.partition(".")[0] for name in ours} == {"mooncake_store"}, ours
tree = [logging.getLogger(name) for name in ours]
handlers = {type(handler) for logger in tree for handler in logger.handlers}
assert handlers == {logging.NullHandler}, handlers
assert all(logger.propagate and logger.level == logging.NOTSET for logger in tree)
logging.getLogger("mooncake_store.client").error("without a handler of the engine this goes nowhere")
"""


def test_the_library_installs_no_handler_and_writes_nothing_in_the_engines_process() -> None:
    """Nor does native code, which shares the process's stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-c", ENGINE], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
