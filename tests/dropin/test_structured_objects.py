"""Bundles and structured objects, over stores of few methods, of many, and over the real one."""

from __future__ import annotations

import ctypes
import json
from typing import Any

import numpy as np
import pytest
from dropin.conftest import JoinPool
from dropin.memory import pattern
from dropin.plain_store import AddressStore, MeetingStore, PlainStore

from mooncake_client.dropin import MooncakeDistributedStore, ReplicateConfig
from mooncake_client.dropin.structured_object_store import (
    BundleTransferPolicy,
    MooncakeBundleTransfer,
    RemoteBundleRef,
    StructuredObjectPayload,
    raw_destination,
    tensor_object_buffer,
)
from mooncake_client.dropin.tensor_functions import _serialize_tensor

Transfer = MooncakeBundleTransfer
FIELDS = "__mooncake_structured_fields__"
ZERO_COPY = BundleTransferPolicy(copy_mode="zero_copy")


@pytest.fixture(params=["plain", "addresses", "real"])
def transfer(request: pytest.FixtureRequest) -> Transfer:
    if request.param == "real":
        return MooncakeBundleTransfer(request.getfixturevalue("store"), "test")
    return MooncakeBundleTransfer(PlainStore() if request.param == "plain" else AddressStore(), "test")


def object_of(metadata: Any = None, **buffers: Any) -> StructuredObjectPayload:
    return StructuredObjectPayload(metadata, buffers)


def whole(transfer: Transfer, ref: Any) -> dict[str, Any]:
    return transfer.materialize(transfer.read_spec(ref)).objects


@pytest.mark.parametrize("chunk_bytes", [None, 7, 64])
def test_object_is_read_as_it_was_put(transfer: Transfer, chunk_bytes: int | None) -> None:
    array = np.arange(12, dtype=np.int16).reshape(3, 4)
    payload = object_of(
        {"step": 7}, weights=array, columns=array.T, raw=b"abc", none=b"", empty=np.empty((4, 0))
    )
    ref = transfer.put_structured_object(payload, chunk_bytes=chunk_bytes)
    result = transfer.materialize(transfer.read_spec({"manifest_key": ref.manifest_key}))
    assert result.metadata["step"] == 7
    assert result.metadata["layout"] == "structured"
    assert result.metadata["__mooncake_structured_fields__"]["weights"] == {
        "encoding": "ndarray",
        "dtype": "<i2",
        "shape": [3, 4],
    }
    for name, value in (("weights", array), ("columns", array.T), ("empty", np.empty((4, 0)))):
        found = result.objects[name]
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        assert np.array_equal(found, value)
    assert (result.objects["raw"], result.objects["none"]) == (b"abc", b"")
    chunks = ref.manifest["buffers"]["weights"]["chunks"]
    assert len(chunks) == (1 if chunk_bytes is None else -(-24 // chunk_bytes))
    assert ref.manifest["buffers"]["none"]["chunks"] == []


@pytest.mark.parametrize(
    ("start", "end", "step"), [(3, 9, 1), (1, 12, 3), (None, None, 1), (4, 4, 1), (-2, None, 1)]
)
def test_rows_of_an_array(transfer: Transfer, start: int | None, end: int | None, step: int) -> None:
    array = np.arange(96, dtype=np.int32).reshape(12, 8)
    ref = transfer.put_structured_object(object_of(weights=array, raw=b"x"), chunk_bytes=20)
    spec = transfer.read_spec(ref).select_members(["weights"])
    result = transfer.materialize(spec.slice_member("weights", axis=0, start=start, end=end, step=step))
    assert list(result.objects) == ["weights"]
    assert np.array_equal(result.objects["weights"], array[start:end:step])
    assert result.objects["weights"].shape == array[start:end:step].shape


def test_memory_of_the_caller_is_filled(transfer: Transfer) -> None:
    array = np.arange(96, dtype=np.float32).reshape(12, 8)
    ref = transfer.put_structured_object(object_of(weights=array), chunk_bytes=40)
    spec = transfer.read_spec(ref).slice_member("weights", start=2, end=10)
    target = np.empty((8, 8), dtype=np.float32)
    result = transfer.materialize_into(spec, {"weights": target})
    assert result.objects["weights"] is target
    assert np.array_equal(target, array[2:10])
    raw = np.empty(300, dtype=np.uint8)
    memory = raw_destination(int(raw.ctypes.data), raw.nbytes, raw)
    found = transfer.materialize_into(spec, {"weights": memory}).objects["weights"]
    assert np.array_equal(found, array[2:10])
    assert raw[:256].tobytes() == array[2:10].tobytes()


def test_reads_that_cannot_be(transfer: Transfer) -> None:
    array = np.arange(24, dtype=np.int16).reshape(6, 4)
    ref = transfer.put_structured_object(object_of(weights=array, raw=b"abc"), chunk_bytes=8)
    spec = transfer.read_spec(ref)
    readonly = np.empty((2, 4), dtype=np.int16)
    readonly.flags.writeable = False
    rows = spec.slice_member("weights", start=1, end=3)
    for wrong, said in (
        (lambda: transfer.materialize(spec.slice_member("weights", axis=1)), "axis=0"),
        (lambda: transfer.materialize(spec.slice_member("weights", step=0)), "step must be positive"),
        (lambda: transfer.materialize(spec.slice_member("raw", start=0)), "does not support slicing"),
        (lambda: transfer.materialize(spec.select_members([])), "selected no members"),
        (lambda: transfer.materialize_into(rows, {"weights": np.empty((3, 4), np.int16)}), "shape mismatch"),
        (lambda: transfer.materialize_into(rows, {"weights": np.empty((2, 4), np.int32)}), "mismatch"),
        (lambda: transfer.materialize_into(rows, {"weights": readonly}), "writeable"),
        (lambda: transfer.materialize_into(rows, {"weights": raw_destination(1, 8)}), "8 bytes of 16"),
    ):
        with pytest.raises(ValueError, match=said):
            wrong()
    with pytest.raises(KeyError, match="nobody"):
        transfer.materialize(spec.select_members(["nobody"]))


def test_objects_of_python(transfer: Transfer) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = {"array": array, "blob": b"b", "step": 3, "names": ["a", None], "last": {"k": 1.5}}
    found = transfer.get_object(transfer.put_object(value))
    assert list(found) == list(value)
    assert np.array_equal(found.pop("array"), array)
    assert found == {name: one for name, one in value.items() if name != "array"}
    assert np.array_equal(transfer.get_object(transfer.put_object(array)), array)
    assert transfer.get_object(transfer.put_object([1, "two"])) == [1, "two"]
    with pytest.raises(TypeError, match="JSON-serializable"):
        transfer.put_object({"bad": object()})


def test_what_is_removed_is_gone(transfer: Transfer) -> None:
    ref = transfer.put_structured_object(object_of(a=bytes(64), b=b"x"), chunk_bytes=8)
    bundle = transfer.put_bundle(b"meta", {"payload": b"data"}, partition="p", namespace="n")
    assert bundle.manifest_key.startswith("test/n/p/")
    keys = {ref.manifest_key, bundle.manifest_key}
    for one in (ref, bundle):
        for entry in (one.manifest["meta"], *one.manifest["buffers"].values()):
            keys |= {chunk["key"] for chunk in entry["chunks"]}
    assert len(keys) == 2 + 2 + 8 + 1 + 1
    assert all(transfer.store.get(key) for key in keys)
    transfer.remove_bundle(ref)
    transfer.remove_bundle({"manifest_key": bundle.manifest_key})
    assert not any(transfer.store.get(key) for key in keys)
    transfer.remove_bundle(ref)  # what is gone already is no error
    with pytest.raises(RuntimeError, match="there is no value"):
        transfer.materialize(transfer.read_spec({"manifest_key": ref.manifest_key}))


def test_copies_are_as_many_as_the_configuration_says(
    join: JoinPool, store: MooncakeDistributedStore
) -> None:
    join(64 << 20)
    config = ReplicateConfig()
    config.replica_num = 2
    transfer = MooncakeBundleTransfer(store)
    ref = transfer.put_structured_object(object_of(a=bytes(100)), config=config)
    [chunk] = ref.manifest["buffers"]["a"]["chunks"]
    for key in (ref.manifest_key, chunk["key"], ref.manifest["meta"]["key"]):
        assert len(store.get_replica_desc(key)) == 2, key


def test_large_payload_of_a_real_store(store: MooncakeDistributedStore) -> None:
    value = pattern(5_000_000)
    transfer = MooncakeBundleTransfer(store, "large", default_chunk_bytes=1 << 20)
    ref = transfer.put_structured_object(object_of(value=np.frombuffer(value, np.uint8), raw=value))
    assert len(ref.manifest["buffers"]["raw"]["chunks"]) == 5
    found = whole(transfer, ref)
    assert found["value"].tobytes() == found["raw"] == value
    spec = (
        transfer.read_spec(ref)
        .select_members(["value"])
        .slice_member("value", start=1_000_000, end=1_100_000)
    )
    assert transfer.materialize(spec).objects["value"].tobytes() == value[1_000_000:1_100_000]


# ---- how bytes are moved


def test_store_of_addresses_is_given_addresses() -> None:
    store = AddressStore()
    transfer = MooncakeBundleTransfer(store)
    array = np.arange(64, dtype=np.int16).reshape(8, 8)
    one, cut = (transfer.put_structured_object(object_of(a=array), chunk_bytes=size) for size in (None, 32))
    assert store.calls["batch_put_from"] == 2
    store.calls.clear()
    whole(transfer, one)
    assert (store.calls["get_into_ranges"], store.calls["get"]) == (0, 0)
    whole(transfer, cut)
    assert store.calls["get_into_ranges"] == 1
    assert store.registered == {}


def test_copying_uses_put_alone() -> None:
    store = AddressStore()
    transfer = MooncakeBundleTransfer(store)
    policy = BundleTransferPolicy(copy_mode="copy")
    columns = np.arange(64, dtype=np.uint8).reshape(8, 8).T
    ref = transfer.put_structured_object(
        object_of(a=columns), policy=policy, pre_registered_buffers={"a": True}
    )
    assert (store.calls["batch_put_from"], store.calls["register"]) == (0, 0)
    assert np.array_equal(whole(transfer, ref)["a"], columns)


def test_zero_copy_needs_a_store_of_addresses() -> None:
    with pytest.raises(RuntimeError, match="zero-copy put requested"):
        MooncakeBundleTransfer(PlainStore()).put_structured_object(object_of(a=b"data"), policy=ZERO_COPY)
    store = AddressStore()
    ref = MooncakeBundleTransfer(store).put_structured_object(object_of(a=b"data"), policy=ZERO_COPY)
    assert store.calls["batch_put_from"] == 1
    assert store.values[ref.manifest["buffers"]["a"]["key"]] == b"data"


def test_memory_that_the_caller_registered_stays_so() -> None:
    store = AddressStore()
    transfer = MooncakeBundleTransfer(store)
    array = np.arange(64, dtype=np.uint8)
    pointer = int(array.ctypes.data)
    store.register_buffer(pointer, array.nbytes)
    for named in ({"a": True}, {}):
        transfer.put_structured_object(object_of(a=array), pre_registered_buffers=named)
        assert store.registered == {pointer: 64}
    assert store.calls["register"] == 2  # by the caller, and once more where nobody said so
    for buffers, named, said in (
        ({"a": array[::2]}, {"a": True}, "pre-registered structured buffer"),
        ({"a": b"readonly"}, {"a": True}, "pre-registered structured buffer"),
        ({"a": bytearray(b"data")}, {"b": True}, "unknown pre-registered"),
    ):
        with pytest.raises(ValueError, match=said):
            transfer.put_structured_object(object_of(**buffers), pre_registered_buffers=named)


def test_chunks_are_put_at_once_when_asked_for() -> None:
    transfer = MooncakeBundleTransfer(MeetingStore(4))
    policy = BundleTransferPolicy(put_mode="parallel", max_inflight_put=4)
    ref = transfer.put_structured_object(object_of(a=bytes(range(64))), chunk_bytes=8, policy=policy)
    assert whole(transfer, ref)["a"] == bytes(range(64))


# ---- what fails


@pytest.mark.parametrize("kind", [PlainStore, AddressStore])
@pytest.mark.parametrize("end", ["/1", "/meta", "/manifest"])
def test_put_that_fails_leaves_nothing(kind: type[PlainStore], end: str) -> None:
    store = kind()
    store.refused[end] = -200
    with pytest.raises(RuntimeError, match=f"put of .*{end}: -200"):
        MooncakeBundleTransfer(store).put_bundle(b"meta", {"payload": b"data"}, chunk_bytes=2)
    assert store.values == {}


def test_put_that_fails_says_why_also_when_nothing_can_be_removed(caplog: pytest.LogCaptureFixture) -> None:
    store = PlainStore()
    store.refused |= {"/meta": -200, "remove": -900}
    with pytest.raises(RuntimeError, match="-200"), caplog.at_level("WARNING", "mooncake_store.dropin"):
        MooncakeBundleTransfer(store).put_bundle(b"meta", {"payload": b"data"})
    assert store.values  # what is left is told by its keys
    [told] = caplog.messages
    assert all(key in told for key in store.values)


def test_memory_that_cannot_be_registered_is_given_back() -> None:
    store = AddressStore()
    store.refused["register"] = -1
    with pytest.raises(RuntimeError, match="register_buffer of 32 bytes: -1"):
        MooncakeBundleTransfer(store).put_structured_object(object_of(a=bytes(64)), chunk_bytes=32)
    assert (store.registered, store.values) == ({}, {})


def test_read_that_fails_gives_memory_back_and_names_the_key() -> None:
    store = AddressStore()
    transfer = MooncakeBundleTransfer(store)
    ref = transfer.put_structured_object(object_of(a=bytes(64), b=np.zeros(64)), chunk_bytes=8)
    for member in ("a", "b"):
        key = ref.manifest["buffers"][member]["chunks"][2]["key"]
        store.refused[key] = -704
        with pytest.raises(RuntimeError, match=key):
            transfer.materialize(transfer.read_spec(ref).select_members([member]))
    assert store.registered == {}


def test_remove_is_tried_again_key_by_key() -> None:
    store = AddressStore()
    transfer = MooncakeBundleTransfer(store)
    ref = transfer.put_bundle(b"meta", {"a": b"x", "b": b"y"})
    store.refused["batch_remove"] = -900
    transfer.remove_bundle(ref)
    assert (store.values, store.calls["batch_remove"]) == ({}, 1)
    store.refused |= {"remove": -900}
    with pytest.raises(RuntimeError, match=r"remove.*-900"):
        transfer.remove_bundle(ref)


def test_manifest_that_was_changed_is_not_believed() -> None:
    store = PlainStore()
    transfer = MooncakeBundleTransfer(store, "test")
    ref = transfer.put_structured_object(object_of(payload=b"abcdef"), chunk_bytes=2)
    good = json.loads(store.values[ref.manifest_key])
    outside = {**good["buffers"]["payload"], "chunks": [{"key": "other/object", "bytes": 6}]}
    short = {**good["buffers"]["payload"], "bytes": 7}
    for change, said in (
        ({"buffers": {"payload": outside}}, "namespace"),
        ({"buffers": {"payload": short}}, "are not 7 bytes"),
        ({"cleanup_keys": ["other/object"]}, "cleanup_keys"),
        ({"extends": ["other/object"]}, "namespace"),
        ({"object_id": "default/another"}, "manifest_key"),
        ({"version": 2}, "version"),
        ({"layout": "pile"}, "layout"),
    ):
        store.values[ref.manifest_key] = json.dumps({**good, **change}).encode()
        for use in (lambda one: transfer.materialize(transfer.read_spec(one)), transfer.remove_bundle):
            with pytest.raises(ValueError, match=said):
                use({"manifest_key": ref.manifest_key})
    with pytest.raises(ValueError, match="manifest_key"):
        transfer.remove_bundle(RemoteBundleRef("test/other/manifest", ref.manifest))
    store.values[ref.manifest_key] = b"{"
    with pytest.raises(ValueError, match="not JSON"):
        transfer.remove_bundle({"manifest_key": ref.manifest_key})


def test_encoding_that_is_not_known_is_refused() -> None:
    store = PlainStore()
    transfer = MooncakeBundleTransfer(store)
    ref = transfer.put_structured_object(object_of(a=np.zeros(4)))
    meta = ref.manifest["meta"]["key"]
    good = store.values[meta]
    for old, new, said in (
        (b'"ndarray"', b'"pickled"', "unsupported structured field encoding"),
        (b"[4]", b"[5]", "are no array"),
        (b'"<f8"', b'"|O8"', "are no array"),
        (b'"__mooncake_structured_fields__"', b'"__mooncake_structured_things__"', "bundle of bytes"),
    ):
        assert len(old) == len(new)
        store.values[meta] = good.replace(old, new)
        with pytest.raises(ValueError, match=said):
            transfer.materialize(transfer.read_spec(ref))


def test_settings_and_names_that_cannot_be() -> None:
    transfer = MooncakeBundleTransfer(PlainStore())
    for wrong, said in (
        (lambda: transfer.put_bundle(b"m", {}, max_inflight_put=0), "max_inflight_put"),
        (lambda: transfer.put_bundle(b"m", {}, chunk_bytes=0), "chunk_bytes"),
        (lambda: transfer.put_bundle(b"m", {}, policy=BundleTransferPolicy(copy_mode="x")), "copy_mode"),
        (lambda: transfer.put_bundle(b"m", {}, policy=BundleTransferPolicy(put_mode="x")), "put_mode"),
        (lambda: transfer.put_bundle(b"m", {"bad/name": b"x"}), "buffer name"),
        (lambda: transfer.put_bundle(b"m", {}, partition="bad/name"), "partition"),
        (lambda: transfer.put_bundle(b"m", {}, namespace="bad/name"), "namespace"),
        (lambda: MooncakeBundleTransfer(PlainStore(), ""), "key_prefix"),
        (lambda: MooncakeBundleTransfer(PlainStore(), default_chunk_bytes=0), "chunk_bytes"),
        (
            lambda: transfer.put_structured_object(object_of({"__mooncake_structured_fields__": {}})),
            "reserved",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            wrong()
    for wrong, said in (
        (lambda: transfer.put_structured_object(object_of(["no mapping"])), "mapping"),
        (lambda: transfer.put_structured_object(object_of({"bad": object()})), "JSON-serializable"),
        (lambda: transfer.put_structured_object(object_of(a=object())), "neither array"),
        (lambda: transfer.put_structured_object(object_of(a=np.array([None]))), "array of objects"),
    ):
        with pytest.raises(TypeError, match=said):
            wrong()


# ---- tensors


def tensor_object(array: Any) -> ctypes.Array[Any]:
    header, _, _, items = _serialize_tensor(array)
    return ctypes.create_string_buffer(header + bytes(memoryview(items)), len(header) + array.nbytes)  # type: ignore[arg-type]


def test_tensor_in_memory_is_put_and_read_from_where_it_lies(store: MooncakeDistributedStore) -> None:
    """Header and items, as `put_tensor_from` takes them; numpy's where torch is not installed."""
    array = np.arange(48, dtype=np.int64).reshape(12, 4)
    source = tensor_object(array)
    transfer = MooncakeBundleTransfer(store)
    memory = tensor_object_buffer(ctypes.addressof(source), len(source), source, batch_size=12)
    ref = transfer.put_structured_object(
        object_of(t=memory), policy=BundleTransferPolicy(copy_mode="zero_copy")
    )
    entry = ref.manifest["buffers"]["t"]
    assert np.array_equal(np.asarray(store.get_tensor(entry["key"])), array)
    assert np.array_equal(np.asarray(whole(transfer, ref)["t"]), array)
    rows = transfer.read_spec(ref).slice_member("t", start=3, end=9)
    assert np.array_equal(np.asarray(transfer.materialize(rows).objects["t"]), array[3:9])
    target = ctypes.create_string_buffer(len(source))
    into = tensor_object_buffer(ctypes.addressof(target), len(target), target)
    assert transfer.materialize_into(transfer.read_spec(ref), {"t": into}).objects["t"] is into
    assert target.raw == source.raw
    with pytest.raises(ValueError, match="destination has 10 bytes"):
        transfer.materialize_into(
            transfer.read_spec(ref), {"t": tensor_object_buffer(ctypes.addressof(target), 10, target)}
        )


@pytest.mark.parametrize("native", [True, False])
def test_tensors_of_torch(store: MooncakeDistributedStore, native: bool) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transfer = MooncakeBundleTransfer(store if native else AddressStore())
    tensor = torch.arange(48, dtype=torch.bfloat16).reshape(12, 4)
    ref = transfer.put_structured_object(object_of(t=tensor, scalar=torch.tensor(1.5)))
    found = whole(transfer, ref)
    assert torch.equal(found["t"], tensor)
    assert found["scalar"].item() == 1.5
    spec = transfer.read_spec(ref).select_members(["t"])
    rows = spec.slice_member("t", start=3, end=9, step=2)
    assert torch.equal(transfer.materialize(rows).objects["t"], tensor[3:9:2])
    size = ref.manifest["buffers"]["t"]["bytes"]
    target = ctypes.create_string_buffer(size)
    into = tensor_object_buffer(ctypes.addressof(target), size, target)
    assert torch.equal(transfer.materialize_into(spec, {"t": into}).objects["t"], tensor)
    with pytest.raises(ValueError, match="BufferPool tensor-object buffer"):
        transfer.put_structured_object(
            object_of(t=tensor), policy=BundleTransferPolicy(copy_mode="zero_copy")
        )
