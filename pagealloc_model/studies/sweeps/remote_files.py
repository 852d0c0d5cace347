"""Recordings at fsspec addresses: known by what their store says of them, fetched once a process.

What a store says of a file (its size, and an etag, version or time of change) stands for its
content, so that the machine that starts a sweep need not fetch what only workers read.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
from pathlib import Path
from threading import Lock
from typing import Any

from pagealloc_model.base.errors import RecordingError, UsageError

IDENTITY = ("ETag", "etag", "md5Hash", "md5", "version_id", "generation", "LastModified")
"""What stores call their own names for a file's content, or the time it last changed."""
LOCAL_TIMES = ("last_modified", "mtime", "created")

_fetching = Lock()
_fetched: dict[str, Path] = {}


def is_address(place: str) -> bool:
    """Whether a place is an fsspec address and no path."""
    return "://" in place


def address_name(address: str) -> str:
    """The recording's name: the last part of its address."""
    return address.rstrip("/").rsplit("/", 1)[-1]


def address_digest(address: str) -> str:
    """Digest of the names, sizes and identities of a recording's files.

    Raises:
        RecordingError: there is nothing, or it cannot be read.
    """
    digest = hashlib.sha256()
    for name, about in sorted(_files(address).items()):
        identity = [str(about[key]) for key in (*IDENTITY, *LOCAL_TIMES) if about.get(key)]
        digest.update(f"{name} {about.get('size')} {' '.join(identity[:1])}\n".encode())
    return digest.hexdigest()


def fetched(address: str) -> Path:
    """A copy of a recording on this machine, kept until the process ends.

    Raises:
        RecordingError: there is nothing, or it cannot be read.
    """
    with _fetching:
        if address not in _fetched:
            _fetched[address] = _fetch(address)
        return _fetched[address]


def _fetch(address: str) -> Path:
    names = _files(address)
    parent = Path(tempfile.mkdtemp(prefix="pagealloc_model-recording-"))
    atexit.register(shutil.rmtree, parent, ignore_errors=True)
    target = parent / address_name(address)
    system, root = _system(address)
    try:
        for name in names:
            file = target / name if name else target
            file.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(f"{root}/{name}" if name else root, str(file))
    except Exception as error:
        raise RecordingError(address, f"cannot be fetched ({error})") from None
    return target


def _files(address: str) -> dict[str, dict[str, Any]]:
    """What the store says of each file, by its name below the address; "" for a single file."""
    system, root = _system(address)
    try:
        found = system.find(root, detail=True)
    except Exception as error:
        raise RecordingError(address, f"cannot be read ({error})") from None
    if not found:
        raise RecordingError(address, "does not exist", todo="check the address and the access")
    below = root.rstrip("/")
    return {path[len(below) :].lstrip("/"): about for path, about in found.items()}


def _system(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path there.

    Raises:
        UsageError: fsspec or what it needs for the protocol is not installed.
        RecordingError: the store refuses.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UsageError(
            f"{address}: addresses need fsspec; pip install '.[cluster]' in the checkout"
        ) from None
    try:
        return url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{address}: {error}") from None
    except Exception as error:
        raise RecordingError(address, f"cannot be reached ({error})") from None
