"""A progress bar for commands: on stderr, where somebody watches. Imports rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn


@contextmanager
def progress_bars() -> Iterator[Callable[[str, float], None]]:
    """Gives tell(work, share done): one bar a work, gone at the end."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:>8}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def tell(work: str, share: float) -> None:
            if work not in tasks:
                tasks[work] = bars.add_task(work, total=1.0)
            bars.update(tasks[work], completed=share)

        yield tell
