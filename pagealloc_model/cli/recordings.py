"""Commands that make, describe, copy and convert recordings."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.files import new_directory
from pagealloc_model.base.progress_bar import progress
from pagealloc_model.base.text import count_of, paragraph
from pagealloc_model.cli.arguments import json_text, opened

RECORDING_IMPOSSIBLE = COMMAND_FAILED = 1


def run_doctor(options: argparse.Namespace) -> int:
    """Print one line for each check."""
    from dataclasses import asdict

    from pagealloc_model.guests.guest import guest_checks
    from pagealloc_model.guests.runs import here_check
    from pagealloc_model.recording.record.doctor import examine
    from pagealloc_model.recording.record.host import Host
    from pagealloc_model.show.post import doctor_text

    checks = [*examine(Host(), Path.cwd()), *guest_checks(tuple(options.kernel)), here_check()]
    possible = not any(check.blocks for check in checks)
    if options.json:
        described = [asdict(check) for check in checks]
        print(json_text({"recording_possible": possible, "checks": described}))
    else:
        print(doctor_text(checks))
    return 0 if possible else RECORDING_IMPOSSIBLE


def run_record(options: argparse.Namespace) -> int:
    """Record and say what came of it."""
    from pagealloc_model.recording.record.host import Host
    from pagealloc_model.recording.record.perf import RecordOptions, parse_size
    from pagealloc_model.recording.record.session import (
        calling_user,
        read_back,
        record,
        summary_lines,
    )

    buffer_bytes = parse_size(options.buffer) if options.buffer else None
    if options.python:
        from pagealloc_model.recording.event_files import STORE_FILE
        from pagealloc_model.recording.record.perf_python import live
        from pagealloc_model.recording.trace.store import write_store

        with new_directory(options.output) as unfinished:
            trace = live(options.seconds or 5.0, buffer_bytes=buffer_bytes)
            write_store(trace, unfinished / STORE_FILE, source=None)
        print(f"{options.output}: {count_of(len(trace), 'event')}, {trace.losses.total} lost")
        return 0

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def note(line: str) -> None:
        if sys.stderr.isatty():
            say(f"{line} ...")

    host = Host()
    recorded = record(
        RecordOptions(
            destination=options.output,
            command=tuple(options.command),
            seconds=options.seconds,
            events=tuple(filter(None, options.events.split(","))),
            locks=options.locks,
            call_chains=options.call_chains,
            probes=options.probes,
            profile=options.profile,
            anonymise=options.anonymise,
            live_s=options.live,
            interval_s=options.interval,
            buffer_bytes=buffer_bytes,
        ),
        host,
        say,
        note,
    )
    note("reading it back")
    content = read_back(recorded.path, calling_user(os.environ, host.user))
    print("\n".join(summary_lines(recorded, content)))
    failed = recorded.command_code and not recorded.ended_by.startswith("SIG")
    return COMMAND_FAILED if failed else 0


def run_snapshot(options: argparse.Namespace) -> int:
    """Take the snapshots and say what could not be read."""
    from pagealloc_model.recording.record.host import Host
    from pagealloc_model.recording.record.snapshots import copy_state

    count, unreadable, has_flags = copy_state(
        options.directory, Host(), seconds=options.seconds, interval_s=options.interval
    )
    flags = "with" if has_flags else "without"
    print(f"{options.directory}: {count_of(count, 'snapshot')}, {flags} kpageflags")
    if unreadable:
        print(f"unreadable {', '.join(unreadable)}; root may read them")
    return 0


STATE_FILES = ("zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat")


def run_attach(options: argparse.Namespace) -> int:
    """Attach and say what is missing."""
    from pagealloc_model.recording.event_files import size_of
    from pagealloc_model.recording.importing import attach_state

    recording = opened(options.trace)
    copies = {name: path for name in STATE_FILES if (path := getattr(options, name)) is not None}
    with progress(f"reading {recording.name}", size_of(recording.event_file), "B") as report:
        done = attach_state(
            options.trace,
            options.output,
            snapshots=options.snapshot,
            files=copies,
            read=options.read,
            release=options.release,
            progress=report,
        )
    events, snapshots = count_of(done.events, "event"), count_of(done.snapshots, "snapshot")
    print(f"{options.output}: {events}, {snapshots}")
    for line in done.lacks:
        print(f"lacks      {line}")
    return 0


def run_import(options: argparse.Namespace) -> int:
    """Import and say what came of it."""
    from pagealloc_model.recording.event_files import size_of
    from pagealloc_model.recording.importing import import_recording

    recording = opened(options.path)
    size = size_of(recording.event_file)
    with progress(f"importing {recording.name}", size, "B") as report:
        done = import_recording(
            recording.path,
            options.output,
            compress=options.compress,
            reader=options.reader,
            progress=report,
        )
    print(
        f"{done.event_file}: {count_of(done.events, 'event')}, {count_of(done.size, 'byte')}, "
        f"{done.size / max(done.events, 1):.1f} an event; "
        f"{recording.event_file.name} had {done.source_size}"
    )
    for name in done.left_out:
        print(f"left out   {name}, which only a directory has room for")
    return 0


def run_export(options: argparse.Namespace) -> int:
    """Export and say what was written."""
    from pagealloc_model.recording.exporting import export_recording

    done = export_recording(opened(options.path), options.output, options.to)
    for name, rows in done.rows.items():
        print(f"{done.path}: {name} {rows}")
    return 0


def run_info(options: argparse.Namespace) -> int:
    """Print the description."""
    from pagealloc_model.show.recording_text import describe_recording, recording_text

    recording = opened(options.path)
    if options.json:
        print(json_text(describe_recording(recording)))
        return 0
    print(recording_text(recording, full=options.full))
    if not options.full:
        name = shlex.quote(str(options.path))
        print(
            f"\nNext: pagealloc validate {name} says how near the model comes.\n"
            f"pagealloc info {name} --full prints every check, count and rule."
        )
    return 0


def run_trim(options: argparse.Namespace) -> int:
    """Write the copy and say what is in it."""
    from pagealloc_model.recording.trim import trim_recording

    trimmed = trim_recording(
        opened(options.path).path,
        options.destination,
        start_s=options.start,
        seconds=options.seconds,
        events=options.events,
        anonymise=options.anonymise,
        keep_names=tuple(options.keep_name),
        keep_functions=options.keep_functions,
    )
    seconds = (trimmed.window.end_ns - trimmed.window.begin_ns) / 1e9
    print(
        f"{trimmed.path}: {count_of(trimmed.window.events, 'event')} in {seconds:.3f} s, "
        f"{count_of(trimmed.snapshots, 'snapshot')}, {count_of(trimmed.size, 'byte')}"
    )
    for phrase in trimmed.removed:
        print(f"removed    {phrase}")
    return 0


def run_synth(options: argparse.Namespace) -> int:
    """Run the scenario, write it, and say how long zone->lock is held."""
    from pagealloc_model.loads.run import run as run_demand
    from pagealloc_model.loads.scenarios import scenario, write_synthetic_recording
    from pagealloc_model.policy.kernel_rules import preset_names
    from pagealloc_model.predicted.lock_times import with_spread
    from pagealloc_model.show.post.tables import longest_hold_table, spread_table, trylock_line

    rules = options.rules or preset_names()[-1]
    words = [word.partition("=")[::2] for word in options.set]
    try:
        numbers = {name: int(value) for name, value in words}
    except ValueError:
        wrong = " ".join(options.set)
        raise UsageError(f"--set {wrong}: write NUMBER=VALUE, whole numbers") from None
    demand = scenario(
        options.scenario,
        gib=options.gib,
        nr_cpus=options.cpus,
        nodes=options.nodes,
        rules=rules,
        seed=options.seed,
        **numbers,
    )
    done = run_demand(demand, rules=rules)
    write_synthetic_recording(done, options.output)
    cpus = count_of(demand.machine.nr_cpus, "CPU")
    print(f"{options.output}: {count_of(demand.count, 'event')} on {cpus}")
    for line in demand.lines:
        print(f"scenario   {line}")
    times = done.lock_times()
    print("\nWith the assumed costs; low and high: costs divided and multiplied by 3.16:\n")
    print(longest_hold_table(times))
    print(spread_table(with_spread(times.log, times.machine, times.model, times.visits)))
    print(paragraph(trylock_line(times)))
    return 0
