"""Remove from a Trace what names a machine or its programs, as `anonymise` does from records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from pagealloc_model.recording.anonymise import (
    KTHREADD,
    ZONE_NAMES,
    address_mask,
    is_usual_name,
    new_name,
    renumbered,
)
from pagealloc_model.recording.trace.columns import NAMED, ThreadNames, Trace


def anonymise_trace(trace: Trace, keep_names: Collection[str]) -> Trace:
    """A Trace with other names and addresses: equal ones stay equal, addresses keep their order.

    Args:
        trace: not changed.
        keep_names: command names to keep besides the usual ones.
    """
    tables = {event: dict(table) for event, table in trace.tables.items()}
    places = []
    words, is_pointer = [trace.callchains], [np.ones(len(trace.callchains), bool)]
    for event, table in tables.items():
        declared = trace.declared_types.get(event, {})
        for name, values in table.items():
            if values.dtype == object:
                table[name] = np.array(
                    [text if text in ZONE_NAMES else "" for text in values.tolist()], object
                )
            elif values.dtype == np.uint64:
                places.append((table, name))
                words.append(values)
                is_pointer.append(np.full(len(values), "*" in declared.get(name, "")))
    callchains, *columns = _renumbered_together(words, is_pointer)
    for (table, name), column in zip(places, columns, strict=True):
        table[name] = column
    names = _renamed(trace.thread_names, keep_names)
    comms = names.last() if len(names) else _renamed_comms(trace.comms, keep_names)
    return replace(trace, tables=tables, callchains=callchains, thread_names=names, comms=comms)


def _renumbered_together(words: list[np.ndarray], is_pointer: list[np.ndarray]) -> list[np.ndarray]:
    values = np.concatenate(words)
    replaced = address_mask(values, np.concatenate(is_pointer))
    values[replaced] = renumbered(values[replaced])
    return np.split(values, np.cumsum([len(part) for part in words])[:-1])


def _renamed(names: ThreadNames, keep_names: Collection[str]) -> ThreadNames:
    """Command names replaced in the order in which they come, those of kernel threads kept."""
    kernel_threads = {0, KTHREADD, *names.tid[names.parent == KTHREADD].tolist()}
    new_names: dict[str, str] = {}
    texts = names.name.copy()
    for index in np.flatnonzero(names.parent == NAMED).tolist():
        text = texts[index]
        if int(names.tid[index]) in kernel_threads or text in keep_names or is_usual_name(text):
            continue
        texts[index] = new_names.setdefault(text, new_name(len(new_names)))
    return replace(names, name=texts)


def _renamed_comms(comms: Mapping[int, str], keep_names: Collection[str]) -> dict[int, str]:
    """The same of a source that does not say when threads were named."""
    rows = [(0, tid, NAMED, name) for tid, name in comms.items()]
    names = _renamed(ThreadNames.of(rows), keep_names).name
    return dict(zip(comms, names.tolist(), strict=True))
