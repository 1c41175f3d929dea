"""Which instances there are, in which role, and which of them take requests now.

Owns membership and health as facts and the rules by which they change; does no IO and reads no clock. An
address in both roles is one instance: it has one load and one health.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Final

from mooncake_store.endpoints import Endpoint

FAILURES_IN_A_ROW: Final = 2
"""Broken connections that take an instance out of the rotation; one that cannot be reached leaves at once."""
INSTANCES_MAX: Final = 1_024


class Role(str, Enum):
    """What an instance is asked for."""

    PREFILL = "prefill"
    DECODE = "decode"


class Instance:
    """One address. Changed only by `Fleet`, but for `running`, which its users count."""

    __slots__ = (
        "cause",
        "endpoint",
        "failures_in_a_row",
        "is_well",
        "models",
        "name",
        "running",
        "totals",
        "url",
    )

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.name = str(endpoint)
        self.url = f"http://{endpoint}"
        self.is_well = False
        self.cause = "not asked yet"
        """Why it is not in the rotation; empty when it is."""
        self.models: dict[str, dict[str, Any]] = {}
        """What it said at /v1/models, by id."""
        self.running = 0
        self.failures_in_a_row = 0
        self.totals = {"requests": 0, "failures": 0}


def last_part(model: str) -> str:
    """`Qwen2.5` of `Qwen/Qwen2.5`: engines are started with either, as the guide's proxy allows."""
    return model.rstrip("/").rsplit("/", 1)[-1]


class Fleet:
    """The instances of one proxy. model: what each must serve to be in the rotation."""

    def __init__(self, model: str, *, instance_requests_max: int) -> None:
        self.model = model
        self._instance_requests_max = instance_requests_max
        self._members: dict[Role, dict[Endpoint, Instance]] = {role: {} for role in Role}
        self._models: set[str] = set()
        """What any of them serves, as last told."""
        self.on_failure: Callable[[], None] = lambda: None
        """Called after each failure, so that the instance is asked soon how it is."""

    def members(self, role: Role) -> list[Instance]:
        return list(self._members[role].values())

    def all(self) -> Iterator[tuple[Instance, list[Role]]]:
        """Every instance once, with its roles."""
        found: dict[Endpoint, tuple[Instance, list[Role]]] = {}
        for role, members in self._members.items():
            for endpoint, instance in members.items():
                found.setdefault(endpoint, (instance, []))[1].append(role)
        yield from found.values()

    def find(self, endpoint: Endpoint, role: Role) -> Instance | None:
        return self._members[role].get(endpoint)

    def __len__(self) -> int:
        return sum(1 for _ in self.all())

    def add(self, endpoint: Endpoint, role: Role) -> Instance:
        """The instance in this role; one that has the address in the other role is the same."""
        assert endpoint not in self._members[role], f"{endpoint} is a {role.value} instance already"
        for members in self._members.values():
            if endpoint in members:
                instance = members[endpoint]
                break
        else:
            instance = Instance(endpoint)
        self._members[role][endpoint] = instance
        return instance

    def remove(self, endpoint: Endpoint, role: Role) -> Instance:
        """It takes no further request in this role; those it has go on. KeyError: it is not there."""
        instance = self._members[role].pop(endpoint)
        self._note_models()
        return instance

    def _note_models(self) -> None:
        self._models = {name for instance, _ in self.all() for name in instance.models}

    def candidates(self, role: Role, model: str | None, without: Sequence[Instance] = ()) -> list[Instance]:
        """Those that may take a request now, in the order in which they were added."""
        most = self._instance_requests_max
        return [
            instance
            for instance in self._members[role].values()
            if instance.is_well
            and instance.running < most
            and (model is None or model in instance.models)
            and instance not in without
        ]

    def why_none(self, role: Role) -> str:
        """Why nobody in this role takes a request, for an error's text."""
        members = self._members[role].values()
        if not members:
            return f"there is no {role.value} instance"
        if any(instance.is_well for instance in members):
            return f"every {role.value} instance is at its limit (--instance_requests_max), or was tried"
        shown = [f"{instance.name} ({instance.cause})" for instance in members][:8]
        return f"no {role.value} instance is well: {', '.join(shown)}"

    def knows_model(self, model: str) -> bool:
        return model == self.model or model in self._models

    def model_asked_of(self, model: str | None) -> str | None:
        """The id that an instance must list; None where any will do: it answers itself for names it lacks."""
        return model if model in self._models else None

    def why_unfit(self, models: dict[str, dict[str, Any]]) -> str:
        """Why who serves these models has no place here; empty where it has."""
        wanted = last_part(self.model)
        if any(last_part(name) == wanted for name in models):
            return ""
        served = ", ".join(list(models)[:8]) or "nothing"
        return f"serves {served}, not {self.model} (--model)"

    def well(self, instance: Instance, models: dict[str, dict[str, Any]]) -> bool:
        """A probe found it well. True: it is in the rotation now and was not before."""
        is_change = instance.models.keys() != models.keys()
        instance.models = models
        if is_change:
            self._note_models()
        if unfit := self.why_unfit(models):
            return self.unwell(instance, unfit)
        came = not instance.is_well
        instance.is_well, instance.cause, instance.failures_in_a_row = True, "", 0
        return came

    def unwell(self, instance: Instance, cause: str) -> bool:
        """It leaves the rotation. True: it was in, or the cause is a new one."""
        is_news = instance.is_well or instance.cause != cause
        instance.is_well, instance.cause = False, cause
        return is_news

    def answered(self, instance: Instance) -> None:
        instance.failures_in_a_row = 0

    def failed(self, instance: Instance, cause: str, *, is_gone: bool) -> bool:
        """A request failed there. is_gone: nobody could be reached. True: it left the rotation by this."""
        instance.totals["failures"] += 1
        instance.failures_in_a_row += 1
        left = False
        if instance.is_well and (is_gone or instance.failures_in_a_row >= FAILURES_IN_A_ROW):
            left = self.unwell(instance, cause)
        self.on_failure()
        return left
