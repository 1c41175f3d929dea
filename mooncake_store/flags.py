"""The flags of every daemon: a typed table, parsed in gflags' forms and from a file, checked, printed.

Owns the grammar and the messages; which flags a daemon has is said in its config module, as a frozen
dataclass whose fields are made by `setting`. A value is checked by the same code wherever it comes from: the
command line, `--config_path`, or a constructor. Standard library only (PyYAML when a YAML file is named).

Forms: `--x v`, `--x=v`, `-x v`, `-x=v`; for a bool also `--x`, `--nox` and `--x true`; `-` in a name is `_`.
The last of several wins, but lists add up; the command line wins over the file. An unknown name is refused,
with the nearest known one. Mooncake's flags that mean nothing here are accepted with one warning each; those
that promise something that is not built refuse to start.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar

from mooncake_store._version import __version__
from mooncake_store.endpoints import PORT_MAX, Endpoint, parse_host, parse_port
from mooncake_store.errors import InvalidArgument, StoreError
from mooncake_store.masking import MASK, mask_secrets
from mooncake_store.masters import parse_masters
from mooncake_store.pipes import quiet_broken_pipe
from mooncake_store.units import format_duration, format_size, parse_duration_ms, parse_size

CONFIG_FILE_BYTES_MAX = 1 << 20

_TRUE = frozenset(("true", "t", "1", "yes", "y", "on"))
_FALSE = frozenset(("false", "f", "0", "no", "n", "off"))
_HELP = frozenset(("h", "help", "helpfull", "helpshort"))


class Kind(Enum):
    """The type of a flag; the value is the word that `--help` prints."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    TEXT = "string"
    SIZE = "size"
    DURATION = "duration"
    HOST = "host"
    PORT = "port"
    ENDPOINTS = "host:port,..."


class Standing(Enum):
    """What giving the flag does."""

    ACTIVE = "active"
    WITHOUT_MEANING = "accepted, without meaning here"
    NOT_BUILT = "not built yet: any value but the default refuses to start"


@dataclass(frozen=True)
class Flag:
    """One row of a table.

    default: typed: bytes for a size, ms for a duration, a tuple of Endpoint for endpoints.
    field: attribute of the config that receives the value; empty where nothing does.
    unit: what a bare number means, for durations (ms, s, m, h) and for `--help`.
    minimum, maximum: inclusive. choices: allowed texts, compared in lower case. choices_not_built: known
        to users, refused by name. note: ends the warning of a flag without meaning.
    alias: a second, short name. is_list: for endpoints; several words may follow (`--x a:1 b:2`), and what is
        given several times adds up, because whoever names two servers wants both.
    """

    name: str
    kind: Kind
    default: Any
    help: str = ""
    field: str = ""
    unit: str = ""
    standing: Standing = Standing.ACTIVE
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    choices_not_built: tuple[str, ...] = ()
    secret: bool = False
    note: str = ""
    alias: str = ""
    is_list: bool = False

    def parse(self, value: object, *, where: str) -> Any:
        """The typed, checked value of a text or of a value from a file; `where` names it in the error."""
        try:
            typed = self._convert(value, where)
            self.check(typed, where=where)
        except InvalidArgument:
            if not self.secret:
                raise
            raise InvalidArgument(f"{where}: the value (not shown) is not a {self.kind.value}") from None
        return typed

    def check(self, value: Any, *, where: str) -> None:
        """Refuse a typed value of the wrong type or outside the allowed range or choices."""
        fits: bool = isinstance(value, _PYTHON_TYPES[self.kind])
        if not fits or (isinstance(value, bool) and self.kind is not Kind.BOOL):
            raise InvalidArgument(f"{where}: {value!r} is not a {self.kind.value}")
        if self.standing is Standing.NOT_BUILT and value != self.default:
            raise InvalidArgument(
                f"{where}={_as_text(self, value)}: not built yet, and running without it would break what it "
                f"promises; leave the flag out (default {_as_text(self, self.default)})"
            )
        if self.choices and value not in self.choices:
            known = "not built yet" if value in self.choices_not_built else "unknown"
            raise InvalidArgument(f"{where}: {value!r} is {known}; choose one of {', '.join(self.choices)}")
        is_port = self.kind is Kind.PORT
        low = (1 if is_port else None) if self.minimum is None else self.minimum
        high = (PORT_MAX if is_port else None) if self.maximum is None else self.maximum
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            ends = ("" if end is None else _as_text(self, type(self.default)(end)) for end in (low, high))
            raise InvalidArgument(f"{where}: {_as_text(self, value)} is not in {'..'.join(ends)}")

    def _convert(self, value: object, where: str) -> Any:
        if value is None or (isinstance(value, (dict, list)) and self.kind is not Kind.ENDPOINTS):
            raise InvalidArgument(f"{where}: {value!r} is not a {self.kind.value}")
        match self.kind:
            case Kind.BOOL:
                return value if isinstance(value, bool) else _parse_bool(value, where)
            case Kind.INT:
                return _parse_int(value, where)
            case Kind.FLOAT:
                return _parse_float(value, where)
            case Kind.SIZE:
                return parse_size(_whole(value), field=where)
            case Kind.DURATION:
                return parse_duration_ms(_whole(value), field=where, bare_unit=self.unit or "ms")
            case Kind.PORT:
                return parse_port(_whole(value), field=where, allow_zero=self.minimum == 0)
            case Kind.ENDPOINTS:
                parts = value if isinstance(value, (list, tuple)) else [value]
                if self.is_list and all(part == "" for part in parts):
                    return ()
                return parse_masters(",".join(_text(part, where) for part in parts), field=where)
            case Kind.HOST:
                text = _text(value, where).strip()
                return parse_host(text, field=where) if text else ""
            case Kind.TEXT:
                text = _text(value, where)
                return text.strip().lower() if self.choices else text


_PYTHON_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.BOOL: (bool,),
    Kind.INT: (int,),
    Kind.FLOAT: (float, int),
    Kind.TEXT: (str,),
    Kind.SIZE: (int,),
    Kind.DURATION: (int,),
    Kind.HOST: (str,),
    Kind.PORT: (int,),
    Kind.ENDPOINTS: (tuple,),
}


def _whole(value: Any) -> Any:
    """1e9 in a JSON or YAML file is a float; a whole one means the int."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{where}: {value!r} is not a text; put it in quotes")
    if "\0" in value:
        raise InvalidArgument(f"{where}: {value!r} holds a NUL character")
    return value


def _parse_bool(value: object, where: str) -> bool:
    text = value.strip().lower() if isinstance(value, str) else ""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise InvalidArgument(f"{where}: {value!r} is not a bool; write true or false")


def _parse_int(value: object, where: str) -> int:
    value = _whole(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,20}", value.strip()):
        return int(value)
    raise InvalidArgument(f"{where}: {value!r} is not a whole number")


def _parse_float(value: object, where: str) -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
    raise InvalidArgument(f"{where}: {value!r} is not a number")


def _as_text(flag: Flag, value: Any) -> str:
    """The value in a form that the parser reads back; not masked."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if flag.kind is Kind.SIZE:
        return format_size(value)
    if flag.kind is Kind.DURATION:
        return format_duration(value)
    if flag.kind is Kind.ENDPOINTS:
        return ",".join(map(str, value))
    return str(value)


def setting(kind: Kind, default: Any, help: str, *, flag: str = "", **rest: Any) -> Any:
    """A dataclass field that is also a flag; `flag` names it where the field's name says more (units)."""
    row = Flag(name=flag, kind=kind, default=default, help=help, **rest)
    return field(default=default, metadata={"flag": row})


def flags_of(config_class: type) -> tuple[Flag, ...]:
    """The rows that a config dataclass declares with `setting`, in order."""
    return tuple(
        dataclasses.replace(
            item.metadata["flag"], name=item.metadata["flag"].name or item.name, field=item.name
        )
        for item in dataclasses.fields(config_class)
        if "flag" in item.metadata
    )


def check_config(config: Any) -> None:
    """For a config's `__post_init__`: check every field that came by the constructor, naming the field."""
    for row in flags_of(type(config)):
        row.check(getattr(config, row.field), where=row.field)


def unmeaning(kind: Kind, default: Any, *names: str, note: str = "") -> tuple[Flag, ...]:
    """Rows for flags of Mooncake that are accepted with a warning."""
    return tuple(Flag(name, kind, default, standing=Standing.WITHOUT_MEANING, note=note) for name in names)


def not_built(kind: Kind, default: Any, *names: str) -> tuple[Flag, ...]:
    """Rows for flags of Mooncake that refuse to start when they ask for something."""
    return tuple(Flag(name, kind, default, standing=Standing.NOT_BUILT) for name in names)


GLOG_FLAGS: tuple[Flag, ...] = (
    *unmeaning(
        Kind.BOOL,
        False,
        *(
            "alsologtostderr",
            "colorlogtostderr",
            "colorlogtostdout",
            "log_prefix",
            "log_utc_time",
            "logtostderr",
        ),
        *("logtostdout", "stop_logging_if_full_disk", "timestamp_in_logfile_name"),
        note="the log goes to stderr; --log_level sets how much",
    ),
    *unmeaning(
        Kind.INT,
        0,
        *("logbuflevel", "logbufsecs", "logcleansecs", "logemaillevel", "max_log_size", "minloglevel"),
        *("stderrthreshold", "v"),
        note="the log goes to stderr; --log_level sets how much",
    ),
    *unmeaning(Kind.TEXT, "", "log_dir", "log_link", "vmodule", note="the log goes to stderr"),
)
"""Logging flags that users' start scripts pass to every program built on glog."""


ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True)
class Loaded(Generic[ConfigT]):
    """A checked configuration, where values came from (`flag`, `file`, `default`), and what to warn of."""

    config: ConfigT
    sources: Mapping[str, str]
    warnings: tuple[str, ...]
    flags: tuple[Flag, ...]

    def effective(self) -> list[str]:
        """One line a flag, `--name=value  (source)`, secrets masked; for printing once at start."""
        shown = self.shown()
        return [f"--{name}={text}  ({self.sources.get(name, 'default')})" for name, text in shown.items()]

    def shown(self) -> dict[str, str]:
        """The value of every setting by its flag's name, secrets masked."""
        values = {}
        for row in self.flags:
            if row.field:
                text = _as_text(row, getattr(self.config, row.field))
                values[row.name] = MASK if row.secret and text else mask_secrets(text)
        return values


class FlagTable(Generic[ConfigT]):
    """All flags of one program: those its config declares, and those of Mooncake that it only knows."""

    def __init__(
        self, program: str, summary: str, config_class: type[ConfigT], known_only: Iterable[Flag] = GLOG_FLAGS
    ) -> None:
        self.program = program
        self.summary = summary
        self.config_class = config_class
        self.flags = (*flags_of(config_class), *known_only)
        self._by_name = {row.name: row for row in self.flags}
        self._by_name.update({row.alias: row for row in self.flags if row.alias})
        names = len(self.flags) + sum(bool(row.alias) for row in self.flags)
        assert len(self._by_name) == names, "two rows of a flag table have one name"

    def load(self, argv: Sequence[str]) -> Loaded[ConfigT]:
        """Parse arguments (without the program's name) and the file they name; raises InvalidArgument."""
        given: dict[str, tuple[Any, str, str]] = {}
        for row, value in self._split(argv):
            if row.is_list and row.name in given and given[row.name][0]:
                value = f"{given[row.name][0]},{value}"
            given[row.name] = (value, f"--{row.name}", "flag")
        path = given.get("config_path", ("", "", ""))[0].strip()
        if path:
            for name, value in _read_config_file(Path(path)).items():
                row = self._find(str(name), f"{path}: ")
                given.setdefault(row.name, (value, f"{path}: {row.name}", "file"))
        values: dict[str, Any] = {}
        warnings = []
        for row in self.flags:
            if row.name not in given:
                continue
            value, where, _ = given[row.name]
            typed = row.parse(value, where=where)
            if row.field:
                values[row.field] = typed
            elif row.standing is Standing.WITHOUT_MEANING:
                warnings.append(
                    f"{where} has no meaning here and is ignored" + (row.note and f": {row.note}")
                )
        sources = {name: source for name, (_, _, source) in given.items()}
        return Loaded(self.config_class(**values), sources, tuple(warnings), self.flags)

    def load_or_exit(self, argv: Sequence[str] | None = None) -> Loaded[ConfigT]:
        """`load` for a command's main: prints help or version and exits 0, prints one line and exits 2.

        1 where an election, asked for the masters, names none.
        """
        arguments = sys.argv[1:] if argv is None else argv
        names = [argument.lstrip("-") for argument in arguments if argument.startswith("-")]
        if any(name in _HELP for name in names):
            with quiet_broken_pipe():
                print(self.help_text())
            raise SystemExit(0)
        if "version" in names:
            print(f"{self.program} {__version__}")
            raise SystemExit(0)
        try:
            return self.load(arguments)
        except InvalidArgument as error:
            print(f"{self.program}: {mask_secrets(str(error))}", file=sys.stderr)
            raise SystemExit(2) from None
        except StoreError as error:  # an election that names no master yet
            print(f"{self.program}: {mask_secrets(str(error))}", file=sys.stderr)
            raise SystemExit(1) from None

    def help_text(self) -> str:
        """What `--help` prints: every flag with type, default and meaning; the others by name."""
        lines = [f"Usage: {self.program} [--flag=value ...]", "", self.summary, ""]
        for row in self.flags:
            if row.field:
                unit = f", a bare number counts {row.unit or 'ms'}" if row.kind is Kind.DURATION else ""
                unit = f" in {row.unit}" if row.unit and row.kind is not Kind.DURATION else unit
                default = MASK if row.secret and row.default else _as_text(row, row.default) or "none"
                name = f"--{row.name}, -{row.alias}" if row.alias else f"--{row.name}"
                lines.append(f"  {name}  ({row.kind.value}{unit}; default {default})")
                choices = f" One of: {', '.join(row.choices)}." if row.choices else ""
                lines.append(f"      {row.help}{choices}")
        for standing in (Standing.WITHOUT_MEANING, Standing.NOT_BUILT):
            names = [row.name for row in self.flags if row.standing is standing]
            if names:
                lines += ["", f"{standing.value[0].upper()}{standing.value[1:]}:", "  " + ", ".join(names)]
        lines += [
            "",
            "  --help, --version",
            "",
            "Sizes: 512MB, 1.5GiB, 1e9; suffixes are binary, a bare number is bytes.",
        ]
        return "\n".join(lines)

    def _split(self, argv: Sequence[str]) -> Iterable[tuple[Flag, str]]:
        """Pairs of flag and text, in order."""
        rest = list(reversed(argv))
        while rest:
            argument = rest.pop()
            if not argument.startswith("-") or argument.strip("-") == "":
                raise InvalidArgument(
                    f"unexpected argument {argument!r}; every setting is a flag: --name=value"
                )
            name, equals, text = argument.lstrip("-").partition("=")
            name = name.replace("-", "_")
            plain = self._by_name.get(name)
            if plain is None and name.startswith("no"):
                negated = self._by_name.get(name[2:])
                if negated is not None and negated.kind is Kind.BOOL:
                    if equals:
                        raise InvalidArgument(f"--{name}: takes no value; write --{negated.name}={text}")
                    yield negated, "false"
                    continue
            row = self._find(name, "--")
            if equals:
                yield row, text
            elif row.kind is Kind.BOOL:
                # gflags takes the word after a bool flag for a positional argument and drops it; whoever
                # writes `--x false` means false.
                follows = bool(rest) and rest[-1].strip().lower() in _TRUE | _FALSE
                yield row, rest.pop() if follows else "true"
            elif rest:
                yield row, rest.pop()
                while row.is_list and rest and not rest[-1].startswith("-"):
                    yield row, rest.pop()
            else:
                raise InvalidArgument(f"--{row.name}: a value must follow")

    def _find(self, name: str, prefix: str) -> Flag:
        row = self._by_name.get(name)
        if row is not None:
            return row
        shown = name if len(name) <= 64 else name[:64] + "..."
        near = difflib.get_close_matches(name[:64], self._by_name, n=1)
        dashes = prefix if prefix == "--" else ""
        hint = f"; did you mean {dashes}{near[0]}?" if near else "; --help lists all"
        raise InvalidArgument(f"{prefix}{shown} is unknown{hint}")


def _read_config_file(path: Path) -> dict[Any, Any]:
    """The names and values of a JSON or YAML file (by its suffix; any other is tried as JSON)."""
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidArgument(f"--config_path: cannot read {str(path)!r}: {error.strerror}") from error
    if len(data) > CONFIG_FILE_BYTES_MAX:
        raise InvalidArgument(f"--config_path: {str(path)!r} is larger than {CONFIG_FILE_BYTES_MAX} bytes")
    try:
        text = data.decode("utf-8")
        loaded = _load_yaml(path, text) if path.suffix in (".yaml", ".yml") else _load_json(text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"--config_path: {str(path)!r} cannot be parsed: {error}") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise InvalidArgument(
            f"--config_path: {str(path)!r} holds a {type(loaded).__name__}, not names with values"
        )
    if "config_path" in loaded:
        raise InvalidArgument(f"{path}: config_path cannot stand in the file itself")
    return loaded


def _load_json(text: str) -> Any:
    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands there twice")
        return found

    return json.loads(text, object_pairs_hook=no_duplicates)


def _load_yaml(path: Path, text: str) -> Any:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise InvalidArgument(
            f"--config_path: {str(path)!r} is YAML, which needs PyYAML: pip install pyyaml, or use JSON"
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidArgument(f"--config_path: {str(path)!r} cannot be parsed: {error}") from error


__all__ = [
    "GLOG_FLAGS",
    "Endpoint",
    "Flag",
    "FlagTable",
    "Kind",
    "Loaded",
    "Standing",
    "check_config",
    "flags_of",
    "not_built",
    "setting",
    "unmeaning",
]
