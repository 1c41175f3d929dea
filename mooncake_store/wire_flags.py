"""Bits of packed requests and answers, as native/wire/lane.h and inspect.h number them."""

from __future__ import annotations

from typing import Final

REQUEST_FORCE: Final = 1
REQUEST_WITHOUT_HOLD: Final = 2
REQUEST_COPIES: Final = 8

PUT_HARD_PIN: Final = 1
PUT_SOFT_PIN: Final = 2
PUT_UPSERT: Final = 4
PUT_LOCAL: Final = 8
PUT_KEEP_SOFT_PIN: Final = 16

SUBJECT_POOL: Final = 0
SUBJECT_KEY: Final = 1
SUBJECT_NAME: Final = 2

SEGMENT_CONNECTED: Final = 1
SEGMENT_TOLD: Final = 2
SEGMENT_SUSPECTED: Final = 4
