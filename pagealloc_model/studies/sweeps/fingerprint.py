"""What a point's result depends on, as digests: the recording's content, and this package's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numba
import numpy as np

from pagealloc_model.recording.recording import Recording
from pagealloc_model.studies.sweeps.settings import Settings

PRESENTATION = ("cli", "show", "notebook")
"""Rooms that show results and cannot change them."""


@lru_cache(maxsize=1)
def model_fingerprint() -> str:
    """Digest of the package's sources, those of `PRESENTATION` left out, and of what runs them."""
    package = Path(__file__).parent.parent.parent
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    for source in sorted(each for each in package.rglob("*") if each.suffix in (".py", ".c", ".h")):
        name = source.relative_to(package)
        if name.parts[0] not in PRESENTATION:
            digest.update(f"{name.as_posix()} {source.stat().st_size} ".encode())
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def recording_digest(recording: Recording) -> str:
    """SHA-256 of a recording's files: events, snapshots, page flags and settings."""
    digest = hashlib.sha256(f"events {recording.sha256}\n".encode())
    if recording.path.is_dir():
        for file in sorted(each for each in recording.path.rglob("*") if each.is_file()):
            if file != recording.event_file:
                with file.open("rb") as content:
                    hashed = hashlib.file_digest(content, "sha256").hexdigest()
                digest.update(f"{file.relative_to(recording.path).as_posix()} {hashed}\n".encode())
    return digest.hexdigest()


def point_key(recording: str, settings: Settings) -> str:
    """The name of a result: equal keys mean equal results.

    Args:
        recording: digest of the recording.
        settings: what it is replayed under.

    Raises:
        UsageError: hooks that cannot be told apart by content.
    """
    return result_key({"recording": recording, "settings": settings.spelled()})


def result_key(parts: Mapping[str, object]) -> str:
    """The name of a result of this version of the model.

    Args:
        parts: all that it depends on, in plain values.
    """
    parts = {**parts, "model": model_fingerprint()}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]
