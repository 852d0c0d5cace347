"""A recording and its machine: read from files, cut, made anonymous, made anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagealloc_model.recording.record.perf_python import live

__all__ = ["live"]


def __getattr__(name: str) -> Any:
    # On first use, since most who read recordings make none.
    if name == "live":
        from pagealloc_model.recording.record.perf_python import live

        return live
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
