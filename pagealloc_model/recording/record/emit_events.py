"""Run by the Python inside perf (`perf script -s`): every event as one line of JSON.

Only the standard library is there. Lines are, in any order after what they refer to:
["event", number, name, [field, ...], attribute as hexadecimal], [number, time, cpu, thread,
[value, ...]], ["name", thread, command], ["gfp", {name: mask}] and, last, ["end"].
"""

from __future__ import annotations

import json
import sys

_FLAGS_EVENT, _FLAGS_FIELD = "kmem__mm_page_alloc", "gfp_flags"

_numbers: dict[str, int] = {}
_fields: list[list[str]] = []
_comms: dict[int, str] = {}
_gfp: dict[str, int] = {}
_write = sys.stdout.write


def _line(*parts: object) -> None:
    _write(json.dumps(parts) + "\n")


def _plain(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return bytes(value).split(b"\0", 1)[0].decode("utf-8", "replace")
    return value


def define_flag_value(event: str, field: str, value: str, text: str) -> None:
    """Called by perf for each name in the flag table of an event's format data."""
    if event == _FLAGS_EVENT and field == _FLAGS_FIELD and int(value):
        _gfp[text] = int(value)


def trace_unhandled(
    event: str,
    context: object,
    fields: dict,  # type: ignore[type-arg]
    sample: dict,  # type: ignore[type-arg]
) -> None:
    """Called by perf for every tracepoint that has no function of its own here: all of them."""
    name, where = sample["ev_name"], sample["sample"]
    number = _numbers.get(name)
    if number is None:
        number = _numbers[name] = len(_fields)
        _fields.append([field for field in fields if not field.startswith("common_")])
        _line("event", number, name, _fields[-1], sample["attr"].hex())
    thread, comm = where["tid"], fields["common_comm"]
    if thread >> 31:
        thread -= 1 << 32
    if _comms.get(thread) != comm:
        _comms[thread] = comm
        _line("name", thread, comm)
    values = [_plain(fields[field]) for field in _fields[number]]
    _line(number, where["time"], where["cpu"], thread, values)


def trace_end() -> None:
    """Called by perf once it has come to the end."""
    _line("gfp", _gfp)
    _line("end")
