"""Recordings read through perf's Python module, where it is new enough (`perf.session`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.recording.make.perf_python.event_rows import EventRows
from pagealloc_model.recording.make.perf_python.module import load_perf_module
from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.recording.trace.perf_file import RECORD_AGAIN, open_perf_file
from pagealloc_model.recording.trace.perf_samples import attr_layouts

_EVENT_NAME = re.compile(r"[\w-]+:[\w-]+")
_NOT_COUNTED = "perf.session reports no losses: the package's own reader does"


def read_with_perf_session(path: str | Path) -> Trace:
    """Read a recording with `perf.session`, sample by sample, to check the package's own reader.

    What the events' fields are is taken from the recording's own format data. The trace has
    neither call chains nor command names nor losses.

    Args:
        path: a perf.data, not packed.

    Raises:
        UsageError: perf's module is not there, or does not read files (kernels up to 7.2).
        RecordingError: the file cannot be used, or the module cannot read it.
    """
    perf = load_perf_module()
    if not hasattr(perf, "session"):
        raise UsageError(
            f"{perf.__file__} samples live only; a module that reads files comes with kernels "
            "after 7.2, and the package's own reader needs none"
        )
    file = open_perf_file(path)
    layouts = attr_layouts(file)
    rows, fields = EventRows(), {}
    for each in layouts.formats:
        if each is not None:
            rows.declare(each.event_name, each.column_fields)
            fields[each.event_name] = [field.name for field in each.column_fields]

    def take(sample: Any) -> None:
        name = _EVENT_NAME.search(str(sample.evsel))
        if name is not None and name[0] in fields:
            values = [getattr(sample, field) for field in fields[name[0]]]
            rows.add(name[0], sample.sample_time, sample.sample_cpu, sample.sample_tid, values)

    try:
        perf.session(perf.data(str(path)), sample=take).process_events()
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        what = f"perf's module cannot read it ({error})"
        raise RecordingError(path, what, todo=RECORD_AGAIN) from None
    main, tables = rows.columns()
    return Trace(
        **main,
        tables=tables,
        gfp_bits=layouts.gfp_bits(file),
        gfp_from_format=True,
        source=str(path),
        release=file.release,
        nr_cpus=file.nr_cpus,
        clock=file.clock,
        notes=(_NOT_COUNTED,),
    )
