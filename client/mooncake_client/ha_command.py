"""`mooncake ha`: which of several masters leads, and how to make it hand over.

Asks their HTTP ports (--metrics_port), because a master that stands by has no other.
"""

# No `from __future__ import annotations`: typer evaluates them.
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Annotated, Any

from mooncake_store.endpoints import Endpoint, parse_endpoints
from mooncake_store.errors import Unavailable

if TYPE_CHECKING:
    import typer

    from mooncake_client.cli import Show

HTTP_PORT = 9003
ANSWER_TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 1 << 20


def add_ha_commands(app: "typer.Typer", show: "Show") -> None:
    """`mooncake ha status` and `mooncake ha resign`."""
    import typer

    group = typer.Typer(help="Several masters: who leads, and handing over.", no_args_is_help=True)
    app.add_typer(group, name="ha")
    addresses = typer.Option(help="Their --metrics_port: host:port of each master, by comma.")

    @group.command()
    def status(http: Annotated[str, addresses] = f"127.0.0.1:{HTTP_PORT}") -> None:
        """Role and state of each master, and whom it takes for the leader."""
        rows: list[tuple[str, ...]] = []
        leads = 0
        for endpoint in parse_endpoints(http, field="--http", default_port=HTTP_PORT):
            try:
                told = ask(endpoint, "/health")
            except Unavailable as error:
                rows.append((str(endpoint), "unreachable", "", "", str(error)))
                continue
            leads += told.get("role") == "leader" and bool(told.get("service_ready"))
            names = ("role", "ha_state", "view_version", "leader_address")
            rows.append((str(endpoint), *(str(told.get(name, "")) for name in names)))
        show("masters", ("http", "role", "state", "epoch", "leader"), rows)
        if leads != 1:
            typer.echo(f"mooncake: {leads} of these masters serve", err=True)
            raise typer.Exit(1)

    @group.command()
    def resign(http: Annotated[str, addresses] = f"127.0.0.1:{HTTP_PORT}") -> None:
        """Let the leader among these masters hand over to another; it obeys on its own host only."""
        for endpoint in parse_endpoints(http, field="--http", default_port=HTTP_PORT):
            try:
                is_leader = ask(endpoint, "/health").get("role") == "leader"
            except Unavailable:
                continue
            if not is_leader:
                continue
            told = ask(endpoint, "/api/v1/ha/resign", method="POST")
            if not told.get("success"):
                raise Unavailable(f"{endpoint}: {told.get('error_message')}")
            typer.echo(f"{endpoint} resigns")
            return
        raise Unavailable(f"none of the masters at {http} leads")


def ask(endpoint: Endpoint, path: str, *, method: str = "GET") -> dict[str, Any]:
    """A JSON answer, also of a refusal. Raises Unavailable when there is none."""
    request = urllib.request.Request(f"http://{endpoint}{path}", method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        try:
            with opener.open(request, timeout=ANSWER_TIMEOUT_S) as answer:
                body = answer.read(ANSWER_BYTES_MAX)
        except urllib.error.HTTPError as refusal:
            body = refusal.read(ANSWER_BYTES_MAX)
        told = json.loads(body)
    except (OSError, ValueError) as error:
        raise Unavailable(f"{endpoint}{path}: {error}") from error
    if not isinstance(told, dict):
        raise Unavailable(f"{endpoint}{path} is no master's answer")
    return told
