"""Stores of a dict, with as many of a store's methods as a test wants, which count their calls."""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from typing import Any


class PlainStore:
    """put, get and remove alone."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.calls: Counter[str] = Counter()
        self.refused: dict[str, int] = {}
        """Codes by the end of a key, or by a method's name."""

    def code(self, key: str) -> int:
        return next((code for end, code in self.refused.items() if key.endswith(end)), 0)

    def put(self, key: str, value: Any, config: Any = None) -> int:
        self.calls["put"] += 1
        self.calls["configured"] += config is not None
        code = self.code(key)
        if code == 0:
            self.values[key] = bytes(value)
        return code

    def get(self, key: str) -> bytes:
        self.calls["get"] += 1
        return self.values.get(key, b"")

    def remove(self, key: str, force: bool = False) -> int:
        self.calls["remove"] += 1
        if "remove" in self.refused:
            return self.refused["remove"]
        return 0 if self.values.pop(key, None) is not None else -704


class AddressStore(PlainStore):
    """Those that take addresses too. Reads and puts only memory that is registered."""

    def __init__(self) -> None:
        super().__init__()
        self.registered: dict[int, int] = {}

    def register_buffer(self, pointer: int, size: int) -> int:
        self.calls["register"] += 1
        if "register" in self.refused and self.calls["register"] > 1:
            return self.refused["register"]
        if pointer in self.registered:
            return -600
        self.registered[pointer] = size
        return 0

    def unregister_buffer(self, pointer: int) -> int:
        return 0 if self.registered.pop(pointer, None) is not None else -600

    def check(self, pointer: int, size: int) -> None:
        assert any(
            start <= pointer and pointer + size <= start + length for start, length in self.registered.items()
        )

    def batch_put_from(
        self, keys: list[str], pointers: list[int], sizes: list[int], config: Any = None
    ) -> list[int]:
        self.calls["batch_put_from"] += 1
        codes = []
        for key, pointer, size in zip(keys, pointers, sizes, strict=True):
            self.check(pointer, size)
            codes.append(self.put(key, ctypes.string_at(pointer, size), config))
        return codes

    def batch_get_into(self, keys: list[str], pointers: list[int], sizes: list[int]) -> list[int]:
        self.calls["batch_get_into"] += 1
        return [self.get_into(*one) for one in zip(keys, pointers, sizes, strict=True)]

    def get_into(self, key: str, pointer: int, size: int) -> int:
        self.calls["get_into"] += 1
        self.check(pointer, size)
        value = self.values.get(key)
        if value is None or self.code(key):
            return -704
        if len(value) > size:
            return -600
        ctypes.memmove(pointer, value, len(value))
        return len(value)

    def get_into_ranges(
        self, pointers: list[int], all_keys: Any, all_to: Any, all_from: Any, all_sizes: Any
    ) -> list[list[list[int]]]:
        self.calls["get_into_ranges"] += 1
        answers = []
        for pointer, keys, tos, froms, sizes in zip(
            pointers, all_keys, all_to, all_from, all_sizes, strict=True
        ):
            of_buffer = []
            for key, *ranges in zip(keys, tos, froms, sizes, strict=True):
                value = self.values.get(key, b"")
                of_key = []
                for to, start, size in zip(*ranges, strict=True):
                    self.check(pointer + to, size)
                    fits = start + size <= len(value) and not self.code(key)
                    ctypes.memmove(pointer + to, value[start : start + size], size if fits else 0)
                    of_key.append(size if fits else -600)
                of_buffer.append(of_key)
            answers.append(of_buffer)
        return answers

    def batch_remove(self, keys: list[str], force: bool = False) -> list[int]:
        self.calls["batch_remove"] += 1
        assert force
        if "batch_remove" in self.refused:
            return [self.refused["batch_remove"]] * len(keys)
        return [0 if self.values.pop(key, None) is not None else -704 for key in keys]


class MeetingStore(PlainStore):
    """Its first puts wait for each other: as many must be under way at once."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._meeting = threading.Barrier(count)
        self._left = count
        self._lock = threading.Lock()

    def put(self, key: str, value: Any, config: Any = None) -> int:
        with self._lock:
            meets, self._left = self._left > 0, self._left - 1
        if meets:
            self._meeting.wait(60)
        return super().put(key, value, config)
