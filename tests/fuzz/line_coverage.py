"""Which lines of the readers an input reaches."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pagealloc_model.recording.trace
from pagealloc_model.base import files as compressed

_TRACED = (*pagealloc_model.recording.trace.__path__, compressed.__file__)


class LineCoverage:
    """Collects (file, line before, line) of the readers' code.

    Attributes:
        seen: every step from line to line so far.
    """

    def __init__(self) -> None:
        self.seen: set[tuple[str, int, int]] = set()
        self._new = False

    @property
    def lines(self) -> int:
        """Different lines reached so far."""
        return len({(file, line) for file, _, line in self.seen})

    def __enter__(self) -> None:
        """Watch what runs from now on."""
        self._new = False
        sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    @property
    def found_new(self) -> bool:
        """Whether what was watched last took a step never seen before."""
        return self._new

    def _called(self, frame: FrameType, _event: str, _argument: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(_TRACED):
            return None
        before, seen = 0, self.seen

        def stepped(frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal before
            if event == "line":
                step = (file, before, frame.f_lineno)
                if step not in seen:
                    seen.add(step)
                    self._new = True
                before = frame.f_lineno
            return stepped

        return stepped
