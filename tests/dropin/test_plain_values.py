"""Values as bytes, with Mooncake's codes: every row of its observed answers that is about them."""

from __future__ import annotations

import numpy as np
import pytest
from dropin.conftest import MIB, JoinPool
from dropin.memory import pattern

from mooncake_client import Store
from mooncake_client.dropin import MooncakeDistributedStore, ReplicateConfig, SoftPinAction


@pytest.fixture(scope="module", params=["lane", "grpc"])
def control(request: pytest.FixtureRequest) -> str:
    """Every test of this module, over either door."""
    door: str = request.param
    return door


Dropin = MooncakeDistributedStore


def test_put_keeps_the_value_that_is_there(store: Dropin) -> None:
    assert store.put("k", b"first") == 0
    assert store.put("k", b"second") == 0
    assert store.get("k") == b"first"


def test_upsert_replaces_by_one_of_any_size(store: Dropin) -> None:
    for value in (b"new", b"old", b"a longer one"):
        assert store.upsert("k", value) == 0
        assert store.get("k") == value
    assert store.upsert_batch(["k", "l"], [b"1", b"2"]) == 0
    assert store.get_batch(["k", "l"]) == [b"1", b"2"]
    assert store.upsert_parts("k", b"a", b"", b"b") == 0
    assert store.get("k") == b"ab"


def test_empty_value_and_empty_key_are_refused(store: Dropin) -> None:
    assert store.put("k", b"") == -600
    assert store.put("", b"v") == -600
    assert store.put_batch(["a", "b"], [b"x", b""]) == -600
    assert store.is_exist("a") == 0
    assert store.put_parts("k", b"", b"") == -600
    assert store.put_parts("k") == 0
    assert store.is_exist("k") == 0


def test_empty_key_is_never_found(store: Dropin) -> None:
    assert store.get("") == b""
    assert store.is_exist("") == 0
    assert store.batch_is_exist(["", "k"]) == [0, 0]
    assert store.get_size("") == -704
    assert store.remove("") == -704


def test_key_too_long_has_a_code_of_its_own_and_the_others_go_on(store: Dropin) -> None:
    assert store.put("x" * 1025, b"v") == -400
    assert store.put_batch(["x" * 1025, "good"], [b"v", b"w"]) == -400
    assert store.get("good") == b"w"


def test_keys_may_be_bytes_and_nothing_else(store: Dropin) -> None:
    assert store.put(b"k", b"v") == 0  # type: ignore[arg-type]
    assert store.get("k") == b"v"
    for key in (3, None, ["k"]):
        with pytest.raises(TypeError):
            store.put(key, b"v")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            store.is_exist(key)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        store.batch_is_exist("k")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        store.put("k", "text")


def test_array_of_any_shape_is_stored_whole(store: Dropin) -> None:
    """Mooncake stores as many bytes of it as it has elements."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert store.put("whole", array) == 0
    assert store.get("whole") == array.tobytes()
    assert store.put("transposed", array.T) == 0
    assert store.get("transposed") == array.T.tobytes()
    assert store.put_batch(["columns"], [np.ones((4, 4))[:, ::2]]) == 0
    assert len(store.get("columns")) == 64


def test_parts_are_joined_and_must_be_bytes(store: Dropin) -> None:
    assert store.put_parts("k", b"head", bytearray(b"-"), memoryview(b"xtailx")[1:5]) == 0
    assert store.get("k") == b"head-tail"
    for part in (np.ones((2, 2), dtype=np.uint8), np.ones(2, dtype=np.float32)):
        with pytest.raises(RuntimeError, match="parts must be 1-D bytes-like"):
            store.put_parts("l", part)


def test_put_batch_answers_one_code(store: Dropin) -> None:
    assert store.put_batch(["a", "b"], [b"1", b"2"]) == 0
    assert store.put_batch(["a", "c", "c"], [b"9", b"3", b"9"]) == 0
    assert store.get_batch(["a", "b", "c", "missing"]) == [b"1", b"2", b"3", b""]
    assert store.put_batch(["a", "b"], [b"1"]) == -600
    assert store.put_batch([], []) == 0


def test_what_is_missing(store: Dropin) -> None:
    assert store.get("missing") == b""
    assert store.get_buffer("missing") is None
    assert store.get_size("missing") == -704
    assert store.is_exist("missing") == 0
    assert store.get_batch([]) == []
    assert store.batch_is_exist([]) == []
    assert store.remove("missing") == -704


def test_size_and_existence(store: Dropin) -> None:
    store.put("k", bytes(1000))
    assert store.get_size("k") == 1000
    assert store.is_exist("k") == 1
    assert store.batch_is_exist(["missing", "k"]) == [0, 1]


def test_buffers_hold_whole_values_and_are_writable(store: Dropin) -> None:
    value = pattern(100_000)
    store.put("k", value)
    [buffer, missing] = store.batch_get_buffer(["k", "missing"])
    assert missing is None
    assert buffer is not None
    view = memoryview(buffer)
    assert (view.format, view.ndim, view.readonly, len(buffer), buffer.size()) == (
        "b",
        1,
        False,
        100_000,
        100_000,
    )
    assert bytes(view) == value
    assert np.frombuffer(buffer, dtype=np.uint8).ctypes.data == buffer.ptr()
    del buffer
    assert bytes(view) == value, "a view keeps the memory"


def test_value_larger_than_the_local_buffer(join: JoinPool) -> None:
    """Mooncake refuses it: its clients copy through that buffer."""
    store = join(64 * MIB)
    value = pattern(20 * MIB)
    assert store.put("k", value) == 0
    assert store.get("k") == value


def test_value_larger_than_any_segment_is_refused(store: Dropin) -> None:
    assert store.put("k", bytes(65 * MIB)) == -600


def test_no_room_is_the_code_that_vllm_knows(store: Dropin, join: JoinPool) -> None:
    pinned = ReplicateConfig()
    pinned.with_hard_pin = True
    codes = [store.put(f"k{index}", bytes(8 * MIB), pinned) for index in range(9)]
    assert codes[:6] == [0] * 6
    assert codes[-1] == -200
    nobody_lends = join()
    assert nobody_lends.remove_all(True) == codes.count(0)


def test_remove(store: Dropin) -> None:
    store.put("k", b"v")
    assert store.remove("k") == 0
    assert store.remove("k") == -704
    store.put("k", b"v")
    assert store.remove("k", True) == 0
    assert store.remove("k", force=True) == -704


def test_remove_of_what_is_being_read_needs_force(store: Dropin, master_address: str) -> None:
    store.put_batch(["k", "l"], [b"v", b"w"])
    membership = store._membership
    assert membership is not None
    with Store(master_address, tenant=membership.config.tenant_id) as reader:
        opened = reader._client().open(["k"])
        assert store.remove("k") == -706
        assert store.batch_remove(["k", "missing"]) == [-706, -704]
        assert store.remove_by_regex("^k$") == 0
        assert store.remove_all() == 1
        assert store.remove("k", force=True) == 0
        del opened


def test_own_reads_do_not_block_a_remove(store: Dropin) -> None:
    for _ in range(3):
        store.put_batch(["k", "l"], [b"v", b"w"])
        assert store.get_batch(["k", "l"]) == [b"v", b"w"]
        assert store.is_exist("k") == 1
        assert store.remove("k") == 0
        assert store.remove_all() == 1


def test_remove_by_regex_and_all(store: Dropin) -> None:
    store.put_batch(["a1", "a2", "b1"], [b"1", b"2", b"3"])
    assert store.remove_by_regex("^a") == 2
    assert store.remove_by_regex("^a") == 0
    assert store.remove_by_regex("[") == -600
    store.put_batch(["a1", "a2"], [b"1", b"2"])
    assert store.remove_by_regex("1$") == 2
    assert store.batch_is_exist(["a2"]) == [1]
    assert store.remove_all() == 1
    assert store.remove_all(force=True) == 0


def test_remove_all_goes_over_all_pages_and_leaves_other_tenants(store: Dropin, master_address: str) -> None:
    with Store(master_address, tenant="of somebody else") as other:
        other.put("mine", b"v")
        keys = [f"k{index}" for index in range(2_500)]
        assert store.put_batch(keys, [b"v"] * len(keys)) == 0
        assert store.remove_all(True) == 2_500
        assert store.batch_is_exist(keys).count(0) == 2_500
        assert other.get("mine") == b"v"
        other.remove("mine")


def test_replicas_are_made_as_many_as_there_are_segments(store: Dropin, join: JoinPool) -> None:
    config = ReplicateConfig()
    config.replica_num = 2
    assert store.put("one", b"v", config) == 0
    assert len(store.get_replica_desc("one")) == 1
    join(16 * MIB)
    assert store.put("two", b"v", config) == 0
    assert len(store.get_replica_desc("two")) == 2


def test_refused_configurations(store: Dropin) -> None:
    def code(**settings: object) -> int:
        config = ReplicateConfig()
        for name, value in settings.items():
            setattr(config, name, value)
        codes = {
            store.put("k", b"v", config),
            store.upsert("k", b"v", config),
            store.put_parts("k", b"v", config=config),
        }
        [one] = codes
        return one

    assert code(replica_num=0) == -600
    assert code(group_ids=["a", "b"]) == -600
    assert code(soft_pin_ttl_ms=5) == -600
    assert code(prefer_alloc_in_same_node=True, replica_num=2) == -600
    assert code(nof_replica_num=1) == -1012
    assert code(dfs_replica_num=1) == -1012
    assert store.is_exist("k") == 0
    assert code(group_ids=["a"]) == 0
    assert code(preferred_segment="nobody's") == 0
    assert code(soft_pin_action=SoftPinAction.ENABLE, soft_pin_ttl_ms=5) == 0


def test_preferred_segment_is_where_a_value_goes(store: Dropin, join: JoinPool) -> None:
    other = join(64 * MIB)
    for name in (store.get_hostname(), other.get_hostname()):
        config = ReplicateConfig()
        config.preferred_segment = name
        keys = [f"{name}-{index}" for index in range(8)]
        assert store.put_batch(keys, [b"v"] * 8, config) == 0
        places = {
            copy.get_memory_descriptor().buffer_descriptor.transport_endpoint
            for copies in store.batch_get_replica_desc(keys).values()
            for copy in copies
        }
        assert places == {name}


def test_answers_are_exactly_ints(store: Dropin) -> None:
    """vLLM's encoder cache gives a store up whose answers are of a subclass."""
    store.put("k", b"v")
    answers = [
        store.put("k", b"v"),
        store.remove("missing"),
        store.get_size("k"),
        store.is_exist("k"),
        *store.batch_is_exist(["k", "missing", ""]),
        *store.batch_remove(["k", "missing"]),
        store.remove_all(),
        store.health_check(),
    ]
    assert {type(answer) for answer in answers} == {int}


def test_configuration_attributes() -> None:
    config = ReplicateConfig()
    assert (config.replica_num, config.with_hard_pin, config.preferred_segments) == (1, False, [])
    assert (config.soft_pin_ttl_ms, config.group_ids, config.soft_pin_action) == (
        None,
        None,
        SoftPinAction.PRESERVE,
    )
    config.with_soft_pin = True
    assert config.soft_pin_action is SoftPinAction.ENABLE
    assert "replica_num=1" in str(config)
    for name, value in (
        ("soft_pin_ttl_ms", -1),
        ("soft_pin_ttl_ms", 2**64),
        ("replica_num", "2"),
        ("group_ids", "ab"),
        ("preferred_segment", 3),
        ("with_hard_pin", 1),
    ):
        with pytest.raises(TypeError):
            setattr(config, name, value)
    with pytest.raises(AttributeError):
        config.session_ids = []  # type: ignore[attr-defined]
