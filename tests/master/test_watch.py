"""The master's log tells which segments came and went and which numbers rose with trouble, once each."""

import logging

from mooncake_master.watch import TROUBLE, Notice, PoolWatch
from mooncake_store import _core

SEGMENT = {"segment": 7, "name": "a", "capacity_bytes": 1 << 20, "endpoints": ["tcp://10.0.0.1:5"]}
FIELDS = {"segment": "a", "capacity": "1MiB", "endpoint": "tcp://10.0.0.1:5"}


def said(notice: Notice) -> str:
    return notice.text % notice.fields


def test_a_segment_that_joins_or_leaves_is_told_once() -> None:
    watch = PoolWatch()
    (joined,) = watch.look({}, [SEGMENT])
    assert (joined.level, joined.fields) == (logging.INFO, FIELDS)
    assert said(joined) == "segment a joined the pool: 1MiB at tcp://10.0.0.1:5"
    assert list(watch.look({}, [SEGMENT])) == []
    assert list(watch.look({})) == []
    (left,) = watch.look({}, [])
    assert said(left) == "segment a left the pool: 1MiB at tcp://10.0.0.1:5"


def test_segments_are_asked_for_only_when_some_moved() -> None:
    watch = PoolWatch()
    assert not watch.moved({"segments_mounted_total": 0})
    assert watch.moved({"segments_mounted_total": 1})
    list(watch.look({"segments_mounted_total": 1}, [SEGMENT]))
    assert not watch.moved({"segments_mounted_total": 1, "segments_expelled_total": 0})
    assert watch.moved({"segments_mounted_total": 1, "segments_expelled_total": 1})


def test_a_number_that_rose_is_a_warning_with_the_difference() -> None:
    watch = PoolWatch()
    (first,) = watch.look({"lost_keys_total": 3, "key_count": 9})
    assert (first.level, said(first)) == (
        logging.WARNING,
        "3 values went with the segment of their last copy",
    )
    assert list(watch.look({"lost_keys_total": 3, "key_count": 1})) == []
    (second,) = watch.look({"lost_keys_total": 5})
    assert second.fields["count"] == 2


def test_a_node_that_was_expelled_early_is_told_once_and_with_its_reason() -> None:
    (told,) = PoolWatch().look({"sessions_expired_total": 1, "early_expiries_total": 1})
    assert said(told) == "1 nodes were expelled early: neither clients nor the master reach them"
    others = list(PoolWatch().look({"sessions_expired_total": 3, "early_expiries_total": 1}))
    assert [notice.fields["count"] for notice in others] == [1, 2]


def test_every_watched_number_exists() -> None:
    master = _core.Master(lane_host="127.0.0.1")
    master.start()
    try:
        assert set(TROUBLE) <= set(master.stats())
    finally:
        master.stop()
    for name, words in TROUBLE.items():
        assert "3" in words % {"count": 3, "metric": name}


def test_a_master_that_steps_down_and_serves_again_says_so_once() -> None:
    watch = PoolWatch()
    assert list(watch.look_at_reign({"epoch": 4, "deposed_by_epoch": 0})) == []
    (down,) = watch.look_at_reign({"epoch": 4, "deposed_by_epoch": 5})
    assert down.level == logging.ERROR
    assert said(down).startswith("this master, of epoch 4, stepped down: nodes follow one of epoch 5")
    assert list(watch.look_at_reign({"epoch": 4, "deposed_by_epoch": 5})) == []
    (again,) = watch.look_at_reign({"epoch": 4, "deposed_by_epoch": 0})
    assert (again.level, again.fields) == (logging.WARNING, {"epoch": 4, "later": 5})
