"""A directory that appears under its name whole, or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagealloc_model.base.errors import UsageError


@contextmanager
def new_directory(directory: Path) -> Iterator[Path]:
    """A directory to write into, which appears under its name once the block has ended well.

    Args:
        directory: must not exist, or be empty.

    Yields:
        The same under another name.

    Raises:
        UsageError: the directory has files already, or cannot be made or written.
    """
    directory = directory.absolute()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory}: exists and is not empty; name another directory with -o")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    except OSError as error:
        raise UsageError(f"{directory}: cannot be made ({error.strerror})") from None
    try:
        yield partial
        partial.chmod(0o777 & ~_umask())
        partial.rename(directory)
    except OSError as error:
        raise UsageError(f"{directory}: cannot be written ({error.strerror})") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
