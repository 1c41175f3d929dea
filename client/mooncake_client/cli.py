"""`mooncake`: an operator's look at the pool, one command each; errors are one line.

Owns arguments and printing. Everything is asked through `Store`. typer and rich come with the extra `cli` and
are imported when a command runs.
"""

# No `from __future__ import annotations`: typer evaluates them, and it is imported inside the functions only.
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from mooncake_client.ha_command import add_ha_commands
from mooncake_store._version import __version__
from mooncake_store.errors import StoreError
from mooncake_store.pipes import quiet_broken_pipe
from mooncake_store.units import format_size

if TYPE_CHECKING:
    import typer

    from mooncake_client.store import Store

MASTER_VARIABLE = "MOONCAKE_MASTER"
CONTROL_VARIABLE = "MOONCAKE_CONTROL"
KEYS_SHOWN = 1_000
CLI_SESSION = "mooncake-cli"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0, 1 for a miss or an error of the store, 2 for a wrong argument."""
    try:
        app = application()
    except ModuleNotFoundError as error:
        print(f"mooncake: {error.name} is missing: pip install 'mooncake-store[cli]'", file=sys.stderr)
        return 1
    try:
        with quiet_broken_pipe():
            app(args=None if argv is None else list(argv), prog_name="mooncake")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except (StoreError, OSError) as error:
        print(f"mooncake: {error}", file=sys.stderr)
        return 1
    return 0


def application() -> "typer.Typer":
    """The commands; imports typer and rich."""
    import typer
    from rich.console import Console
    from rich.table import Table

    app = typer.Typer(
        help="Look at a pool of mooncake-store.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    connected: dict[str, str] = {}

    def print_version(asked: bool) -> None:
        if asked:
            print(f"mooncake {__version__}")
            raise typer.Exit

    @app.callback()
    def connection(
        context: typer.Context,
        master: Annotated[
            str, typer.Option(envvar=MASTER_VARIABLE, help="host:port of the master, or several by comma.")
        ] = "127.0.0.1:50001",
        tenant: Annotated[str, typer.Option(help="Namespace of the keys.")] = "default",
        control: Annotated[
            str, typer.Option(envvar=CONTROL_VARIABLE, help="Door to the master: auto, lane or grpc.")
        ] = "auto",
        version: Annotated[
            bool, typer.Option("--version", help="Print the version.", callback=print_version, is_eager=True)
        ] = False,
    ) -> None:
        source = context.get_parameter_source("master")
        is_default = source is not None and source.name == "DEFAULT"
        connected.update(
            master=master, tenant=tenant, control=control, is_default="yes" if is_default else ""
        )

    def store() -> "Store":
        from mooncake_client.store import Store

        return Store(
            connected["master"],
            tenant=connected["tenant"],
            name=CLI_SESSION,
            control=connected["control"],
        )

    def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        table = Table(title=title)
        for index, column in enumerate(columns):
            table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
        for row in rows:
            table.add_row(*map(str, row))
        Console().print(table)

    _add_pool_commands(app, store, show)
    _add_object_commands(app, store)
    _add_story_commands(app, connected, store)
    _add_bench_command(app, connected, store, show)
    add_ha_commands(app, show)
    _add_simulate_command(app, show)
    _add_doctor_command(app, connected)
    return app


Show = Callable[[str, Sequence[str], Sequence[Sequence[object]]], None]


def _add_pool_commands(app: "typer.Typer", store: Callable[[], "Store"], show: Show) -> None:
    import typer

    from mooncake_client.doctor.reach import local_lines
    from mooncake_client.status_text import status_lines

    @app.command()
    def status() -> None:
        """How the pool is, and how this host's nodes are reached, in a few lines; then all numbers."""
        with store() as pool:
            stats, segments, door = pool.stats(), pool.segments(), pool.door
            config = pool.config
        print("\n".join([*status_lines(stats, segments), *local_lines(segments, config)]))
        show(f"master, asked over {door}", ("name", "value"), sorted(stats.items()))

    @app.command()
    def segments() -> None:
        """The memory of the pool, and how full it is."""
        with store() as pool:
            rows = [
                (
                    segment.name,
                    segment.tier,
                    format_size(segment.capacity_bytes),
                    f"{100 * segment.charged_bytes / max(1, segment.capacity_bytes):.1f} %",
                    segment.replica_count,
                    " ".join(segment.endpoints),
                )
                for segment in pool.segments()
            ]
            show("segments", ("name", "tier", "capacity", "used", "replicas", "endpoints"), rows)

    @app.command()
    def keys(
        prefix: Annotated[str, typer.Option(help="Only keys that begin so.")] = "",
        limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = KEYS_SHOWN,
    ) -> None:
        """Keys, one a line, in no particular order."""
        with store() as pool:
            for key in islice(pool.keys(prefix), limit):
                print(_printable(key))


def _add_object_commands(app: "typer.Typer", store: Callable[[], "Store"]) -> None:
    import typer

    @app.command()
    def why(key: str) -> None:
        """Why a value is not there: evicted, removed, expired, lost, never stored, ... (more: stat)."""
        with store() as pool:
            print(pool.why(key))

    @app.command()
    def get(key: str) -> None:
        """Write a value to standard output."""
        with store() as pool:
            value = pool.get(key)
        if value is None:
            print(f"mooncake: key {key!r} is not there", file=sys.stderr)
            raise typer.Exit(1)
        sys.stdout.buffer.write(value)
        sys.stdout.buffer.flush()

    @app.command()
    def put(
        key: str, file: Path, replace: Annotated[bool, typer.Option(help="Also when there is one.")] = False
    ) -> None:
        """Store the bytes of a file."""
        with store() as pool:
            print(pool.put(key, file.read_bytes(), replace=replace))

    @app.command()
    def remove(key: str) -> None:
        """End a value."""
        with store() as pool:
            pool.remove(key, missing_ok=False)
        print("removed")


def _add_story_commands(app: "typer.Typer", connected: dict[str, str], store: Callable[[], "Store"]) -> None:
    import typer

    from mooncake_client import story_text
    from mooncake_client.story import EVENTS_MAX
    from mooncake_client.verbs import EVENTS_SHOWN

    @app.command()
    def stat(
        name: Annotated[str, typer.Argument(metavar="KEY", help="A key, or with --node a name.")],
        node: Annotated[bool, typer.Option("--node", help="KEY names a segment, a node or a host.")] = False,
        limit: Annotated[int, typer.Option(min=1, max=EVENTS_MAX, help="Newest events.")] = EVENTS_SHOWN,
        as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
        tenant: Annotated[str, typer.Option(help="As before the command; here it wins.")] = "",
    ) -> None:
        """What the master knows of a key or node, and what happened to it. Status 1: it is not there."""
        if tenant:
            connected["tenant"] = tenant
        with store() as pool:
            found = (pool.inspect_node if node else pool.inspect)(name, events_max=limit)
        if as_json:
            subject = {"node": name} if node else {"key": name, "tenant": connected["tenant"]}
            print(story_text.as_json(found, **subject))
        else:
            lines = story_text.node_lines if node else story_text.key_lines
            print("\n".join(lines(_printable(name.encode("utf-8", "surrogateescape")), found)))
        is_there = found.key.is_visible if found.key is not None else bool(found.segments)
        if not is_there:
            raise typer.Exit(1)

    @app.command()
    def events(
        limit: Annotated[int, typer.Option(min=1, max=EVENTS_MAX, help="Newest events.")] = EVENTS_SHOWN,
        every: Annotated[bool, typer.Option("--all", help="With the sessions of this command.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    ) -> None:
        """What happened lately: sessions and segments that came and went and why, epochs, rebuilds."""
        with store() as pool:
            found = pool.events(events_max=limit if every else EVENTS_MAX)
        if not every:
            found = story_text.without_sessions_of(found, CLI_SESSION, limit)
        print(story_text.as_json(found) if as_json else "\n".join(story_text.event_lines(found)))


def _add_bench_command(
    app: "typer.Typer", connected: dict[str, str], store: Callable[[], "Store"], show: Show
) -> None:
    import typer

    @app.command()
    def bench(
        size: Annotated[str, typer.Option(help="Of a value, such as 64KiB.")] = "1MiB",
        batch: Annotated[int, typer.Option(help="Values a call.")] = 1,
        threads: Annotated[int, typer.Option(help="That call at once.")] = 1,
        seconds: Annotated[float, typer.Option(help="For all works together.")] = 10.0,
        work: Annotated[str, typer.Option(help="Of put, get and exists, by comma.")] = "put,get,exists",
        as_json: Annotated[bool, typer.Option("--json", help="Figures as JSON.")] = False,
        master: Annotated[str, typer.Option(help="As before the command; here it wins.")] = "",
    ) -> None:
        """How fast this pool is from here. Bytes are checked; the keys it puts are removed again."""
        from mooncake_client.bench_command import run_bench
        from mooncake_store.units import parse_size

        if master:
            connected["master"] = master
        works = tuple(part.strip() for part in work.split(",") if part.strip())
        raise typer.Exit(
            run_bench(
                store,
                show,
                {
                    "size_bytes": parse_size(size, field="--size"),
                    "batch": batch,
                    "threads": threads,
                    "seconds": seconds,
                    "works": works,
                },
                as_json=as_json,
            )
        )


def _add_simulate_command(app: "typer.Typer", show: Show) -> None:
    import typer

    from mooncake_client.trace import TIME_UNITS_MS

    @app.command()
    def simulate(
        trace: Annotated[Path, typer.Option(help="JSONL, a request a line: hash_ids, or block_hashes.")],
        blocks: Annotated[str, typer.Option(help="Blocks that fit, one pool each, such as 1000,5000.")] = "",
        dram: Annotated[str, typer.Option(help="Memory of the pool instead, such as 64GiB.")] = "",
        ssd: Annotated[str, typer.Option(help="Disk behind it: not built yet, so it is refused.")] = "",
        block_size: Annotated[str, typer.Option("--block_size", help="Of a block, with --dram.")] = "1MiB",
        policy: Annotated[str, typer.Option(help="Eviction policies, by comma; else the default one.")] = "",
        time_unit: Annotated[
            str, typer.Option("--time_unit", help=f"Of timestamps: {' or '.join(TIME_UNITS_MS)}.")
        ] = "ms",
        as_json: Annotated[bool, typer.Option("--json", help="A list, one object a run.")] = False,
    ) -> None:
        """What hit rates a trace of requests would have had, in pools of several sizes. Needs no master.

        The real state machine is driven with the trace's clock: each request asks for its blocks in order
        and puts those that were missing. A pool evicts when it is full, not at a watermark. A block hit is
        a block that was there; a prefix hit has all blocks of its request before it there, too. Beside them
        the most block hits any policy could have (Belady's choice), and those of a cache without an end.
        """
        from mooncake_client.simulate_command import run_simulate

        settings = {"blocks": blocks, "dram": dram, "ssd": ssd, "block_size": block_size, "policy": policy}
        raise typer.Exit(run_simulate(trace, settings, show, time_unit=time_unit, as_json=as_json))


def _add_doctor_command(app: "typer.Typer", connected: dict[str, str]) -> None:
    import typer

    @app.command()
    def doctor(
        master: Annotated[str, typer.Option(help="As before the command; here it wins.")] = "",
        as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    ) -> None:
        """Check this installation, machine and configuration, the master, each node, and the way to a GPU.

        Each line has a verdict, the reason and, where something is to be done, the remedy. Without --master
        and MOONCAKE_MASTER the master is the one that MOONCAKE_CONFIG_PATH names. Every check has a deadline.
        Status 0: all is well; 1: something to look at; 2: something does not work.
        """
        from mooncake_client import doctor as examiner
        from mooncake_client.doctor.settings import master_of_file

        told = master or ("" if connected["is_default"] else connected["master"])
        found = examiner.examine(
            told or master_of_file() or connected["master"],
            tenant=connected["tenant"],
            control=connected["control"],
            name=CLI_SESSION,
        )
        print(examiner.as_json(found) if as_json else "\n".join(examiner.as_lines(found)))
        raise typer.Exit(examiner.EXIT_STATUS[examiner.worst(found)])


def _printable(key: bytes) -> str:
    """A key as text where it is text, else as a Python bytes literal."""
    text = key.decode("utf-8", "replace")
    return text if text.isprintable() and "\ufffd" not in text else repr(key)


if __name__ == "__main__":
    sys.exit(main())
