"""Every method of Mooncake's store is there, with its parameters by name, kind and default."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from mooncake_client.dropin import MooncakeDistributedStore, ReplicateConfig

TABLE = Path(__file__).with_name("signatures.txt")
ROWS = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
SETUP = (
    "local_hostname, metadata_server, global_segment_size, local_buffer_size, protocol, rdma_devices, "
    "master_server_addr, engine=None, enable_ssd_offload=False, ssd_offload_path='', tenant_id='default', "
    "enable_client_http_server=False, client_http_port=9300, control='', shared_memory=''"
)


def told(signature: inspect.Signature) -> str:
    """The signature without types, as the table writes it."""
    parts = []
    previous = None
    for parameter in list(signature.parameters.values())[1:]:
        if previous is parameter.POSITIONAL_ONLY and parameter.kind is not parameter.POSITIONAL_ONLY:
            parts.append("/")
        name = f"*{parameter.name}" if parameter.kind is parameter.VAR_POSITIONAL else parameter.name
        default = parameter.default
        if default is parameter.empty:
            parts.append(name)
        elif isinstance(default, ReplicateConfig):
            assert default == ReplicateConfig()
            parts.append(f"{name}=ReplicateConfig()")
        else:
            parts.append(f"{name}={default!r}")
        previous = parameter.kind
    if previous is inspect.Parameter.POSITIONAL_ONLY:
        parts.append("/")
    return ", ".join(parts)


@pytest.mark.parametrize("row", ROWS, ids=[row.partition("(")[0] for row in ROWS])
def test_method_has_mooncakes_signature(row: str) -> None:
    name, _, parameters = row.partition("(")
    parameters = parameters.removesuffix(")")
    if name == "load_tensor_from_safetensor":
        # Python has no required parameter after an optional one; leaving it out raises TypeError too.
        parameters = parameters.replace("file_name", "file_name=None")
    method = getattr(MooncakeDistributedStore, name)
    assert told(inspect.signature(method)) == parameters


def test_setup_takes_mooncakes_settings_by_position_and_name() -> None:
    assert told(inspect.signature(MooncakeDistributedStore.setup)) == SETUP


def test_another_signature_is_seen() -> None:
    def put(self: object, key: str, value: bytes) -> int:
        return 0

    [row] = [row for row in ROWS if row.startswith("put(")]
    assert row != f"put({told(inspect.signature(put))})"
    assert len(ROWS) == 97
