"""Which election a configuration means, and what it needs to be there."""

from __future__ import annotations

from typing import Final

from mooncake_master.config import MasterConfig
from mooncake_master.ha.election import Election
from mooncake_store.endpoints import parse_endpoints
from mooncake_store.errors import InvalidArgument, StoreError

ETCD_PORT: Final = 2379


def open_election(config: MasterConfig) -> Election:
    """The backend of --ha_backend_type; connects when it is first asked. Raises StoreError naming a flag."""
    try:
        if config.ha_backend_type == "redis":
            return _redis(config)
        return _etcd(config)
    except ModuleNotFoundError as error:
        raise StoreError(
            f"--ha_backend_type={config.ha_backend_type} needs {error.name}: pip install 'mooncake-store[ha]'"
        ) from error


def _etcd(config: MasterConfig) -> Election:
    from mooncake_master.ha.etcd_election import EtcdElection

    flag = "--ha_backend_connstring" if config.ha_backend_connstring else "--etcd_endpoints"
    given = config.ha_backend_connstring or config.etcd_endpoints
    members = [part.strip() for part in given.replace(";", ",").split(",") if part.strip()]
    members = [
        member.split("://", 1)[-1] if member.startswith(("etcd://", "http://")) else member
        for member in members
    ]
    found = parse_endpoints(",".join(members), field=flag, default_port=ETCD_PORT)
    return EtcdElection(found, config.cluster_id)


def _redis(config: MasterConfig) -> Election:
    from mooncake_master.ha.redis_election import RedisElection

    try:
        return RedisElection(config.ha_backend_connstring, config.cluster_id)
    except ValueError as error:
        raise InvalidArgument(f"--ha_backend_connstring: {error}") from error
