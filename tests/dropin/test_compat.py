"""The distribution with the package `mooncake`: its names, in a process of its own, and whom it refuses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import mooncake_store

ROOT = Path(__file__).resolve().parents[2]
COMPAT = ROOT / "compat"

NAMES = (
    "BufferHandle, BufferLease, BufferLeaseView, BufferPool, Descriptor, DiskDescriptor, EngramStore, "
    "EngramStoreConfig, MemoryDescriptor, MooncakeDistributedNoFRegister, MooncakeDistributedStore, "
    "MooncakeHostMemAllocator, ObjectDataType, ParallelAxis, QueryTaskResponse, ReadTarget, "
    "RegisteredBufferLease, RegisteredBufferLeaseView, RegisteredBufferPool, ReplicaDescriptor, "
    "ReplicaStatus, ReplicateConfig, SoftPinAction, TaskStatus, TaskType, TensorParallelism, "
    "bind_to_numa_node, get_alloc_func_addr, get_free_func_addr, _serialize_tensor, "
    "_tensor_metadata_size, _deserialize_tensor, _get_pyclient_from_wrapper, KVCACHE, GENERAL, COMPLETE, "
    "REPLICA_COPY, SUCCESS"
)
MODULES = {
    "async_store": "MooncakeDistributedStoreAsync",
    "buffer_pool": "BufferPool, RegisteredBufferPool",
    "dataproto_catalog": "DataProtoCatalog",
    "http_metadata_server": "KVBootstrapServer",
    "mooncake_config": "MooncakeConfig, DEFAULT_GLOBAL_SEGMENT_SIZE, DEFAULT_LOCAL_BUFFER_SIZE, "
    "_parse_segment_size",
    "mooncake_store_service": "MooncakeStoreService, _shm_name_to_path, sync_main",
    "structured_object_store": "BundleTransferPolicy, FieldSchema, MooncakeBundleTransfer, "
    "MooncakeDataProtoRef, RemoteBundleRef, StructuredMemberSlice, StructuredObjectPayload, "
    "StructuredObjectReadSpec, export_dataproto_ref, export_ref, import_dataproto_ref, import_ref, "
    "is_dataproto_ref_handle, raw_destination, tensor_object_buffer",
}


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the distribution's package and metadata; its dependencies are those of the tests."""
    target = tmp_path_factory.mktemp("compat")
    source = target / "source"
    shutil.copytree(COMPAT, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    done = run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", target / "site", source)
    if "Could not find a version" in done.stderr:
        pytest.skip("pip finds no setuptools to build with")
    assert done.returncode == 0, done.stdout + done.stderr
    return target / "site"


def python(site: Path, code: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-W", "error", "-c", code, PYTHONPATH=str(site))


def test_every_name_can_be_imported(installed: Path) -> None:
    done = python(installed, f"from mooncake.store import {NAMES}\nprint(int(GENERAL), int(SUCCESS))")
    assert done.stdout.split() == ["9", "3"], done.stderr
    done = python(
        installed, "from mooncake import BufferPool, RegisteredBufferPool as R; print(R is BufferPool)"
    )
    assert done.stdout.strip() == "True", done.stderr
    for module, names in MODULES.items():
        done = python(installed, f"from mooncake.{module} import {names}")
        assert done.returncode == 0, done.stderr


def test_store_works_in_a_process_of_its_own(installed: Path, master_address: str) -> None:
    code = f"""
import os
os.environ["MOONCAKE_MASTER"] = {master_address!r}
from mooncake.mooncake_config import MooncakeConfig
from mooncake.store import MooncakeDistributedStore, ReplicateConfig
config = MooncakeConfig.load_from_env()
store = MooncakeDistributedStore()
print(store.setup(config.local_hostname, config.metadata_server, 1 << 24, 1 << 24, config.protocol,
                  config.device_name, config.master_server_address))
print(store.put("k", b"v", ReplicateConfig()), store.get("k"), store.close())
"""
    done = python(installed, code)
    assert done.stdout.split() == ["0", "0", "b'v'", "0"], done.stderr


def test_what_needs_other_hardware_says_so(installed: Path) -> None:
    code = """
from mooncake.store import *
print(MooncakeDistributedNoFRegister().real_register("nqn", 1, "a", "s", 0, 1, "m"))
try:
    EngramStore(0, EngramStoreConfig())
except NotImplementedError as error:
    print(error)
"""
    assert python(installed, code).stdout.splitlines() == [
        "-1012",
        "EngramStore is not built: see docs/dropin.md of mooncake-store",
    ]


def test_tensor_functions(installed: Path) -> None:
    code = """
import numpy as np
from mooncake.store import _deserialize_tensor, _serialize_tensor, _tensor_metadata_size
t = np.arange(6, dtype=np.float32).reshape(2, 3)
header, address, size, owner = _serialize_tensor(t)
print(len(header), _tensor_metadata_size(), size, address == owner.ctypes.data)
print(_deserialize_tensor(header + owner.tobytes()).tolist())
"""
    assert python(installed, code).stdout.splitlines() == [
        "304 304 24 True",
        "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]",
    ]


def fake_mooncake(site: Path) -> None:
    info = site / "mooncake_transfer_engine-0.3.13.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mooncake-transfer-engine\nVersion: 0.3.13\n")


def test_import_beside_mooncakes_own_distribution_is_refused(installed: Path, tmp_path: Path) -> None:
    fake_mooncake(tmp_path / "other")
    done = run(sys.executable, "-c", "import mooncake", PYTHONPATH=f"{installed}:{tmp_path / 'other'}")
    assert done.returncode != 0
    assert re.search(r"both installed.*pip uninstall mooncake-transfer-engine\b", done.stderr)


@pytest.mark.slow
def test_installing_beside_mooncakes_own_distribution_is_refused(installed: Path, tmp_path: Path) -> None:
    del installed  # it skips where nothing can be built
    venv.create(tmp_path / "venv", with_pip=True)
    python_there = tmp_path / "venv" / "bin" / "python"
    [site] = (tmp_path / "venv").glob("lib/python*/site-packages")
    fake_mooncake(site)
    source = tmp_path / "source"
    shutil.copytree(COMPAT, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    done = run(python_there, "-m", "pip", "install", "--no-deps", source)
    assert done.returncode != 0
    assert "would shadow mooncake-transfer-engine 0.3.13" in done.stdout + done.stderr
    assert not (site / "mooncake").exists()


def test_both_distributions_have_one_version() -> None:
    text = (COMPAT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'^version = "(.*)"$', text, re.MULTILINE) == [mooncake_store.__version__]


PROGRAM = """
import multiprocessing
import sys

from mooncake.store import MooncakeDistributedStore


def joined(master, size):
    store = MooncakeDistributedStore()
    settings = ("127.0.0.1", "P2PHANDSHAKE", size, 1 << 24, "tcp", "", master)
    assert store.setup(*settings, tenant_id="spawned") == 0
    return store


def work(master, how):
    store = joined(master, 0)
    assert store.get("from parent") == b"v"
    assert store.put(f"from {how}", how.encode()) == 0
    assert store.close() == 0


if __name__ == "__main__":
    master = sys.argv[1]
    parent = joined(master, 1 << 24)
    assert parent.put("from parent", b"v") == 0
    for how in ("spawn", "fork", "forkserver"):
        child = multiprocessing.get_context(how).Process(target=work, args=(master, how))
        child.start()
        child.join()
        print(how, child.exitcode, parent.get(f"from {how}").decode())
    parent.close()
"""


def check_children(python_there: Path | str, master: str, folder: Path, **environment: str) -> None:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    done = run(python_there, program, master, **environment)
    assert done.stdout.splitlines() == ["spawn 0 spawn", "fork 0 fork", "forkserver 0 forkserver"], (
        done.stderr
    )


def test_processes_that_an_engine_starts_find_it(
    installed: Path, master_address: str, tmp_path: Path
) -> None:
    check_children(sys.executable, master_address, tmp_path, PYTHONPATH=str(installed))


@pytest.mark.slow
def test_fresh_environment_beside_our_package(installed: Path, master_address: str, tmp_path: Path) -> None:
    """`pip install ./compat` where mooncake-store is installed: no variable leads anybody to it."""
    del installed  # it skips where nothing can be built
    venv.create(tmp_path / "venv", with_pip=True)
    python_there = tmp_path / "venv" / "bin" / "python"
    [site] = (tmp_path / "venv").glob("lib/python*/site-packages")
    source = tmp_path / "source"
    shutil.copytree(COMPAT, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    done = run(python_there, "-m", "pip", "install", "-q", "--no-deps", source)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (site / "mooncake" / "store.py").exists()
    # What mooncake-store and its dependencies would be there; after pip, whose build must not see them.
    folders = [path for path in sys.path if path.endswith("site-packages")]
    (site / "ours.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in folders))
    check_children(python_there, master_address, tmp_path)
    assert run(tmp_path / "venv" / "bin" / "mc_store_rest_server", "--help").returncode == 0
