"""Batches in stages: handles, fields, rows and columns of Python values."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dropin.plain_store import AddressStore, PlainStore

from mooncake_client.dropin.columns import decoded, encoded
from mooncake_client.dropin.structured_object_store import (
    FieldSchema,
    MooncakeBundleTransfer,
    MooncakeDataProtoRef,
    StructuredMemberSlice,
    export_dataproto_ref,
    export_ref,
    import_dataproto_ref,
    import_ref,
    is_dataproto_ref_handle,
    tensor_object_buffer,
)

Transfer = MooncakeBundleTransfer
IDS = np.arange(24, dtype=np.int64).reshape(6, 4)
REWARD = np.linspace(-1, 1, 6, dtype=np.float32)
TEXT = ["", "b", None, "größe", "eeeee", "f"]
TREES = [
    {"i": 0},
    None,
    {"b": [1, 2.5, None]},
    {"raw": b"\0x"},
    {"array": np.arange(3)},
    {"deep": {"er": ("t",)}},
]


class Proto:
    def __init__(self, batch: Any = None, non_tensor_batch: Any = None, meta_info: Any = None) -> None:
        self.batch, self.non_tensor_batch, self.meta_info = batch, non_tensor_batch, meta_info

    @classmethod
    def from_dict(cls, batch: Any, non_tensors: Any = None, meta_info: Any = None) -> Proto:
        return cls(batch, non_tensors, meta_info)


def objects(values: list[Any]) -> Any:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def rollout() -> Proto:
    non_tensor = {"reward": REWARD, "text": objects(TEXT), "uid": np.asarray(list("abcdef"))}
    return Proto({"ids": IDS}, non_tensor, {"step": 7, "names": ["x"]})


@pytest.fixture(params=["plain", "addresses", "real"])
def transfer(request: pytest.FixtureRequest) -> Transfer:
    if request.param == "real":
        return MooncakeBundleTransfer(request.getfixturevalue("store"), "test")
    return MooncakeBundleTransfer(PlainStore() if request.param == "plain" else AddressStore(), "test")


def same(found: Any, value: Any) -> bool:
    return bool(found.dtype == value.dtype and np.array_equal(found, value))


def test_batch_is_read_as_it_was_put(transfer: Transfer) -> None:
    ref = transfer.put_dataproto(rollout(), namespace="roll", partition="train", stage="rollout")
    assert (ref.batch_size, list(ref.stage_refs), list(ref.field_index)) == (
        6,
        ["rollout"],
        ["ids", "reward", "text", "uid"],
    )
    found = transfer.get_dataproto(ref, data_cls=Proto)
    assert same(found.batch["ids"], IDS)
    assert same(found.non_tensor_batch["reward"], REWARD)
    assert found.non_tensor_batch["text"].tolist() == TEXT
    assert found.non_tensor_batch["uid"].tolist() == list("abcdef")
    assert found.meta_info == {"step": 7, "names": ["x"]}


def test_handle_is_json_and_reads_adds_and_removes(transfer: Transfer) -> None:
    data = rollout()
    data.meta_info["scores"] = np.asarray([1, 2])
    ref = transfer.put_dataproto(data, namespace="roll", partition="train", stage="rollout")
    ref.global_indexes = [0, 2]
    handle = json.loads(json.dumps(export_dataproto_ref(ref)))
    assert is_dataproto_ref_handle(handle)
    assert not is_dataproto_ref_handle(ref)
    assert handle["stage_refs"] == {"rollout": {"manifest_key": ref.stage_refs["rollout"].manifest_key}}
    assert handle["meta_info"] == {"step": 7, "names": ["x"], "scores": [1, 2]}
    assert import_dataproto_ref(handle).global_indexes == [0, 2]
    handle = export_ref(transfer.append_dataproto_fields(handle, {"more": REWARD}, stage="rollout"))
    found = transfer.get_dataproto(handle, fields=["more", "text"])
    assert same(found["batch"]["more"], REWARD)
    assert found["non_tensor_batch"]["text"].tolist() == TEXT
    transfer.cleanup_dataproto(handle)
    with pytest.raises(RuntimeError, match="there is no value"):
        transfer.get_dataproto(handle)
    with pytest.raises(RuntimeError):
        transfer.get_dataproto(ref)


def test_handles_that_are_none(transfer: Transfer) -> None:
    handle = export_dataproto_ref(transfer.put_dataproto({"ids": IDS}))
    field = handle["field_index"]["ids"]
    for change, said in (
        ({"global_indexes": "0,2"}, "global_indexes"),
        ({"version": 2}, "unsupported version"),
        ({"type": "other"}, "no handle"),
        ({"batch_size": -1}, "batch_size"),
        ({"field_index": {"ids": {**field, "stage": "missing"}}}, "unknown stage"),
        ({"field_index": {"ids": {**field, "section": "other"}}}, "unknown section"),
        ({"stage_refs": None}, "without its parts"),
    ):
        with pytest.raises(ValueError, match=said):
            import_ref({**handle, **change})
    with pytest.raises(TypeError, match="holds JSON"):
        export_dataproto_ref(MooncakeDataProtoRef({}, {}, 0, meta_info={"bad": object()}))


def test_fields_are_chosen(transfer: Transfer) -> None:
    ref = transfer.put_dataproto(rollout())
    found = transfer.get_dataproto(ref, fields=["reward", "ids"], meta_info_keys=["step"])
    assert (list(found["batch"]), list(found["non_tensor_batch"])) == (["ids"], ["reward"])
    assert found["meta_info"] == {"step": 7}
    for chosen, batch, non_tensor in (
        ({"batch_fields": ["ids"]}, ["ids"], []),
        ({"non_tensor_fields": ["text"]}, [], ["text"]),
        ({"fields": []}, [], []),
    ):
        found = transfer.get_dataproto(ref, **chosen)
        assert (list(found["batch"]), list(found["non_tensor_batch"])) == (batch, non_tensor)
    with pytest.raises(ValueError, match="fields cannot be combined"):
        transfer.get_dataproto(ref, fields=["ids"], batch_fields=["ids"])
    for wrong in ({"fields": ["nobody"]}, {"batch_fields": ["text"]}, {"non_tensor_fields": ["ids"]}):
        with pytest.raises(KeyError, match="unknown DataProto fields"):
            transfer.get_dataproto(ref, **wrong)
    with pytest.raises(KeyError, match="meta_info"):
        transfer.get_dataproto(ref, meta_info_keys=["nobody"])


@pytest.mark.parametrize(
    "rows",
    [
        slice(2, 5),
        slice(1, 6, 2),
        slice(4, 4),
        [4, 1, 3],
        [-1, 0, -1, 3],
        [],
        np.asarray([5, 0]),
        slice(None),
    ],
    ids=str,
)
def test_rows_are_those_of_every_field(transfer: Transfer, rows: Any) -> None:
    data = rollout()
    data.non_tensor_batch["trees"] = objects(TREES)
    data.batch["wide"] = np.empty((6, 0), dtype=np.float32)
    ref = transfer.put_dataproto(data, chunk_bytes=13)
    found = transfer.get_dataproto(ref, rows=rows)
    index = rows if isinstance(rows, slice) else np.asarray(rows, dtype=np.int64)
    assert same(found["batch"]["ids"], IDS[index])
    assert found["batch"]["wide"].shape == data.batch["wide"][index].shape
    assert same(found["non_tensor_batch"]["reward"], REWARD[index])
    assert found["non_tensor_batch"]["text"].tolist() == objects(TEXT)[index].tolist()
    whole = transfer.get_dataproto(ref, fields=["trees"])["non_tensor_batch"]["trees"]
    assert str(found["non_tensor_batch"]["trees"].tolist()) == str(whole[index].tolist())


def test_rows_of_memory_of_the_caller(transfer: Transfer) -> None:
    ref = transfer.put_dataproto(rollout())
    target = np.empty((4, 4), dtype=np.int64)
    rows = [5, 3, 3, 0]
    found = transfer.get_dataproto(ref, fields=["ids"], rows=rows, destinations={"ids": target})
    assert found["batch"]["ids"] is target
    assert np.array_equal(target, IDS[rows])
    for wrong, error, said in (
        ({"rows": [6]}, IndexError, "out of range"),
        ({"rows": ["0"]}, TypeError, "row indices"),
        ({"rows": "0"}, TypeError, "row indices"),
        ({"rows": [True]}, TypeError, "row indices"),
        ({"rows": slice(None, None, -1)}, ValueError, "step must be positive"),
        ({"rows": StructuredMemberSlice(axis=1)}, ValueError, "axis=0"),
        ({"rows": [0], "destinations": {"ids": target}}, ValueError, "destination shape mismatch"),
        ({"destinations": {"nobody": target}}, KeyError, "nobody"),
        ({"destinations": {"text": target}}, ValueError, "takes no destination"),
    ):
        with pytest.raises(error, match=said):
            transfer.get_dataproto(ref, **wrong)
    found = transfer.get_dataproto(ref, fields=["ids"], rows=StructuredMemberSlice(start=1, end=3))
    assert np.array_equal(found["batch"]["ids"], IDS[1:3])


def test_stages_are_added_without_writing_again(transfer: Transfer) -> None:
    first = transfer.put_dataproto(rollout(), stage="rollout")
    second = transfer.append_dataproto_fields(
        first, Proto({"logprob": REWARD}, None, {"done": True}), stage="logprob"
    )
    third = transfer.append_dataproto_fields(
        second, {"batch": {"value": REWARD + 1}, "non_tensor_batch": {"note": TEXT}}, stage="rollout"
    )
    fourth = transfer.append_dataproto_fields(third, {"return": REWARD + 2}, stage="rollout")
    assert list(fourth.stage_refs) == ["rollout", "logprob"]
    found = transfer.get_dataproto(fourth, rows=[5, 0])
    for name, value in (("ids", IDS), ("logprob", REWARD), ("value", REWARD + 1), ("return", REWARD + 2)):
        assert same(found["batch"][name], value[[5, 0]]), name
    assert found["non_tensor_batch"]["note"].tolist() == ["f", ""]
    assert found["meta_info"] == {"step": 7, "names": ["x"], "done": True}
    assert set(transfer.get_dataproto(first)["batch"]) == {"ids"}, "older references read what they did"
    view = transfer.dataproto_manifest_view(fourth)
    assert view["batch_fields"]["value"]["stage"] == "rollout"
    assert view["batch_fields"]["ids"]["spec"] == {"encoding": "ndarray", "dtype": "<i8", "shape": [6, 4]}
    assert view["stages"]["logprob"]["dataproto"]["stage"] == "logprob"
    assert (view["batch_size"], view["meta_info_keys"]) == (6, ["step", "names", "done"])
    transfer.cleanup_dataproto(fourth)
    if isinstance(transfer.store, PlainStore):
        assert transfer.store.values == {}
    else:
        assert transfer.store.remove_all(True) == 0


def test_appending_refuses_what_does_not_fit(transfer: Transfer) -> None:
    ref = transfer.put_dataproto(rollout(), stage="rollout")
    ref = transfer.append_dataproto_fields(ref, {"score": REWARD}, stage="score")
    for data, settings, said in (
        ({"score": REWARD}, {"stage": "other"}, "already exist"),
        ({"score": REWARD}, {"stage": "rollout", "overwrite": True}, "already exist"),
        ({"ids": IDS}, {"stage": "rollout", "overwrite": True}, "must include existing fields"),
        ({"bad": REWARD[:5]}, {"stage": "other"}, "batch size"),
        ({"new": REWARD}, {"stage": "bad/name"}, "stage"),
    ):
        with pytest.raises(ValueError, match=said):
            transfer.append_dataproto_fields(ref, data, **settings)


def test_overwritten_stage_is_replaced_and_removed(transfer: Transfer) -> None:
    text = {"batch": {}, "non_tensor_batch": {"text": objects(TEXT)}, "meta_info": {}}
    older = transfer.put_dataproto(text, stage="meta")
    assert older.encoded_non_tensor["text"]["codec"] == "utf8_ragged"
    numbers = {"batch": {}, "non_tensor_batch": {"text": np.arange(6)}, "meta_info": {}}
    newer = transfer.append_dataproto_fields(older, numbers, stage="meta", overwrite=True)
    assert "text" not in newer.encoded_non_tensor
    assert same(transfer.get_dataproto(newer)["non_tensor_batch"]["text"], np.arange(6))
    assert transfer.store.get(older.stage_refs["meta"].manifest_key) == b""
    assert transfer.store.get(newer.stage_refs["meta"].manifest_key) != b""


def test_batches_of_every_form(transfer: Transfer) -> None:
    for data, fields in (
        ({"ids": IDS}, ["ids"]),
        ({"batch": REWARD, "meta_info": REWARD}, ["batch", "meta_info"]),
        ({"batch": {"a": IDS}, "non_tensor_batch": {"b": TEXT}, "meta_info": {"step": 3}}, ["a", "b"]),
        (SimpleNamespace(batch=None, non_tensor_batch={"b": TEXT}, meta_info=None), ["b"]),
        ({"listed": [[1, 2], [3, 4]]}, ["listed"]),
    ):
        assert list(transfer.put_dataproto(data).field_index) == fields
    assert transfer.get_dataproto(transfer.put_dataproto({"a": IDS}), data_cls=dict)["meta_info"] == {}
    with pytest.raises(TypeError, match="cannot be constructed"):
        transfer.get_dataproto(transfer.put_dataproto({"a": IDS}), data_cls=object)


def test_batches_that_are_none(transfer: Transfer) -> None:
    for data, error, said in (
        ({"a": IDS, "b": REWARD[:3]}, ValueError, "inconsistent batch sizes"),
        ({"batch": {"a": IDS}, "non_tensor_batch": {"a": TEXT}}, ValueError, "overlap"),
        ({"batch": {"a": tensor_object_buffer(1, 8)}}, TypeError, "batch_size"),
        ({"batch": {"a": objects(TEXT)}}, TypeError, "Python values"),
        ({"batch": {"a": np.float32(1)}}, TypeError, "no rows"),
        ({"non_tensor_batch": {"a": [object()]}}, ValueError, "unsupported structured non-tensor field 'a'"),
        ({"non_tensor_batch": {"a": [{1: 2}]}}, ValueError, "unsupported structured non-tensor field"),
        ({"batch": {"bad/name": IDS}}, ValueError, "buffer name"),
    ):
        with pytest.raises(error, match=said):
            transfer.put_dataproto(data)


def test_dicts_are_sorted_by_schemas(transfer: Transfer) -> None:
    """As RL frameworks put rollouts: lists of rows of different lengths, and metadata."""
    value = {"tokens": [[1, 2], [3], []], "score": [1.0, 2.0, None], "total": {"n": 3}}
    rows = {"section": "non_tensor_batch"}
    schemas = {
        "tokens": FieldSchema("ragged", nullable=False, metadata={**rows, "dtype": "int32"}),
        "score": FieldSchema("auto", metadata=rows),
        "total": FieldSchema("auto", nullable=False, metadata={"section": "meta_info"}),
    }
    ref = import_ref(
        export_ref(transfer.put(value, type="dict", namespace="n", field_schemas=schemas, config=None))
    )
    found = transfer.get(ref, type="dict")
    assert [row.tolist() for row in found["tokens"]] == value["tokens"]
    assert {row.dtype.name for row in found["tokens"]} == {"int32"}
    assert (found["score"], found["total"]) == (value["score"], {"n": 3})
    MooncakeBundleTransfer.release_result(found)
    transfer.cleanup_dataproto(ref)
    schemas["score"] = FieldSchema("auto", nullable=False, metadata=rows)
    with pytest.raises(ValueError, match="'score' has None"):
        transfer.put(value, type="dict", field_schemas=schemas)
    for kind in ("object", "dataproto"):
        ref = transfer.put({"a": IDS}, type=kind)
        assert "a" in str(transfer.get(ref, type=kind))
    for wrong in (lambda: transfer.put({}, type="pickle"), lambda: transfer.get(ref, type="pickle")):
        with pytest.raises(ValueError, match="'pickle'"):
            wrong()


@pytest.mark.parametrize(
    ("values", "codec"),
    [
        (TEXT, "utf8_ragged"),
        ([b"a", None, bytearray(b"bc"), memoryview(b"def")], "bytes_ragged"),
        ([1, None, 2.5, True], "tree_ragged"),
        ([np.arange(3), None, np.ones((2, 2), np.float32)], "ragged_tensor"),
        ([None, None], "tree_ragged"),
        ([], "tree_ragged"),
        (TREES, "tree_ragged"),
        (["text", b"bytes", ["l", "d"], {"": [[], {}]}], "tree_ragged"),
    ],
)
def test_columns_of_python_values(values: list[Any], codec: str) -> None:
    column = encoded("f", values)
    assert column.codec == codec
    packed = [
        None if null else column.data[start:end].tobytes()
        for null, start, end in zip(column.nulls, column.offsets[:-1], column.offsets[1:], strict=True)
    ]
    for found, value in zip(decoded(codec, packed), values, strict=True):
        if isinstance(value, np.ndarray):
            assert same(found, value)
        elif isinstance(value, dict) and "array" in value:
            assert same(found["array"], value["array"])
        else:
            assert found == (bytes(value) if isinstance(value, memoryview) else _listed(value))


def _listed(value: Any) -> Any:
    """Tuples come back as lists."""
    if isinstance(value, dict):
        return {name: _listed(one) for name, one in value.items()}
    return [_listed(one) for one in value] if isinstance(value, (list, tuple)) else value


def test_tree_that_is_too_deep_is_refused() -> None:
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(ValueError, match="deeper"):
        encoded("f", [deep])


def test_tensors_of_torch_in_columns_and_rows(transfer: Transfer) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    ragged = objects([torch.arange(n, dtype=torch.float32) for n in range(1, 6)] + [None])
    samples = objects([{"tokens": torch.arange(n), "reward": 1.0} for n in range(6)])
    tensor = torch.arange(24).reshape(6, 4)
    ref = transfer.put_dataproto(Proto({"t": tensor}, {"ragged": ragged, "samples": samples}, {}))
    assert ref.encoded_non_tensor["ragged"]["codec"] == "ragged_tensor"
    found = transfer.get_dataproto(ref, rows=[4, 1])
    if not isinstance(transfer.store, AddressStore):
        assert torch.equal(found["batch"]["t"], tensor[[4, 1]])
    assert [row.tolist() for row in found["non_tensor_batch"]["ragged"]] == [[0, 1, 2, 3, 4], [0, 1]]
    assert [row["tokens"].tolist() for row in found["non_tensor_batch"]["samples"]] == [[0, 1, 2, 3], [0]]
