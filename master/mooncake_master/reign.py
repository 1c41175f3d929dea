"""What a restarted master must know of its last life, kept in a file: the number of the reign (its epoch),
and the tombstones of values that nodes may still hold.

Nodes obey a higher epoch at once; one they know already, under another master, only after client_ttl without
that one. Tombstones are kept by the nodes, too, but the file knows them before the first node comes. Owns the
file's place and form. Losing it loses no data: it costs a restart those seconds.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from pathlib import Path
from typing import Final

from mooncake_master.config import MasterConfig
from mooncake_store import _core
from mooncake_store.errors import StoreError

log = logging.getLogger("mooncake_store.master")

EPOCH_MAX: Final = (1 << 24) - 2
"""Epochs have 24 bits in every id (proto/FRAMES.md), and one must be left above any that is taken."""

WITHOUT: Final = "after a restart nodes will follow this master only after client_ttl"


class Reign:
    """One file with the last epoch taken. `path` None keeps nothing: the first epoch is 1 each time.

    `tombstones` is what the file's last writer left (packed; empty: nothing), from take() on.
    """

    def __init__(self, path: Path | None, *, must_work: bool) -> None:
        self.path = path
        self._must_work = must_work
        self.tombstones = b""
        self._noted = (0, b"")

    @classmethod
    def of(cls, config: MasterConfig) -> Reign:
        """The file that --state_file names; `auto` needs a fixed port, because it is in the file's name."""
        if config.state_file == "none":
            return cls(None, must_work=False)
        if config.state_file != "auto":
            return cls(Path(config.state_file).expanduser(), must_work=True)
        port = config.listen_endpoint().port
        if port == 0:
            return cls(None, must_work=False)
        try:
            return cls(_state_directory() / f"master-{port}.json", must_work=False)
        except RuntimeError as error:  # a container's user without a home
            log.warning("--state_file=auto finds no folder (%s); %s", error, WITHOUT)
            return cls(None, must_work=False)

    def last(self) -> int:
        """The highest epoch that it was told; 0: none. For a master whose epochs are given by an election."""
        return self._read()

    def take(self) -> int:
        """The next epoch, noted before anybody hears of it.

        Raises StoreError naming --state_file when the file that was asked for cannot be read or written.
        """
        epoch = self._read() + 1
        if epoch > EPOCH_MAX:
            raise StoreError(f"no epoch is left above {epoch - 1} ({self.path}, flag --state_file)")
        if self.path is None:
            return epoch
        try:
            self._write(epoch, self.tombstones)
        except OSError as error:
            self._failed("written", error)
        return epoch

    def note(self, epoch: int, tombstones: bytes = b"") -> bool:
        """Keeps its tombstones, and an epoch that it took meanwhile because a node knew a later reign.

        A running master goes on without the file: what fails is logged, answered False and worth another try.
        """
        if self.path is None or (max(epoch, self._noted[0]), tombstones) == self._noted:
            return True
        try:
            self._write(max(epoch, self._noted[0]), tombstones)
        except OSError as error:
            log.warning(
                "the file %s (flag --state_file) cannot be written: %s; %s", self.path, error, WITHOUT
            )
            return False
        return True

    def _write(self, epoch: int, tombstones: bytes) -> None:
        assert self.path is not None
        kept: dict[str, int | str] = {"epoch": epoch}
        if tombstones:
            kept["tombstones"] = base64.b64encode(tombstones).decode("ascii")
        _write_durably(self.path, json.dumps(kept) + "\n")
        self._noted = (epoch, tombstones)

    def _read(self) -> int:
        if self.path is None:
            return 0
        try:
            kept = json.loads(self.path.read_text("utf-8"))
            epoch = kept["epoch"]
            if not isinstance(epoch, int) or epoch < 0:
                raise ValueError(f"epoch is {epoch!r}")
            self.tombstones = base64.b64decode(kept.get("tombstones", ""), validate=True)
            _core.parse_tombstones(self.tombstones or _core.encode_tombstones())
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._failed("read", error)
            return 0
        return epoch

    def _failed(self, what: str, error: Exception) -> None:
        text = f"the file {self.path} (flag --state_file) cannot be {what}: {error}"
        if self._must_work:
            raise StoreError(text) from error
        log.warning("%s; %s", text, WITHOUT)
        self.path = None


def _state_directory() -> Path:
    # systemd's StateDirectory= first, then the XDG base directory specification.
    for variable in ("STATE_DIRECTORY", "XDG_STATE_HOME"):
        named = os.environ.get(variable, "").split(":")[0]
        if named:
            return Path(named) if variable == "STATE_DIRECTORY" else Path(named) / "mooncake_store"
    return Path("~/.local/state/mooncake_store").expanduser()


def _write_durably(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")  # one name: a kill in between leaves one file, not many
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
