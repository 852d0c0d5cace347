"""Files that are no recording of perf, called what they are."""

from __future__ import annotations

import re
from pathlib import Path

from pagealloc_model.base.compressed import first_bytes
from pagealloc_model.base.errors import RecordingError

_RECORD = "record with perf record, or with pagealloc record"
_UNPACK = "unpack it, and give the recording's directory"
_TAR, _TAR_PLACE = b"ustar", 257
_KINDS = (
    (b"\x17\x08\x44tracing", "is a trace.dat of trace-cmd", _RECORD),
    (b"PK\x03\x04", "is a zip archive", _UNPACK),
    (b"\xff\xfe", "is UTF-16 text", "save it as UTF-8, or give the perf.data itself"),
    (b"\xfe\xff", "is UTF-16 text", "save it as UTF-8, or give the perf.data itself"),
    (b"\x7fELF", "is a program", "give what perf record wrote"),
    (b"PAR1", "is a Parquet table", "give what it was made from"),
    (b"# tracer:", "is ftrace text of /sys/kernel/tracing/trace", _RECORD),
)
_FTRACE = re.compile(r"-\d+ +(?:\(.{1,9}\) +)?\[\d+\] .*\d+\.\d{6}: mm_\w+:")
"""An event as ftrace and trace-cmd print it: without the subsystem's name."""


def refuse_foreign(path: Path) -> None:
    """Refuse a file of a known kind that holds no recording of perf.

    Raises:
        RecordingError: it is one, or cannot be read.
    """
    begins = first_bytes(path, 512)
    for magic, what, todo in _KINDS:
        if begins.startswith(magic):
            raise RecordingError(path, what, todo=todo)
    if begins[_TAR_PLACE : _TAR_PLACE + len(_TAR)] == _TAR:
        raise RecordingError(path, "is a tar archive", todo=_UNPACK)
    if not begins.strip(b"\0"):
        what = "holds nothing but zeros" if begins else "is empty"
        raise RecordingError(path, what, todo="copy it again from where it was recorded")
    if any(_FTRACE.search(line) for line in begins.decode("utf-8", "replace").splitlines()):
        raise RecordingError(path, "is ftrace text of trace-cmd or of the kernel", todo=_RECORD)
