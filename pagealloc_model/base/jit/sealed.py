"""Files of code that only this user can have written.

They lie in a directory that nobody else may write to, and no link is followed to them. Each begins
with a seal: a digest of its name and its content under a key that lies beside it. So neither a file
from elsewhere counts, though root should own it, nor one of ours under another's name.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_KEY, _KEY_BYTES, _SEAL_BYTES = "key", 32, 32
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_CREAT | os.O_EXCL


def is_own_directory(directory: Path) -> bool:
    """Make a directory if need be; True if this user alone may write to it, and does.

    Its time becomes the present.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _entered(directory) as folder:
            os.utime(folder)
            return os.access(directory, os.W_OK)
    except OSError:
        return False


def read_sealed(file: Path) -> bytes | None:
    """A file's content, None if it is missing or has not its seal; it counts as used."""
    try:
        with _entered(file.parent) as folder:
            content = _read(folder, file.name)
            key = _read(folder, _KEY)
            if hmac.compare_digest(content[:_SEAL_BYTES], _seal(key, file, content[_SEAL_BYTES:])):
                with suppress(OSError):
                    os.utime(file.name, dir_fd=folder, follow_symlinks=False)
                return content[_SEAL_BYTES:]
    except OSError:
        pass
    return None


def write_sealed(file: Path, content: bytes) -> None:
    """Write a file, whole or not at all.

    Raises:
        OSError: it cannot be written, or others may write to its directory.
    """
    with _entered(file.parent) as folder:
        seal = _seal(_key(folder), file, content)
        unfinished = f"{file.name}.{secrets.token_hex(8)}"
        try:
            _write(folder, unfinished, seal + content)
            os.replace(unfinished, file.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(OSError):
                os.unlink(unfinished, dir_fd=folder)


@contextmanager
def _entered(directory: Path) -> Iterator[int]:
    """A descriptor of a directory of this user's; what others may do there is taken from them."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        about = os.fstat(folder)
        if about.st_uid != os.geteuid():
            raise PermissionError(f"{directory} is another user's")
        if about.st_mode & _OTHERS_MAY_WRITE:
            os.fchmod(folder, 0o700)
        yield folder
    finally:
        os.close(folder)


def _read(folder: int, name: str) -> bytes:
    """A plain file of this user's."""
    with os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as opened:
        about = os.fstat(opened.fileno())
        if about.st_uid != os.geteuid() or not stat.S_ISREG(about.st_mode):
            raise PermissionError(f"{name} is no file of this user's")
        return opened.read()


def _write(folder: int, name: str, content: bytes) -> None:
    with os.fdopen(os.open(name, _NEW, 0o600, dir_fd=folder), "wb") as opened:
        opened.write(content)


def _key(folder: int) -> bytes:
    """The directory's key, made on first use; of two processes that make one, the first does."""
    with suppress(FileNotFoundError):
        if len(key := _read(folder, _KEY)) == _KEY_BYTES:
            return key
        os.unlink(_KEY, dir_fd=folder)
    made = f"{_KEY}.{secrets.token_hex(8)}"
    _write(folder, made, secrets.token_bytes(_KEY_BYTES))
    try:
        with suppress(FileExistsError):
            os.link(made, _KEY, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.unlink(made, dir_fd=folder)
    return _read(folder, _KEY)


def _seal(key: bytes, file: Path, content: bytes) -> bytes:
    return hmac.digest(key, os.fsencode(file.name) + b"\0" + content, "sha256")
