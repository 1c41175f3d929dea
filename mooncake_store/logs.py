"""Logging of the daemons: one handler, text or JSON, secrets hidden, repetitions counted instead of written.

Every logger of ours is below `mooncake_store` (`mooncake_store.master`, `mooncake_store.node`). Only a
daemon's main calls `start_logging`; in an engine's process the tree has a NullHandler and nothing else, so
the engine decides what is shown. Native code writes nothing: what it knows is asked for (`stats`, `status`)
and logged here. Standard library only.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO

from mooncake_store.masking import mask_secrets

if TYPE_CHECKING:
    from mooncake_store.flags import Loaded

ROOT: Final = "mooncake_store"
FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")

REPEATS_MAX: Final = 20
"""Records of one message within INTERVAL_S; more are counted. The summary, each 10 s, stays below it."""
INTERVAL_S: Final = 60.0
MESSAGES_MAX: Final = 1_024
"""Messages that are counted at once; the one unused for longest is forgotten, its count told."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]")


def start_logging(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send all log records of this process to stderr. For daemons only: it replaces the root's handlers."""
    handler = LimitedHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # Libraries below us tell what they do at DEBUG; that is not what --log_level=debug asks about.
    for library in ("asyncio", "aiohttp", "grpc"):
        logging.getLogger(library).setLevel(max(logging.INFO, root.level))


def fields(**values: Any) -> dict[str, Any]:
    """`extra=` of a record whose values JSON shows under their own names; text shows the message alone."""
    return {"fields": values}


def tell_configuration(log: logging.Logger, loaded: Loaded[Any]) -> None:
    """The first lines of a daemon: what was given in vain, and every setting with where it came from."""
    for warning in loaded.warnings:
        log.warning("%s", warning)
    log.info(
        "effective configuration:\n%s",
        "\n".join(loaded.effective()),
        extra=fields(settings=loaded.shown()),
    )


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


class TextFormatter(logging.Formatter):
    """`TIME LEVEL LOGGER: MESSAGE`, UTC. A message's further lines are indented: none looks like a record."""

    def format(self, record: logging.LogRecord) -> str:
        message = mask_secrets(_message(record))
        message = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", message).replace("\n", "\n  ")
        return f"{_time(record)} {record.levelname} {record.name}: {message}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and what the record has of `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask_secrets(record.getMessage()),
        }
        if record.exc_info:
            entry["exception"] = mask_secrets(self.formatException(record.exc_info))
        for name, value in getattr(record, "fields", {}).items():
            entry.setdefault(name, _masked(value))
        return json.dumps(entry, ensure_ascii=False, default=str)


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    if record.exc_info:
        message += "\n" + logging.Formatter().formatException(record.exc_info)
    return message


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask_secrets(value)
    if isinstance(value, Mapping):
        return {str(name): _masked(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_masked(part) for part in value]
    return value


@dataclass
class _Window:
    """What one message did since `began_s`."""

    began_s: float
    written: int = 0
    suppressed: int = 0
    record: logging.LogRecord | None = None


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes at most REPEATS_MAX records of one message in INTERVAL_S, then tells how many it did not.

    One message is one text of a log call, whatever its arguments: ten thousand misses of as many keys are
    one. The count comes with the first record of any kind after the interval, and at the end.
    """

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._windows: OrderedDict[tuple[str, int, str], _Window] = OrderedDict()
        self._told_s = clock()

    def emit(self, record: logging.LogRecord) -> None:
        now_s = self._clock()
        if now_s - self._told_s >= INTERVAL_S:
            self._told_s = now_s
            self._end_windows(lambda window: now_s - window.began_s >= INTERVAL_S)
        text = str(record.msg)
        try:
            # A call that passes its whole text as an argument is told apart by that text.
            key = (record.name, record.levelno, record.getMessage() if text == "%s" else text)
        except (TypeError, ValueError):  # arguments that do not fit the text: StreamHandler reports them
            key = (record.name, record.levelno, text)
        window = self._windows.get(key)
        if window is not None and now_s - window.began_s >= INTERVAL_S:
            self._tell(self._windows.pop(key))
            window = None
        if window is None:
            if len(self._windows) >= MESSAGES_MAX:
                self._tell(self._windows.popitem(last=False)[1])
            window = self._windows[key] = _Window(now_s)
        self._windows.move_to_end(key)
        if window.written < REPEATS_MAX:
            window.written += 1
            super().emit(record)
        else:
            window.suppressed += 1
            window.record = record

    def close(self) -> None:
        self._end_windows(lambda window: True)
        super().close()

    def _end_windows(self, is_over: Callable[[_Window], bool]) -> None:
        for key in [key for key, window in self._windows.items() if is_over(window)]:
            self._tell(self._windows.pop(key))

    def _tell(self, window: _Window) -> None:
        last = window.record
        if last is None:
            return
        text = f"{window.suppressed} more like this were not logged; the last: {last.getMessage()}"
        told = logging.LogRecord(last.name, last.levelno, last.pathname, last.lineno, text, None, None)
        told.fields = {"suppressed_count": window.suppressed}
        super().emit(told)
