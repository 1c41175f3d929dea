"""An election in memory on a clock that tests move; answers can be withheld."""

from __future__ import annotations

from dataclasses import dataclass, field

from mooncake_master.ha.election import LEASE_S, ElectionUnavailable, Leader, Term


@dataclass
class Board:
    """What a backend keeps."""

    now: float = 0.0
    epoch: int = 0
    holder: Term | None = None
    lapses_at: float = 0.0
    members: set[str] = field(default_factory=set)

    def held(self) -> Term | None:
        return self.holder if self.now < self.lapses_at else None


class FakeElection:
    """One master's access to the board. is_cut: questions do not arrive; is_mute: their answers do not."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.is_cut = False
        self.is_mute = False

    def _answer(self) -> None:
        if self.is_mute:
            raise ElectionUnavailable("the answer is lost")

    def _ask(self) -> Board:
        if self.is_cut:
            raise ElectionUnavailable("nobody answers")
        return self.board

    async def campaign(self, address: str, *, above: int) -> Term | None:
        board = self._ask()
        term = None
        if board.held() is None:
            board.epoch = max(board.epoch, above) + 1
            term = board.holder = Term(address, board.epoch, str(board.epoch))
            board.lapses_at = board.now + LEASE_S
        self._answer()
        return term

    async def renew(self, term: Term, *, epoch: int) -> bool:
        board = self._ask()
        is_held = board.held() == term
        if is_held:
            board.epoch = max(board.epoch, epoch)
            board.lapses_at = board.now + LEASE_S
        self._answer()
        return is_held

    async def resign(self, term: Term) -> None:
        board = self._ask()
        if board.holder == term:
            board.holder = None
        self._answer()

    async def leader(self) -> Leader | None:
        board = self._ask()
        held = board.held()
        self._answer()
        return None if held is None else Leader(held.address, board.epoch)

    async def announce(self, address: str) -> None:
        self._ask().members.add(address)

    async def close(self) -> None:
        pass
