"""The one interface of everything that is measured; what drives it is `worker.py`.

Standard library only: it runs in every peer's virtual environment.
"""

from __future__ import annotations

import hashlib
import mmap
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import Sample
from benchmarks.processes import Server
from benchmarks.work import Work

_PATTERN: Final = hashlib.shake_256(b"benchmark").digest(1 << 20)


class WrongAnswer(Exception):
    """A store answered a miss, an error or other bytes than were put: what was timed means nothing."""


class Memory:
    """The client's buffers, alike in every contender: values to put, and room to get them into."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.source = mmap.mmap(-1, size_bytes)
        self.target = mmap.mmap(-1, size_bytes)
        for offset in range(0, size_bytes, len(_PATTERN)):
            # Each piece begins with its number, so that one cannot stand for another unseen.
            piece = offset.to_bytes(8, "little") + _PATTERN[8:]
            self.source[offset : offset + len(piece)] = piece[: size_bytes - offset]
        self.target[:] = bytes(size_bytes)

    def check(self, begin: int, end: int) -> None:
        """Raises WrongAnswer unless the target holds the source's bytes there; then empties it."""
        if self.target[begin:end] != self.source[begin:end]:
            raise WrongAnswer(f"bytes {begin}..{end} are not those that were put")
        self.target[begin:end] = bytes(end - begin)


@dataclass(frozen=True)
class Settings:
    """What a contender is started with. logs: a folder that exists."""

    logs: Path
    segment_bytes: int
    buffer_bytes: int


class Contender(ABC):
    """One thing that is measured, with its servers and its client's end in this process."""

    name: str
    verbs: frozenset[str]
    """Verbs of works that it can do."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.servers: list[Server] = []

    @abstractmethod
    def start(self) -> str:
        """Start the servers and connect. The version."""

    def stop(self) -> None:
        """Disconnect and end the servers; also after a start that failed half way."""
        for server in reversed(self.servers):
            server.stop()

    @abstractmethod
    def prepare(self, work: Work) -> dict[str, float]:
        """Put what the work reads. Facts worth a line of the report, by name."""

    @abstractmethod
    def sample(self, work: Work, duration_s: float) -> Mapping[str, Sample]:
        """Do the work for about so long. By column: a contender may have several ways of doing it."""

    @abstractmethod
    def finish(self, work: Work) -> None:
        """Take away what `prepare` put."""

    def can(self, work: Work) -> bool:
        return work.verb in self.verbs

    def server_pids(self) -> list[int]:
        return [server.pid for server in self.servers]

    def metadata_pids(self) -> list[int]:
        """The processes whose memory grows with the number of keys."""
        return self.server_pids()

    def launch(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> Server:
        server = Server(command, self.settings.logs / f"{self.name}-{name}.log", environment)
        self.servers.append(server)
        return server

    def pieces(self, memory: Any, value_bytes: int, count: int) -> list[Any]:
        """Consecutive values of a buffer of `Memory`, in the form in which the verbs take them."""
        view = memoryview(memory)
        return [view[index * value_bytes : (index + 1) * value_bytes] for index in range(count)]
