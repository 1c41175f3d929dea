"""The settings of `mooncake_proxy`, each declared once, and the secrets that come by the environment.

Owns names, defaults and checks; must not start anything. `--model`, `--prefill`, `--decode`, `--port` and
`--scheduling`, and their short forms, are those of the XpYd guide.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from mooncake_store.endpoints import Endpoint, is_wildcard
from mooncake_store.errors import InvalidArgument
from mooncake_store.flags import FlagTable, Kind, check_config, setting
from mooncake_store.logs import FORMATS, LEVELS

ROUND_ROBIN = "round_robin"
LEAST_LOADED = "least_loaded"
PREFIX_AWARE = "prefix_aware"
POLICIES = (ROUND_ROBIN, LEAST_LOADED, PREFIX_AWARE)


@dataclass(frozen=True)
class ProxyConfig:
    """Checked settings of one proxy. Times are in ms, sizes in bytes."""

    config_path: str = setting(Kind.TEXT, "", "JSON or YAML file with the same names; flags win over it.")
    log_level: str = setting(Kind.TEXT, "info", "How much is logged to stderr.", choices=LEVELS)
    log_format: str = setting(
        Kind.TEXT, "text", "How: lines for people, or one JSON object a line.", choices=FORMATS
    )

    model: str = setting(Kind.TEXT, "", "The model that all instances serve. Must be given.", alias="m")
    prefill: tuple[Endpoint, ...] = setting(
        Kind.ENDPOINTS, (), "Prefill instances (kv_producer).", alias="p", is_list=True
    )
    decode: tuple[Endpoint, ...] = setting(
        Kind.ENDPOINTS, (), "Decode instances (kv_consumer). At least one.", alias="d", is_list=True
    )
    host: str = setting(Kind.HOST, "0.0.0.0", "Address on which the proxy listens; :: is IPv6 and IPv4.")
    port: int = setting(Kind.PORT, 8000, "Port of the proxy; 0 takes any free one.", minimum=0)
    scheduling: str = setting(
        Kind.TEXT, ROUND_ROBIN, "Which instance takes the next request.", choices=POLICIES
    )

    prefix_load_bound: float = setting(
        Kind.FLOAT,
        1.25,
        "With prefix_aware no instance gets more than this times the mean load.",
        minimum=1.0,
        maximum=100.0,
    )
    prefix_entries_max: int = setting(
        Kind.INT,
        131_072,
        "Chunks of prompts that prefix_aware remembers in each role, some 200 bytes each.",
        minimum=1,
        maximum=1 << 24,
    )
    prefix_keys: str = setting(
        Kind.TEXT,
        "",
        "module:function that tells the store's keys of a request, for prefix_aware to ask --prefix_master.",
    )
    prefix_master: tuple[Endpoint, ...] = setting(
        Kind.ENDPOINTS, (), "The master's HTTP address (its --metrics_port).", is_list=True
    )
    prefix_timeout_ms: int = setting(
        Kind.DURATION,
        20,
        "For --prefix_keys and the master's answer; then it is chosen without.",
        minimum=1,
        maximum=60_000,
    )

    requests_max: int = setting(
        Kind.INT, 1_024, "Requests at a time; beyond it 503 with Retry-After.", minimum=1, maximum=65_536
    )
    instance_requests_max: int = setting(
        Kind.INT,
        512,
        "Requests that one instance has from this proxy at a time; beyond it others take them.",
        minimum=1,
    )
    body_bytes_max: int = setting(
        Kind.SIZE, 16 << 20, "Largest body of a request; beyond it 413.", minimum=1_024, maximum=1 << 30
    )
    bodies_bytes_max: int = setting(
        Kind.SIZE,
        1 << 30,
        "Bytes of bodies held at a time, until their answers begin; beyond it 503 with Retry-After.",
        minimum=1_024,
    )
    attempts_max: int = setting(
        Kind.INT, 2, "Instances that one request tries for each phase.", minimum=1, maximum=16
    )

    body_timeout_ms: int = setting(
        Kind.DURATION,
        30_000,
        "A request's body arrives within this; else 408.",
        flag="body_timeout",
        unit="s",
        minimum=1,
    )
    connect_timeout_ms: int = setting(
        Kind.DURATION, 2_000, "Deadline for one connection to an instance.", minimum=1, maximum=60_000
    )
    prefill_timeout_ms: int = setting(
        Kind.DURATION,
        120_000,
        "A prefill ends within this; else the decode instance computes the prompt itself.",
        flag="prefill_timeout",
        unit="s",
        minimum=1,
    )
    first_byte_timeout_ms: int = setting(
        Kind.DURATION,
        300_000,
        "A streamed answer begins within this; else 504.",
        flag="first_byte_timeout",
        unit="s",
        minimum=1,
    )
    stall_timeout_ms: int = setting(
        Kind.DURATION,
        120_000,
        "An answer that has begun goes on within this, at both ends; else it is broken off.",
        flag="stall_timeout",
        unit="s",
        minimum=1,
    )
    request_timeout_ms: int = setting(
        Kind.DURATION,
        3_600_000,
        "A whole request, the answer included; else 504, or broken off.",
        flag="request_timeout",
        unit="s",
        minimum=1,
    )
    probe_interval_ms: int = setting(
        Kind.DURATION,
        2_000,
        "How often each instance is asked how it is.",
        flag="probe_interval",
        unit="s",
        minimum=10,
    )
    probe_timeout_ms: int = setting(
        Kind.DURATION,
        2_000,
        "An instance that does not answer within this is out of the rotation.",
        flag="probe_timeout",
        unit="s",
        minimum=1,
    )
    stop_timeout_ms: int = setting(
        Kind.DURATION,
        30_000,
        "On a stop signal running requests may take this long; then they are cut off.",
        flag="stop_timeout",
        unit="s",
        minimum=0,
        maximum=3_600_000,
    )

    def __post_init__(self) -> None:
        check_config(self)
        if not self.model.strip():
            raise InvalidArgument("--model is not given; name the model that the instances serve")
        if not self.decode:
            raise InvalidArgument("--decode is not given; name at least one decode instance: host:port ...")
        for name, endpoints in (("prefill", self.prefill), ("decode", self.decode)):
            for endpoint in endpoints:
                if is_wildcard(endpoint.host):
                    raise InvalidArgument(f"--{name} {endpoint} means every interface and cannot be dialled")
        if bool(self.prefix_keys) != (len(self.prefix_master) == 1):
            raise InvalidArgument("--prefix_keys and --prefix_master (one address) need each other")
        if self.prefix_keys and self.scheduling != PREFIX_AWARE:
            raise InvalidArgument(f"--prefix_keys has a meaning with --scheduling={PREFIX_AWARE} only")
        if self.bodies_bytes_max < self.body_bytes_max:
            raise InvalidArgument(
                f"--bodies_bytes_max={self.bodies_bytes_max} is less than "
                f"--body_bytes_max={self.body_bytes_max}"
            )


@dataclass(frozen=True)
class Secrets:
    """By the environment only: a command line is read by everybody on the machine.

    admin_api_key: of /instances/add and /remove, which are refused while it is empty. upstream_api_key: sent
        to instances for clients that send no Authorization of their own, and with probes.
    """

    admin_api_key: str = field(default="", repr=False)
    upstream_api_key: str = field(default="", repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Secrets:
        """ADMIN_API_KEY and OPENAI_API_KEY, as the guide's proxy has them."""
        found = cls(environment.get("ADMIN_API_KEY", ""), environment.get("OPENAI_API_KEY", ""))
        for name, value in (
            ("ADMIN_API_KEY", found.admin_api_key),
            ("OPENAI_API_KEY", found.upstream_api_key),
        ):
            if not value.isascii() or (value and not value.isprintable()):
                raise InvalidArgument(f"{name} of the environment must be printable ASCII (not shown)")
        return found


PROXY_FLAGS = FlagTable(
    "mooncake_proxy",
    "Serves X prefill and Y decode instances under one address, by the OpenAI API.\n"
    "Environment: ADMIN_API_KEY allows /instances/add and /instances/remove; OPENAI_API_KEY is sent to the\n"
    "instances for clients without an Authorization of their own.",
    ProxyConfig,
    (),
)
