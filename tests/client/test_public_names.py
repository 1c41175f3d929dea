"""What `from mooncake_client import ...` offers, and what importing it costs."""

import inspect
import subprocess
import sys

import mooncake_client
from mooncake_store import errors


def test_every_exported_name_loads_and_is_described() -> None:
    for name in mooncake_client.__all__:
        assert inspect.getdoc(getattr(mooncake_client, name)), name
    assert set(mooncake_client.__all__) <= set(dir(mooncake_client))


def test_every_error_that_a_caller_may_catch_is_exported() -> None:
    known = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.StoreError)
    }
    assert known <= set(mooncake_client.__all__)
    assert all(getattr(mooncake_client, name) is getattr(errors, name) for name in known)


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, mooncake_client; mooncake_client.StoreError; "
        "print([name for name in ('numpy', 'grpc', 'mooncake_client.store') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
