"""Exceptions for input that cannot be used: one clear line each, exit code 2."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from pagealloc_model.base.text import LONGEST_TEXT, as_name


class PageallocError(Exception):
    """Base of all errors a user can cause; `str()` is one line, made to be printed as it is."""

    exit_code = 2

    def __str__(self) -> str:
        return as_name(super().__str__(), LONGEST_TEXT)


class RecordingError(PageallocError):
    """A recording, or one file of it, cannot be read.

    Args:
        path: the file or directory at fault.
        what: what is wrong with it.
        offset: byte offset in the file, where one is known.
        todo: what the user can do about it.
    """

    def __init__(
        self, path: str | Path, what: str, *, offset: int | None = None, todo: str = ""
    ) -> None:
        self.path = Path(path)
        self.what = " ".join(what.split())  # names in a damaged file may have line ends
        self.offset = offset
        self.todo = todo
        where = f"{path}" if offset is None else f"{path}, offset {offset}"
        super().__init__(f"{where}: {self.what}" + (f"; {todo}" if todo else ""))

    def __reduce__(self) -> tuple[Any, ...]:
        """Worker processes hand their errors on; an exception by itself keeps only its text."""
        return partial(type(self), offset=self.offset, todo=self.todo), (self.path, self.what)


class PolicyError(PageallocError):
    """A policy, rule or assumption has an unknown name or a value outside its range."""


class UsageError(PageallocError):
    """A command or a call was asked for something that cannot be done with what it was given."""


class CorruptStateError(PageallocError):
    """The model's state contradicts itself: a list leads nowhere or round and round."""


class ClusterError(PageallocError):
    """A cluster cannot be reached, went away, or cannot do what was asked of it."""


NEAREST = 3


def known_names(name: str, known: Iterable[str], all_of_them: str) -> str:
    """The end of an error's line: the known names nearest to `name`, else "fields: " and all."""
    known = tuple(known)
    near = get_close_matches(name, known, NEAREST)
    if not near:
        near = [other for other in known if name and name in other][:NEAREST]
    return f"did you mean {' or '.join(near)}?" if near else f"{all_of_them}: {', '.join(known)}"
