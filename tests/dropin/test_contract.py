"""Every answer that was observed of Mooncake's store, as a table, and where this one's differs.

Signatures are in test_signatures.py. A row's call gets a store that lends 64 MiB and 8 KiB of memory; keys
that begin with `old` have the value b"value" in 5 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from dropin.conftest import MIB
from dropin.memory import Memory

from mooncake_client.dropin import (
    MooncakeDistributedStore,
    ObjectDataType,
    ReplicaStatus,
    ReplicateConfig,
    SoftPinAction,
    TaskStatus,
    TaskType,
)
from mooncake_store.status import Status

Dropin = MooncakeDistributedStore
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "dropin.md"


class Row(NamedTuple):
    """mooncake: what was observed of it.

    here: what this store answers, where that is not the same. said: what the page for users says of it.
    """

    call: Callable[[Dropin, Memory], Any]
    mooncake: Any
    here: Any = None
    said: str = ""


def config(**settings: Any) -> ReplicateConfig:
    made = ReplicateConfig()
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def raised(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "nothing"


LENGTH = "A list as long as the keys, also when it is empty and before `setup`"
WHOLE = "An array of any shape is stored whole"
LARGER = "A value larger than `local_buffer_size` is stored"
READING = "-706 comes only while somebody reads"

BEFORE_SETUP = {
    "get": Row(lambda s, m: s.get("k"), b""),
    "get_batch": Row(lambda s, m: s.get_batch(["a", "b"]), [b""], [b"", b""], LENGTH),
    "put": Row(lambda s, m: s.put("k", b"v"), -600),
    "put_from": Row(lambda s, m: s.put_from("k", m.ptr, 1), -600),
    "put_tensor": Row(lambda s, m: s.put_tensor("k", np.ones(2)), -600),
    "upsert": Row(lambda s, m: s.upsert("k", b"v"), -600),
    "upsert_from": Row(lambda s, m: s.upsert_from("k", m.ptr, 1), -600),
    "get_tensor": Row(lambda s, m: s.get_tensor("k"), None),
    "health_check": Row(lambda s, m: s.health_check(), 1),
    "close": Row(lambda s, m: s.close(), 0),
    "put_session": Row(lambda s, m: s.batch_put_session_start(["k"], [1]), [], [-600], LENGTH),
    "put_session_end": Row(lambda s, m: s.batch_put_session_end(["k"]), [], [-600], LENGTH),
    "get_session": Row(lambda s, m: s.batch_get_session_start(["k"]), [], [-600], LENGTH),
    "get_session_end": Row(lambda s, m: s.batch_get_session_end(["k"]), -1),
    "multi_buffers": Row(
        lambda s, m: s.batch_put_from_multi_buffers(["k"], [[m.ptr]], [[1]]), [], [-600], LENGTH
    ),
    "init_all": Row(lambda s, m: s.init_all("tcp", "", 1), -600),
}

JOINED = {
    "health_check": Row(lambda s, m: s.health_check(), 0),
    "init_all": Row(lambda s, m: s.init_all("tcp", "", 1), -600),
    "put new": Row(lambda s, m: s.put("new", b"v"), 0),
    "put on a value": Row(lambda s, m: (s.put("old", b"other"), s.get("old")), (0, b"value")),
    "put empty value": Row(lambda s, m: s.put("k", b""), -600),
    "put empty key": Row(lambda s, m: s.put("", b"v"), -600),
    "put above the local buffer": Row(lambda s, m: s.put("large", bytes(17 * MIB)), -600, 0, LARGER),
    "put above the segment": Row(lambda s, m: s.put("larger", bytes(65 * MIB)), -600),
    "put key of bytes": Row(lambda s, m: s.put(b"bytes", b"v"), 0),  # type: ignore[arg-type]
    "put str value": Row(lambda s, m: raised(lambda: s.put("k", "v")), "TypeError"),
    "put array": Row(
        lambda s, m: (s.put("array", np.ones((2, 3), np.float32)), len(s.get("array"))),
        (0, 6),
        (0, 24),
        WHOLE,
    ),
    "put_parts none": Row(lambda s, m: s.put_parts("k"), 0),
    "put_parts not bytes": Row(
        lambda s, m: raised(lambda: s.put_parts("k", np.ones((2, 2), np.uint8))), "RuntimeError"
    ),
    "put_batch": Row(lambda s, m: s.put_batch(["b1", "b2"], [b"1", b"2"]), 0),
    "put_batch twice the same": Row(lambda s, m: s.put_batch(["c1", "c1"], [b"1", b"2"]), 0),
    "put_batch mismatch": Row(lambda s, m: s.put_batch(["a", "b"], [b"1"]), -600),
    "put_batch empty": Row(lambda s, m: s.put_batch([], []), 0),
    "get missing": Row(lambda s, m: s.get("missing"), b""),
    "get_buffer missing": Row(lambda s, m: s.get_buffer("missing"), None),
    "batch_get_buffer missing": Row(lambda s, m: s.batch_get_buffer(["missing"]), [None]),
    "get_batch missing": Row(lambda s, m: s.get_batch(["old", "missing"]), [b"value", b""]),
    "get_batch empty": Row(lambda s, m: s.get_batch([]), [b""], [], LENGTH),
    "get_size missing": Row(lambda s, m: s.get_size("missing"), -704),
    "get_size": Row(lambda s, m: s.get_size("old"), 5),
    "is_exist": Row(lambda s, m: (s.is_exist("old"), s.is_exist("missing")), (1, 0)),
    "batch_is_exist empty": Row(lambda s, m: s.batch_is_exist([]), []),
    "remove missing": Row(lambda s, m: s.remove("missing"), -704),
    "remove after a get": Row(
        lambda s, m: (s.get("old1"), s.remove("old1")), (b"value", -706), (b"value", 0), READING
    ),
    "remove by force": Row(lambda s, m: (s.get("old2"), s.remove("old2", True)), (b"value", 0)),
    "batch_remove": Row(
        lambda s, m: (s.get("old3"), s.batch_remove(["old3", "missing"])),
        (b"value", [-706, -704]),
        (b"value", [0, -704]),
        READING,
    ),
    "remove_by_regex": Row(lambda s, m: s.remove_by_regex("^old4[ab]$"), 2),
    "remove_by_regex none": Row(lambda s, m: s.remove_by_regex("^nobody"), 0),
    "remove_by_regex bad": Row(lambda s, m: s.remove_by_regex("["), -600),
    "upsert new": Row(lambda s, m: (s.upsert("up", b"a"), s.get("up")), (0, b"a")),
    "upsert same size": Row(lambda s, m: (s.upsert("old5", b"eulav"), s.get("old5")), (0, b"eulav")),
    "upsert other size": Row(lambda s, m: (s.upsert("old6", b"longer"), s.get("old6")), (0, b"longer")),
    "register twice": Row(
        lambda s, m: [
            s.register_buffer(m.ptr, 100),
            s.register_buffer(m.ptr, 100),
            s.register_buffer(m.ptr + 50, 100),
            s.unregister_buffer(m.ptr),
            s.unregister_buffer(m.ptr),
        ],
        [0, -600, -600, 0, -600],
    ),
    "get_into": Row(lambda s, m: s.get_into("old", m.ptr, 100), 5),
    "get_into small": Row(lambda s, m: s.get_into("old", m.ptr, 4), -600),
    "get_into missing": Row(lambda s, m: s.get_into("missing", m.ptr, 100), -704),
    "put_from not registered": Row(lambda s, m: s.put_from("from", m.ptr, 8), 0),
    "batch_put_from": Row(lambda s, m: s.batch_put_from(["f1", "f1"], [m.ptr, m.ptr], [1, 1]), [0, 0]),
    "batch_put_from mismatch": Row(lambda s, m: s.batch_put_from(["a", "b"], [m.ptr], [1]), [-600, -600]),
    "batch_get_into": Row(
        lambda s, m: s.batch_get_into(["old", "missing", "old"], [m.ptr] * 3, [9, 9, 4]), [5, -704, -600]
    ),
    "get_into_ranges": Row(
        lambda s, m: s.get_into_ranges(
            [m.ptr], [["old", "missing", "old"]], [[[0], [0], [0]]], [[[1], [0], [4]]], [[[3], [1], [2]]]
        ),
        [[[3], [-704], [-600]]],
    ),
    "get_into_ranges shapes": Row(
        lambda s, m: s.get_into_ranges([m.ptr], [["old"]], [[[0]]], [[[0, 1]]], [[[1]]]), [[[-600]]]
    ),
    "get_into_ranges beyond the buffer": Row(
        lambda s, m: (
            s.register_buffer(m.ptr, 32),
            s.get_into_ranges([m.ptr], [["old", "old"]], [[[30], [27]]], [[[0], [0]]], [[[4], [5]]]),
            s.unregister_buffer(m.ptr),
        ),
        (0, [[[-600], [5]]], 0),
    ),
    "multi_buffers": Row(
        lambda s, m: s.batch_get_into_multi_buffers(
            ["old", "missing"], [[m.ptr, m.ptr + 8]] * 2, [[3, 3]] * 2
        ),
        [5, -704],
    ),
    "put_from_with_metadata": Row(
        lambda s, m: (
            m.write(b"datameta"),
            s.put_from_with_metadata("joined", m.ptr, m.ptr + 4, 4, 4),
            s.get("joined"),
        ),
        (None, 0, b"metadata"),
    ),
    "put session": Row(
        lambda s, m: [
            s.batch_put_session_start(["ses"], [4]),
            s.batch_put_from_multi_buffer_ranges(["ses"], [[m.ptr]], [[4]], [[0]]),
            s.is_exist("ses"),
            s.batch_put_session_end(["ses"]),
            s.is_exist("ses"),
        ],
        [[0], [4], 0, [0], 1],
    ),
    "put session revoked": Row(
        lambda s, m: [s.batch_put_session_start(["rev"], [4]), s.batch_put_session_revoke(["rev"])],
        [[0], [0]],
    ),
    "get session": Row(
        lambda s, m: [
            s.batch_get_session_start(["old", "missing"]),
            s.batch_get_into_multi_buffer_ranges(["old"], [[m.ptr]], [[2]], [[1]]),
            s.batch_get_session_end(["old"]),
            s.batch_get_into_multi_buffer_ranges(["old"], [[m.ptr]], [[2]], [[1]]),
        ],
        [[0, -704], [2], 0, [-600]],
    ),
    "two replicas on one segment": Row(lambda s, m: s.put("two", b"v", config(replica_num=2)), 0),
    "no replica": Row(lambda s, m: s.put("k", b"v", config(replica_num=0)), -600),
    "group_ids mismatch": Row(lambda s, m: s.put("k", b"v", config(group_ids=["a", "b"])), -600),
    "ttl without pin": Row(lambda s, m: s.put("k", b"v", config(soft_pin_ttl_ms=5)), -600),
    "pin": Row(
        lambda s, m: s.put("pin", b"v", config(soft_pin_action=SoftPinAction.ENABLE, soft_pin_ttl_ms=5)), 0
    ),
    "unknown preferred segment": Row(lambda s, m: s.put("pref", b"v", config(preferred_segment="x:1")), 0),
    "get_replica_desc missing": Row(lambda s, m: s.get_replica_desc("missing"), []),
    "batch_get_replica_desc": Row(lambda s, m: list(s.batch_get_replica_desc(["old", "missing"])), ["old"]),
    "wrong accessor": Row(
        lambda s, m: raised(s.get_replica_desc("old")[0].get_disk_descriptor), "RuntimeError"
    ),
    "copy to unknown": Row(lambda s, m: s.create_copy_task("old", ["unknown"]), ((0, 0), -600)),
    "copy of missing": Row(lambda s, m: s.create_copy_task("missing", ["unknown"]), ((0, 0), -704)),
    "query_task": Row(lambda s, m: s.query_task((1, 2)), (None, -1400)),
    "batch_replica_clear": Row(lambda s, m: s.batch_replica_clear(["old7", "missing"]), ["old7"]),
    "mount and free": Row(
        lambda s, m: mounted(s),
        [0, 16777216, True, 0, -1],
    ),
    "unmount_and_free_segment": Row(lambda s, m: s.unmount_and_free_segment(["bad"]), -1),
    "mount_segment of nothing": Row(
        lambda s, m: s.mount_segment("/nonexist", 4096), {"ret": -1, "segment_ids": []}
    ),
    "unmount_local_disk_segment": Row(lambda s, m: s.unmount_local_disk_segment(), 0),
    "alloc_from_mem_pool": Row(lambda s, m: s.alloc_from_mem_pool(1), 0),
    "get_hostname": Row(lambda s, m: bool(re.fullmatch(r"127\.0\.0\.1:1[234]\d{3}", s.get_hostname())), True),
}


def mounted(store: Dropin) -> list[Any]:
    answer = store.allocate_and_mount_segment(16 << 20)
    [identity] = answer["segment_ids"]
    return [
        answer["ret"],
        answer["allocated_size"],
        re.fullmatch(r"\d+-\d+", identity) is not None,
        store.unmount_and_free_segment([identity]),
        store.unmount_and_free_segment([identity]),
    ]


def check(row: Row, store: Dropin) -> None:
    answer = row.call(store, Memory(8192))
    expected = row.mooncake if not row.said else row.here
    assert answer == expected
    assert type(answer) is type(expected)
    if row.said:
        assert row.here != row.mooncake
        said = " ".join(DOCUMENT.read_text(encoding="utf-8").split())
        assert row.said in said


@pytest.mark.parametrize("row", BEFORE_SETUP.values(), ids=BEFORE_SETUP)
def test_answer_before_setup(row: Row) -> None:
    check(row, MooncakeDistributedStore())


@pytest.fixture(scope="module", params=["lane", "grpc"])
def control(request: pytest.FixtureRequest) -> str:
    """Every test of this module, over either door."""
    door: str = request.param
    return door


@pytest.fixture(scope="module")
def joined(master_address: str, control: str) -> Iterator[Dropin]:
    store = MooncakeDistributedStore()
    settings = ("127.0.0.1", "P2PHANDSHAKE", 64 * MIB, 16 * MIB, "tcp", "", master_address)
    assert store.setup(*settings, tenant_id=f"contract over {control}", control=control) == 0
    names = ["old", *(f"old{number}" for number in range(1, 8)), "old4a", "old4b"]
    assert store.put_batch(names, [b"value"] * len(names)) == 0
    yield store
    store.close()


@pytest.mark.parametrize("row", JOINED.values(), ids=JOINED)
def test_answer_of_a_store_that_has_joined(row: Row, joined: Dropin) -> None:
    check(row, joined)


@pytest.mark.parametrize("row", BEFORE_SETUP.values(), ids=BEFORE_SETUP)
def test_answer_after_close(row: Row, master_address: str) -> None:
    store = MooncakeDistributedStore()
    assert store.setup("localhost", "x", 0, MIB, "tcp", "", master_address) == 0
    assert [store.close(), store.close()] == [0, 0]
    check(row, store)


def test_store_without_a_local_buffer_serves_and_does_not_put(master_address: str) -> None:
    store = MooncakeDistributedStore()
    settings = ("localhost", "x", 16 * MIB, 0, "tcp", "", master_address)
    assert store.setup(*settings, tenant_id="serves") == 0
    memory = Memory(b"value")
    assert store.put("k", b"v") == -600
    assert store.put_batch(["k"], [b"v"]) == -600
    assert store.upsert("k", b"v") == -600
    assert store.put_parts("k", b"v") == -600
    assert store.is_exist("k") == 0
    assert store.put_from("k", memory.ptr, 5) == 0
    assert store.get("k") == b"value"
    assert store.close() == 0


CODES = """
0 OK; -1 INTERNAL_ERROR; -10 BUFFER_OVERFLOW; -100 SHARD_INDEX_OUT_OF_RANGE; -101 SEGMENT_NOT_FOUND
-102 SEGMENT_ALREADY_EXISTS; -103 CLIENT_NOT_FOUND; -200 NO_AVAILABLE_HANDLE; -300 INVALID_VERSION
-400 INVALID_KEY; -500 WRITE_FAIL; -600 INVALID_PARAMS; -601 ILLEGAL_CLIENT; -700 INVALID_WRITE
-701 INVALID_READ; -702 INVALID_REPLICA; -703 REPLICA_IS_NOT_READY; -704 OBJECT_NOT_FOUND
-705 OBJECT_ALREADY_EXISTS; -706 OBJECT_HAS_LEASE; -707 LEASE_EXPIRED; -708 OBJECT_HAS_REPLICATION_TASK
-709 OBJECT_NO_REPLICATION_TASK; -710 REPLICA_NOT_FOUND; -711 REPLICA_ALREADY_EXISTS; -712 REPLICA_IS_GONE
-713 REPLICA_NOT_IN_LOCAL_MEMORY; -714 OBJECT_REPLICA_BUSY; -800 TRANSFER_FAIL; -801 CHECKSUM_MISMATCH
-900 RPC_FAIL; -901 RPC_TIMEOUT; -1000 ETCD_OPERATION_ERROR; -1001 ETCD_KEY_NOT_EXIST
-1002 ETCD_TRANSACTION_FAIL; -1003 ETCD_CTX_CANCELLED; -1004 OPLOG_ENTRY_NOT_FOUND
-1005 K8S_LEASE_OPERATION_ERROR; -1006 K8S_LEASE_NOT_FOUND; -1007 INCOMPLETE_OPLOG_CATCH_UP
-1010 UNAVAILABLE_IN_CURRENT_STATUS; -1011 UNAVAILABLE_IN_CURRENT_MODE; -1012 NOT_SUPPORTED
-1100 FILE_NOT_FOUND; -1101 FILE_OPEN_FAIL; -1102 FILE_READ_FAIL; -1103 FILE_WRITE_FAIL
-1104 FILE_INVALID_BUFFER; -1105 FILE_LOCK_FAIL; -1106 FILE_INVALID_HANDLE; -1200 BUCKET_NOT_FOUND
-1201 BUCKET_ALREADY_EXISTS; -1202 KEYS_EXCEED_BUCKET_LIMIT; -1203 KEYS_ULTRA_LIMIT; -1300 UNABLE_OFFLOAD
-1301 UNABLE_OFFLOADING; -1400 TASK_NOT_FOUND; -1401 TASK_PENDING_LIMIT_EXCEEDED; -1402 JOB_NOT_FOUND
-1500 SERIALIZE_UNSUPPORTED; -1501 SERIALIZE_FAIL; -1502 DESERIALIZE_FAIL; -1503 PERSISTENT_FAIL
-1600 DFS_NETWORK_TIMEOUT; -1601 DFS_SERVICE_UNAVAILABLE; -1602 DFS_QUOTA_EXCEEDED
-1603 DFS_PERMISSION_DENIED; -1604 DFS_STALE_HANDLE; -1605 DFS_PARTIAL_WRITE; -1700 TENANT_QUOTA_EXCEEDED
-1701 TENANT_NOT_REGISTERED; -1702 TENANT_NOT_EMPTY
"""


def test_codes_have_mooncakes_numbers() -> None:
    rows = re.findall(r"(-?\d+) ([A-Z0-9_]+)", CODES)
    assert len(rows) == 72
    assert {name: int(Status[name]) for _, name in rows} == {name: int(number) for number, name in rows}


def test_members_of_enumerations_have_mooncakes_numbers() -> None:
    tables = {
        ObjectDataType: "UNKNOWN KVCACHE TENSOR WEIGHT SAMPLE ACTIVATION GRADIENT OPTIMIZER_STATE METADATA "
        "GENERAL",
        SoftPinAction: "PRESERVE ENABLE DISABLE",
        ReplicaStatus: "UNDEFINED INITIALIZED PROCESSING COMPLETE REMOVED FAILED",
        TaskType: "REPLICA_COPY REPLICA_MOVE",
        TaskStatus: "PENDING PROCESSING FAILED SUCCESS",
    }
    for enumeration, names in tables.items():
        assert [(member.name, int(member)) for member in enumeration] == [
            (name, number) for number, name in enumerate(names.split())
        ]


def test_configuration_has_mooncakes_attributes_and_defaults() -> None:
    made = ReplicateConfig()
    assert made._values() == {
        "replica_num": 1,
        "nof_replica_num": 0,
        "dfs_replica_num": 0,
        "soft_pin_action": SoftPinAction.PRESERVE,
        "soft_pin_ttl_ms": None,
        "with_hard_pin": False,
        "preferred_segments": [],
        "preferred_segment": "",
        "preferred_nof_segments": [],
        "prefer_alloc_in_same_node": False,
        "data_type": ObjectDataType.UNKNOWN,
        "group_ids": None,
    }
    made.group_ids = ["a", ""]
    assert made.group_ids == ["a", ""]
    made.group_ids = None
    assert (made.group_ids, made.with_soft_pin) == (None, False)
    for name, value in made._values().items():
        assert f"{name}={value!r}" in str(made)
