"""`ReplicateConfig`, and the options of a put that it means.

Owns the attributes that Mooncake's users set, their types, and which of them are refused or have no meaning
here; docs/dropin.md lists those.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

from mooncake_client.arguments import (
    HARD_PIN,
    KEEP_SOFT_PIN,
    LOCAL,
    PREFERRED_MAX,
    REPLICAS_MAX,
    SOFT_PIN,
    SOFT_PIN_MS_MAX,
    UPSERT,
)
from mooncake_client.dropin.codes import INVALID_PARAMS, NOT_SUPPORTED, OK

_U64_MAX: Final = 2**64 - 1


class ObjectDataType(IntEnum):
    """What a value is for; kept for callers, without meaning to the store."""

    UNKNOWN = 0
    KVCACHE = 1
    TENSOR = 2
    WEIGHT = 3
    SAMPLE = 4
    ACTIVATION = 5
    GRADIENT = 6
    OPTIMIZER_STATE = 7
    METADATA = 8
    GENERAL = 9


class SoftPinAction(IntEnum):
    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2


class ReplicateConfig:
    """How a value is kept. Attributes of a wrong type raise TypeError, unknown ones AttributeError.

    replica_num: copies wanted, on distinct segments, as many as fit. with_hard_pin: never evicted.
    soft_pin_action, soft_pin_ttl_ms: evicted last, for so long (None: the master's default, 0: not at all).
    preferred_segments: names, tried in order; preferred_segment: one of them, the older form.
    prefer_alloc_in_same_node: on the writer's host if there is room. group_ids: one a key.
    with_soft_pin: the older form of soft_pin_action.
    """

    __slots__ = (
        "_data_type",
        "_dfs_replica_num",
        "_group_ids",
        "_nof_replica_num",
        "_prefer_alloc_in_same_node",
        "_preferred_nof_segments",
        "_preferred_segment",
        "_preferred_segments",
        "_replica_num",
        "_soft_pin_action",
        "_soft_pin_ttl_ms",
        "_with_hard_pin",
    )
    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self._replica_num = 1
        self._nof_replica_num = 0
        self._dfs_replica_num = 0
        self._soft_pin_action = SoftPinAction.PRESERVE
        self._soft_pin_ttl_ms: int | None = None
        self._with_hard_pin = False
        self._preferred_segments: list[str] = []
        self._preferred_segment = ""
        self._preferred_nof_segments: list[str] = []
        self._prefer_alloc_in_same_node = False
        self._data_type = ObjectDataType.UNKNOWN
        self._group_ids: list[str] | None = None

    def _values(self) -> dict[str, Any]:
        return {name[1:]: getattr(self, name) for name in self.__slots__}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReplicateConfig) and self._values() == other._values()

    def __repr__(self) -> str:
        return f"ReplicateConfig({', '.join(f'{name}={value!r}' for name, value in self._values().items())})"

    @property
    def replica_num(self) -> int:
        return self._replica_num

    @replica_num.setter
    def replica_num(self, value: int) -> None:
        self._replica_num = _count("replica_num", value)

    @property
    def nof_replica_num(self) -> int:
        return self._nof_replica_num

    @nof_replica_num.setter
    def nof_replica_num(self, value: int) -> None:
        self._nof_replica_num = _count("nof_replica_num", value)

    @property
    def dfs_replica_num(self) -> int:
        return self._dfs_replica_num

    @dfs_replica_num.setter
    def dfs_replica_num(self, value: int) -> None:
        self._dfs_replica_num = _count("dfs_replica_num", value)

    @property
    def soft_pin_action(self) -> SoftPinAction:
        return self._soft_pin_action

    @soft_pin_action.setter
    def soft_pin_action(self, value: SoftPinAction) -> None:
        if not isinstance(value, SoftPinAction):
            raise TypeError(f"soft_pin_action {value!r} is not a SoftPinAction")
        self._soft_pin_action = value

    @property
    def soft_pin_ttl_ms(self) -> int | None:
        return self._soft_pin_ttl_ms

    @soft_pin_ttl_ms.setter
    def soft_pin_ttl_ms(self, value: int | None) -> None:
        self._soft_pin_ttl_ms = None if value is None else _count("soft_pin_ttl_ms", value)

    @property
    def with_soft_pin(self) -> bool:
        return self._soft_pin_action is SoftPinAction.ENABLE

    @with_soft_pin.setter
    def with_soft_pin(self, value: bool) -> None:
        self._soft_pin_action = SoftPinAction.ENABLE if value else SoftPinAction.PRESERVE

    @property
    def with_hard_pin(self) -> bool:
        return self._with_hard_pin

    @with_hard_pin.setter
    def with_hard_pin(self, value: bool) -> None:
        self._with_hard_pin = _flag("with_hard_pin", value)

    @property
    def preferred_segments(self) -> list[str]:
        return self._preferred_segments

    @preferred_segments.setter
    def preferred_segments(self, value: Sequence[str]) -> None:
        self._preferred_segments = _names("preferred_segments", value)

    @property
    def preferred_segment(self) -> str:
        return self._preferred_segment

    @preferred_segment.setter
    def preferred_segment(self, value: str) -> None:
        if not isinstance(value, str):
            raise TypeError(f"preferred_segment {value!r} is not a str")
        self._preferred_segment = value

    @property
    def preferred_nof_segments(self) -> list[str]:
        return self._preferred_nof_segments

    @preferred_nof_segments.setter
    def preferred_nof_segments(self, value: Sequence[str]) -> None:
        self._preferred_nof_segments = _names("preferred_nof_segments", value)

    @property
    def prefer_alloc_in_same_node(self) -> bool:
        return self._prefer_alloc_in_same_node

    @prefer_alloc_in_same_node.setter
    def prefer_alloc_in_same_node(self, value: bool) -> None:
        self._prefer_alloc_in_same_node = _flag("prefer_alloc_in_same_node", value)

    @property
    def data_type(self) -> ObjectDataType:
        return self._data_type

    @data_type.setter
    def data_type(self, value: ObjectDataType) -> None:
        if not isinstance(value, ObjectDataType):
            raise TypeError(f"data_type {value!r} is not an ObjectDataType")
        self._data_type = value

    @property
    def group_ids(self) -> list[str] | None:
        return self._group_ids

    @group_ids.setter
    def group_ids(self, value: Sequence[str] | None) -> None:
        self._group_ids = None if value is None else _names("group_ids", value)


DEFAULT_CONFIG: Final = ReplicateConfig()
"""What a call without one means. Nobody is handed it, so nobody can change it."""


def refusal(config: ReplicateConfig, key_count: int) -> int:
    """The code with which a put of so many keys is refused; 0: it is not."""
    if not isinstance(config, ReplicateConfig):
        raise TypeError(f"config {config!r} is not a ReplicateConfig")
    if config.nof_replica_num or config.dfs_replica_num:
        return NOT_SUPPORTED
    soft_pin_ms = config.soft_pin_ttl_ms
    if (
        config.replica_num == 0
        or (config.group_ids is not None and len(config.group_ids) != key_count)
        or (
            soft_pin_ms is not None
            and (config.soft_pin_action is not SoftPinAction.ENABLE or soft_pin_ms > SOFT_PIN_MS_MAX)
        )
        or (config.prefer_alloc_in_same_node and config.replica_num > 1)
    ):
        return INVALID_PARAMS
    return OK


def put_options(config: ReplicateConfig, *, upsert: bool) -> dict[str, Any]:
    """The options of the native client's put_many."""
    preferred = [*config.preferred_segments, *filter(None, [config.preferred_segment])]
    soft_pinned = config.soft_pin_action is SoftPinAction.ENABLE and config.soft_pin_ttl_ms != 0
    return {
        "replica_count": min(config.replica_num, REPLICAS_MAX),
        "flags": (
            (HARD_PIN if config.with_hard_pin else 0)
            | (SOFT_PIN if soft_pinned else 0)
            | (UPSERT if upsert else 0)
            | (LOCAL if config.prefer_alloc_in_same_node else 0)
            | (KEEP_SOFT_PIN if upsert and config.soft_pin_action is SoftPinAction.PRESERVE else 0)
        ),
        "soft_pin_ms": config.soft_pin_ttl_ms or 0,
        "preferred": [name for name in dict.fromkeys(preferred) if name][:PREFERRED_MAX],
    }


def _count(name: str, value: int) -> int:
    number = operator.index(value)
    if not 0 <= number <= _U64_MAX:
        raise TypeError(f"{name} {value!r} is not in 0..2^64-1")
    return number


def _flag(name: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} {value!r} is not a bool")
    return value


def _names(name: str, value: Sequence[str]) -> list[str]:
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{name} {value!r} is not a list of str")
    names = list(value)
    if not all(isinstance(one, str) for one in names):
        raise TypeError(f"{name} {value!r} is not a list of str")
    return names
