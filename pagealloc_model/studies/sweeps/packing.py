"""A recording's files as one piece of memory, to be sent to another process."""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
import weakref
from pathlib import Path

from pagealloc_model.recording.recording import Recording, open_recording


def packed(recording: Recording) -> bytes:
    """A tar archive of a recording's files; event files are compressed already."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", dereference=True) as archive:
        archive.add(recording.path.resolve(), arcname=recording.path.resolve().name)
    return output.getvalue()


def unpacked_recording(content: bytes, name: str) -> Recording:
    """The recording in an archive; its files are removed when the recording is let go.

    Args:
        content: what `packed` returned.
        name: what the recording is called.
    """
    directory = Path(tempfile.mkdtemp(prefix="pagealloc_model-recording-"))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(directory, filter="data")
    (unpacked,) = directory.iterdir()
    recording = open_recording(unpacked.rename(directory / name))
    weakref.finalize(recording, shutil.rmtree, directory, ignore_errors=True)
    return recording
