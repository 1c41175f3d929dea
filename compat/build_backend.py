"""Builds the distribution with setuptools, unless Mooncake's own lies where it would be installed.

Both have the package `mooncake`, and pip would mix their files. A wheel that was built elsewhere is not seen
here; the package itself looks again when it is imported (`mooncake/__init__.py`).
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

from setuptools import build_meta

build_sdist = build_meta.build_sdist
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Ends with a message where mooncake-transfer-engine is installed beside."""
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for found in sorted(Path(folder).glob("mooncake_transfer_engine*.dist-info")):
            name, _, version = found.name.removesuffix(".dist-info").replace("_", "-").rpartition("-")
            raise SystemExit(
                f"mooncake-store-compat would shadow {name} {version} in {folder}: both have the package "
                f"`mooncake`. Uninstall it first (pip uninstall {name}), or use another virtual environment."
            )
    return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))
