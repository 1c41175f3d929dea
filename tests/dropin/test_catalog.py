"""Which batch holds which fields of which sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mooncake_client.dropin import MooncakeDistributedStore
from mooncake_client.dropin.dataproto_catalog import DataProtoCatalog
from mooncake_client.dropin.structured_object_store import MooncakeBundleTransfer, export_ref


def handle(name: str, *fields: str, rows: int = 2) -> dict[str, Any]:
    return {
        "type": "mooncake_dataproto_ref",
        "version": 1,
        "kind": "bundle_stages",
        "batch_size": rows,
        "stage_refs": {"s": {"manifest_key": f"manifest/{name}"}},
        "field_index": {
            field: {"stage": "s", "member": f"batch.{field}", "section": "batch"} for field in fields
        },
    }


def test_fields_come_from_several_batches_in_the_order_of_the_keys() -> None:
    catalog = DataProtoCatalog()
    catalog.update(
        "train", ["a", "b"], tags=[{"at": "run", "n": 1}] * 2, handle=handle("base", "ids", "mask")
    )
    told = catalog.update("train", ["b", "a"], tags=[{"at": "done"}] * 2, handle=handle("late", "score"))
    assert told["fields"] == ["ids", "mask", "score"]
    assert catalog.list("train") == {"train": {"a": {"at": "done", "n": 1}, "b": {"at": "done", "n": 1}}}
    plan = catalog.resolve("train", ["a", "b"], ["score", "ids", "mask"])
    assert plan["field_groups"] == [
        {"fields": ["score"], "locations": [("manifest/late", 1), ("manifest/late", 0)]},
        {"fields": ["ids", "mask"], "locations": [("manifest/base", 0), ("manifest/base", 1)]},
    ]
    assert set(plan["handles"]) == {"manifest/base", "manifest/late"}
    assert catalog.resolve("train", ["b"])["fields"] == ["ids", "mask", "score"]


def test_newer_batch_replaces_and_removed_samples_are_forgotten() -> None:
    catalog = DataProtoCatalog()
    catalog.update("train", ["a", "b"], handle=handle("base", "value"))
    catalog.update("train", ["a"], handle=handle("newer", "value", rows=1))
    assert catalog.resolve("train", ["a", "b"])["field_groups"] == [
        {"fields": ["value"], "locations": [("manifest/newer", 0), ("manifest/base", 1)]}
    ]
    assert catalog.remove("train", ["b"])["released_handles"][0]["stage_refs"] == handle("base")["stage_refs"]
    assert [*catalog.resolve("train", ["a"])["handles"]] == ["manifest/newer"]
    assert catalog.remove("train", ["a", "unknown"])["keys"] == ["a"]
    assert catalog.list() == {}
    assert catalog.list("train") == {"train": {}}


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    catalog = DataProtoCatalog()
    catalog.update("train", ["a", "b"], tags=[{}, {}])
    catalog.update("train", ["a"], handle=handle("one", "value", rows=1))
    two_stages = handle("multi", "value", rows=1)
    two_stages["stage_refs"]["t"] = {"manifest_key": "manifest/t"}
    for wrong, said in (
        (lambda: catalog.resolve("train", ["missing"]), "were not found"),
        (lambda: catalog.resolve("nobody", ["a"]), "were not found"),
        (lambda: catalog.resolve("train", ["a", "b"], ["value"]), "not ready"),
        (lambda: catalog.resolve("train", ["b"]), "do not contain any fields"),
        (lambda: catalog.resolve("train", "a"), "sequence"),
        (lambda: catalog.resolve("train", ["a"], "value"), "sequence"),
        (lambda: catalog.update("train", ["a", "b"], tags=[{}]), "same length"),
        (lambda: catalog.update("other", ["x"], handle=handle("two", "value")), "same length"),
        (lambda: catalog.update("other", ["x"], handle={**handle("v", rows=1), "version": 9}), "version"),
        (lambda: catalog.update("other", ["x"], handle=two_stages), "exactly one stage"),
    ):
        with pytest.raises(ValueError, match=said):
            wrong()
    assert catalog.list() == {"train": {"a": {}, "b": {}}}


def test_catalog_leads_to_rows_of_a_real_store(store: MooncakeDistributedStore) -> None:
    transfer, catalog = MooncakeBundleTransfer(store), DataProtoCatalog()
    values = np.arange(12).reshape(6, 2)
    for part in range(2):
        keys = [f"k{row}" for row in range(3 * part, 3 * part + 3)]
        ref = transfer.put_dataproto({"v": values[3 * part : 3 * part + 3]})
        catalog.update("train", keys, handle=export_ref(ref))
    plan = catalog.resolve("train", ["k4", "k0"])
    [group] = plan["field_groups"]
    rows = [
        transfer.get_dataproto(plan["handles"][manifest], fields=group["fields"], rows=[row])["batch"]["v"]
        for manifest, row in group["locations"]
    ]
    assert np.array_equal(np.concatenate(rows), values[[4, 0]])
