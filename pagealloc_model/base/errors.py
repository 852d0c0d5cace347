"""Exceptions for input that cannot be used: one clear line each, exit code 2."""

from __future__ import annotations

from pathlib import Path


class PageallocError(Exception):
    """Base of all errors a user can cause; `str()` is one line, made to be printed as it is."""

    exit_code = 2


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
        self.what = what
        self.offset = offset
        self.todo = todo
        where = f"{path}" if offset is None else f"{path}, offset {offset}"
        super().__init__(f"{where}: {what}" + (f"; {todo}" if todo else ""))


class PolicyError(PageallocError):
    """A policy, rule or assumption has an unknown name or a value outside its range."""


class UsageError(PageallocError):
    """A command or a call was asked for something that cannot be done with what it was given."""


class ClusterError(PageallocError):
    """A cluster cannot be reached, went away, or cannot do what was asked of it."""
