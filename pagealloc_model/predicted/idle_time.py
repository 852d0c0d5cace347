"""Long stretches without an event: what only repeats itself is not computed again and again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import State
from pagealloc_model.base.arrays import parts

_ROUND_TICKS = 64
"""Ticks of every CPU in one round; kcompactd's longest sleep, 32 s, goes into it twice."""
_ALIKE = 100
"""Rounds; a deferral of compaction counts to 64 (S9.5)."""
_LONG_ROUNDS = 16
"""Rounds of a stretch that is worth a look."""


class IdleTime:
    """Advances a state without events, in rounds.

    Ticks and daemons of a model depend on the time only by what is due when. Rounds that change
    every word by the same amount, such as the counters of a kcompactd that looks in vain, are taken
    to go on like this, once there were more of them than any deferral counts. The other rounds of
    the stretch then change the words at once.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._round_ns = _ROUND_TICKS * int(state.st[at.TICK_PERIOD])
        self._before: np.ndarray | None = None
        self._reached_ns = -1
        self._change: np.ndarray | None = None
        self._known: np.ndarray | None = None  # a change that is sure to go on
        self._alike = 0

    def ends_of_gaps(self, events: np.ndarray) -> np.ndarray:
        """Times at which long stretches without an event begin and end, int64, in order."""
        times, ends = events["time_ns"], [np.zeros(0, np.int64)]
        for part in parts(len(times)):
            of_part = times[part.start : part.stop + 1]
            places = np.flatnonzero(np.diff(of_part) > _LONG_ROUNDS * self._round_ns)
            ends += [of_part[places], of_part[places + 1] - 1]
        return np.unique(np.concatenate(ends))

    def until(self, instant: int) -> int:
        """The time to advance to on the way to an instant: the next round's end, or the instant."""
        due = self._state.next_due_ns
        if instant - due <= _LONG_ROUNDS * self._round_ns:
            self._before = None
            return instant
        begin = due if self._before is None else self._reached_ns
        return min(begin + self._round_ns, instant)

    def reached(self, until_ns: int, instant: int, *, is_quiet: bool) -> None:
        """After an advance to a time: go on to the instant's round if the rounds are all alike.

        `is_quiet` says that nothing was logged on the way.
        """
        st = self._state.st
        if until_ns >= instant or not is_quiet:
            self._before = None
            return
        now = st.copy()
        if self._before is None:
            self._alike = 0
        else:
            change = now - self._before
            if self._change is None or not np.array_equal(change, self._change):
                self._alike = 0
            self._change, self._alike = change, self._alike + 1
            is_known = self._known is not None and np.array_equal(change, self._known)
            if is_known or self._alike >= _ALIKE:
                self._known = change
                self._go_on(instant - until_ns)
                self._before = None
                return
        self._before, self._reached_ns = now, until_ns

    def _go_on(self, rest_ns: int) -> None:
        """Change the words as all rounds in that time would, ticks and daemons each by their own.

        A daemon's round is a little longer than that of the ticks, by the time that it works.
        """
        st, change = self._state.st, self._change
        assert change is not None
        ticks = [at.NEXT_TICK, at.TICK_BASE]
        of_ticks = change[ticks] * (rest_ns // self._round_ns)
        longest = max(self._round_ns, *change[[*self._dues()]].tolist(), 0)
        st += change * (rest_ns // longest)
        st[ticks] += of_ticks - change[ticks] * (rest_ns // longest)

    def _dues(self) -> Iterator[int]:
        """Places of the words that say when a daemon goes on."""
        if self._state.is_elastic:
            nodes = int(self._state.st[int(self._state.st[at.PRESSURE_BASE]) + pr.NODES_BASE])
            for node in range(len(self._state.machine.nodes)):
                words = nodes + node * pr.NODE_WORDS
                yield from (words + pr.KSWAPD_DUE, words + pr.KCOMPACTD_DUE)
                yield words + pr.PROACTIVE_DUE
