"""A recording of a machine: what it holds and what it lacks."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import RecordingError, known_names
from pagealloc_model.base.files import given, is_given, json_of, text_of, written_whole
from pagealloc_model.base.memo import Memo
from pagealloc_model.base.progress_bar import Report, progress
from pagealloc_model.base.text import LONGEST_TEXT, as_name, as_word, count_of
from pagealloc_model.recording import event_files
from pagealloc_model.recording.event_files import STORE_FILE as STORE_FILE
from pagealloc_model.recording.lock_profile import PROFILE_FILE, LockProfile, read_lock_profile
from pagealloc_model.recording.page_frames import NO_HOLES, PageFrames
from pagealloc_model.recording.proc import counts
from pagealloc_model.recording.proc.pages import PageOwner, read_kpageflags, read_page_owner
from pagealloc_model.recording.proc.zoneinfo import NR_CPUS_MAX
from pagealloc_model.recording.snapshot import (
    FOLIO_STATS_FILE,
    KNOWN_FILES,
    SNAPSHOT_FILES,
    Snapshot,
    dated_snapshots,
    events_after_snapshot,
    flags_at,
    start_snapshot,
)
from pagealloc_model.recording.state_instant import (
    STATE_DIRECTORY,
    DatedState,
    dated_states,
    events_after_state,
    state_files_of,
)
from pagealloc_model.recording.trace.columns import Trace

if TYPE_CHECKING:
    import numpy as np

    from pagealloc_model.diagnosis.placement import Placement
    from pagealloc_model.measured.measured import Measured
    from pagealloc_model.policy.kernel_rules import KernelRules
    from pagealloc_model.policy.policy import Assumptions
    from pagealloc_model.recording.importing import ImportResult
    from pagealloc_model.recording.provenance import ProvenanceCheck
    from pagealloc_model.recording.trim import TrimResult

RECORDING_VERSION = 1
META_FILE = "meta.json"
SNAPSHOT_DIRECTORY = "snapshots"
KPAGEFLAGS_FILE = "kpageflags.u64.gz"
WITHOUT_HOLES = "kpageflags_without"
"""The key in meta.json of the holes whose words KPAGEFLAGS_FILE leaves out."""
KALLSYMS_FILE = "kallsyms.gz"
PAGE_OWNER_FILES = tuple(f"page_owner.txt{suffix}" for suffix in (".gz", ".xz", ".zst", ""))
_STATE_FILES = (KALLSYMS_FILE, KPAGEFLAGS_FILE, *PAGE_OWNER_FILES, PROFILE_FILE)
RECORDINGS_VARIABLE = "PAGEALLOC_RECORDINGS"
_NOTEBOOKS = "notebooks"
_WITHOUT_FILE = {
    "buddyinfo": "free memory by order cannot be compared there",
    "pagetypeinfo": "free lists by migratetype and pageblock types cannot be compared there",
    "zoneinfo": "zones, watermarks and per-CPU lists are unknown there",
    "vmstat": "the kernel's own counters cannot be compared there",
    counts.READ_TIMES_FILE: "all of the snapshot's files count as read when it began",
    counts.PRESSURE_FILE: "memory pressure cannot be compared there",
    counts.CPU_TIMES_FILE: "time in the kernel is unknown there",
    FOLIO_STATS_FILE: "the kernel's own counts of folios cannot be compared there",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording(Memo):
    """A recording; what is costly to read is read on first use and kept.

    A damaged file, or events that are cut or of an unknown layout, are a RecordingError when they
    are first asked for.

    Attributes:
        path: the recording's directory, or the event file where that is all there is.
        name: short name for tables and figures.
        event_file: of any format that `event_files.read_events` reads.
        meta: content of meta.json, {} without one; unknown keys are kept.
        snapshots: the machine's state files in time order, parsed at access.
        left_alone: what else lies in the directory and is not read, one line each.
        identities: of each file when the recording was opened, see `refuse_changed`.
    """

    path: Path
    name: str
    event_file: Path
    meta: Mapping[str, Any] = field(default_factory=dict)
    snapshots: tuple[Snapshot, ...] = ()
    left_alone: tuple[str, ...] = ()
    identities: Mapping[Path, tuple[int, ...]] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"<Recording {self.name} of {self.path}>"

    def _repr_html_(self) -> str:
        from pagealloc_model.show.html.results import recording_html

        return recording_html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        from pagealloc_model.show.recording_text import recording_text

        printer.text(recording_text(self))

    def measure(self, *, bin_ns: int = 1_000_000_000) -> Measured:
        """Take the tables of a replay from this recording alone; see `measured.measure`."""
        from pagealloc_model.measured.measured import measure

        return measure(self, bin_ns=bin_ns)

    def provenance(self) -> tuple[ProvenanceCheck, ...]:
        """Check whether this recording can be believed; see `provenance.provenance`."""
        from pagealloc_model.recording.provenance import provenance

        return provenance(self)

    def judge_choices(
        self, *, rules: KernelRules | str | None = None, assumptions: Assumptions | None = None
    ) -> Placement:
        """Judge every choice from the true state before it; see `placement.judge_placement`."""
        from pagealloc_model.diagnosis.placement import judge_placement

        return judge_placement(self, rules=rules, assumptions=assumptions)

    def trim(
        self,
        destination: str | Path,
        *,
        start_s: float | None = None,
        seconds: float | None = None,
        events: int | None = None,
        anonymise: bool = False,
        compress: bool = True,
        keep_names: Collection[str] = (),
        keep_functions: bool = False,
    ) -> TrimResult:
        """Write the part that lies in a window as a recording; see `trim.trim_recording`."""
        from pagealloc_model.recording.trim import trim_recording

        return trim_recording(
            self.path,
            destination,
            start_s=start_s,
            seconds=seconds,
            events=events,
            anonymise=anonymise,
            compress=compress,
            keep_names=keep_names,
            keep_functions=keep_functions,
        )

    def to_columns(
        self,
        destination: str | Path,
        *,
        compress: bool = True,
        reader: str = "own",
        progress: Report | None = None,
    ) -> ImportResult:
        """Write this recording with its events as columns; see `importing.import_recording`."""
        from pagealloc_model.recording.importing import import_recording

        return import_recording(
            self.path, destination, compress=compress, reader=reader, progress=progress
        )

    @cached_property
    def trace(self) -> Trace:
        """The recorded events, from `start_state` or from `begins_at` on."""
        if self.start_state is not None:
            return events_after_state(self.whole_trace, self.start_state)
        if self.begins_at is None:
            return self.whole_trace
        return events_after_snapshot(self.whole_trace, self.begins_at)

    @cached_property
    def states(self) -> tuple[DatedState, ...]:
        """The machine's state files in time order, each with its instant among the events.

        Without those whose instant lost events hide, and none of a machine whose memory has large
        holes, which they number.
        """
        files = sorted(state_files_of(self.path)) if not self.frames.holes else ()
        return dated_states(files, self.whole_trace)

    @cached_property
    def start_state(self) -> DatedState | None:
        """The state that the recording begins with: the first one, None without state files."""
        return self.states[0] if self.states else None

    @cached_property
    def begins_at(self) -> Snapshot | None:
        """The snapshot that the recording begins at, None if at its first event (T10.6)."""
        if self.start_state is not None:
            return None
        return start_snapshot(self.dated_snapshots, self.whole_trace)

    @cached_property
    def whole_trace(self) -> Trace:
        """All recorded events."""
        with progress(f"reading {self.name}", event_files.size_of(self.event_file), "B") as report:
            trace = event_files.read_events(self.event_file, progress=report)
        return trace.with_frames(self.frames)

    @cached_property
    def frames(self) -> PageFrames:
        """How the page frames of the machine's memory are counted, by the first zoneinfo."""
        files = (snapshot.zoneinfo for snapshot in self.snapshots)
        return next((file.frames for file in files if file is not None), NO_HOLES)

    @cached_property
    def dated_snapshots(self) -> tuple[Snapshot, ...]:
        """The snapshots, each at the time of its zoneinfo instead of that of its name."""
        return dated_snapshots(self.snapshots, self.whole_trace)

    @property
    def has_zoneinfo(self) -> bool:
        """True if a snapshot describes the machine."""
        return any(snapshot.zoneinfo is not None for snapshot in self.snapshots)

    @cached_property
    def release(self) -> str:
        """Kernel release such as "6.18.44-fc", "" if unknown; without meta.json reads events."""
        uname = self.meta.get("uname")
        return str(uname[2]) if uname else self.trace.release

    @cached_property
    def kpageflags(self) -> np.ndarray | None:
        """Flag words by page frame just before recording (T12.5), None if not recorded."""
        file = self.path / KPAGEFLAGS_FILE
        without = NO_HOLES if self.meta.get(WITHOUT_HOLES) else self.frames
        return read_kpageflags(file, most_words(self), without) if is_given(file) else None

    @cached_property
    def flags_at_start(self) -> np.ndarray | None:
        """The same where the recording begins: at a snapshot, with what events before it tell."""
        if self.kpageflags is None or self.begins_at is None:
            return self.kpageflags
        return flags_at(self.kpageflags, self.whole_trace, self.begins_at)

    @property
    def kpageflags_at_ns(self) -> int | None:
        """Time of the kpageflags read on the recording's clock, None if unknown."""
        return self.meta.get("kpageflags_at_ns")

    @cached_property
    def page_owner(self) -> PageOwner | None:
        """Allocations live just before recording, with owners (T12.7), None if not recorded."""
        files = (self.path / name for name in PAGE_OWNER_FILES)
        return next((read_page_owner(file, self.frames) for file in files if is_given(file)), None)

    @cached_property
    def kernel_symbols(self) -> counts.KernelSymbols | None:
        """Functions of the recorded kernel by address, None if not recorded."""
        file = self.path / KALLSYMS_FILE
        return counts.read_kallsyms(file) if is_given(file) else None

    @cached_property
    def lock_profile(self) -> LockProfile | None:
        """Time under zone->lock while nothing was traced, None if not recorded."""
        file = self.path / PROFILE_FILE
        return read_lock_profile(file, self.meta.get("profile") or {}) if is_given(file) else None

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the event file in hexadecimal, to name the recording in results.

        Of a columnar form, that of the file it was made from.
        """
        if not self.event_file.is_dir() and event_files.is_store(self.event_file):
            from pagealloc_model.recording.trace.store import store_source

            if (source := store_source(self.event_file)) is not None:
                return source.sha256
        digest = event_files.digest_of(self.event_file)
        self.refuse_changed()
        return digest

    def refuse_changed(self) -> None:
        """A RecordingError if a file is another one than when the recording was opened.

        What was read since then, and what is read now, may be of two recordings.
        """
        for path, identity in self.identities.items():
            if _identity(path) != identity:
                what = "was changed or exchanged since the recording was opened"
                raise RecordingError(path, what, todo="open the recording again")

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """Parts that the recording lacks, one plain line each, with what that makes impossible.

        This parses all snapshots, so that a damaged one is named too.
        """
        lines = []
        if not self.meta:
            lines.append(
                f"no {META_FILE}: sysctls, THP settings and the recording command are unknown; "
                "policies start from kernel defaults"
            )
        if not self.snapshots:
            lines.append(
                "no snapshots: zones, watermarks and the state at the start are unknown; free "
                "memory, pageblocks, per-CPU lists and vmstat cannot be compared"
            )
        if not is_given(self.path / KPAGEFLAGS_FILE):
            lines.append(
                f"no {KPAGEFLAGS_FILE}: which pages were free at the start is only known for "
                "those the events touch"
            )
        lines += self.left_alone
        count = len(self.snapshots)
        if self.frames.holes and any(state_files_of(self.path)):
            lines.append(
                f"{STATE_DIRECTORY} cannot be read of memory with holes of 64 GiB and more: the "
                "start is what snapshots tell"
            )
        for name in SNAPSHOT_FILES:
            absent = sum(not snapshot.has(name) for snapshot in self.snapshots)
            if absent:
                lines.append(
                    f"{name} absent in {absent} of {count} snapshots: {_WITHOUT_FILE[name]}"
                )
        for snapshot in self.snapshots:
            for name, problem in snapshot.problems.items():
                lines.append(f"{problem}; until then {_WITHOUT_FILE[name]}")
        return tuple(as_name(line, LONGEST_TEXT) for line in lines)


def most_words(recording: Recording) -> int | None:
    """Where the machine's zones end, None if no snapshot says."""
    files = (snapshot.zoneinfo for snapshot in recording.snapshots)
    zones = (zone for file in files if file is not None for zone in file.zones)
    return max((zone.end_pfn or 0 for zone in zones), default=None)


def shipped_recordings_directory() -> Path | None:
    """Where the recordings that come with the package are, None if they were left out."""
    package = Path(__file__).parent.parent
    places = (package / "data", package.parent / "data")
    return next((directory for directory in places if directory.is_dir()), None)


def _recording_directories() -> tuple[Path, ...]:
    """Where a bare name is looked up; shipped ones first, so that a name means one everywhere."""
    own = os.environ.get(RECORDINGS_VARIABLE)
    shipped = shipped_recordings_directory()
    return (*((shipped,) if shipped else ()), *((Path(own),) if own else ()))


def _names_in(directory: Path) -> set[str]:
    """Names of the recordings in a directory, none where it may not be read."""
    with suppress(OSError):
        return {
            path.name for path in directory.iterdir() if event_files.event_file_of(path) is not None
        }
    return set()


def recording_names() -> tuple[str, ...]:
    """Names that `open_recording` resolves from anywhere."""
    return tuple(sorted(set().union(*map(_names_in, _recording_directories()))))


def open_recording(path: str | Path) -> Recording:
    """Open a recording; events and snapshots are read on first use.

    Args:
        path: a recording's directory, an event file alone (perf.data, trace.dat, their text, also
            as .gz, .xz or .zst, or the columnar form), a directory copied out of tracefs, or the
            name of a shipped recording such as "kbuild". A relative path is looked up where the
            user stands, beside the folder of notebooks that this is in, and in the checkout.

    Raises:
        RecordingError: there is nothing at the path, the directory has no perf.data, or its
            meta.json is damaged or of a newer version.
    """
    place = located(path)
    if not place.is_dir():
        # A bare perf.data is named after its directory, other files after themselves.
        file = place.resolve()
        name = file.parent.name if file.name in event_files.EVENT_FILES else file.name
        file = given(place)
        identities = {file: _identity(file)}
        return Recording(path=place, name=as_name(name), event_file=file, identities=identities)
    event_file = event_files.event_file_of(place)
    if event_file is None:
        raise RecordingError(place, *_what_else(place))
    snapshots, left_alone = snapshots_of(place)
    if event_file != place:
        known = {*event_files.EVENT_FILES, META_FILE, SNAPSHOT_DIRECTORY, STATE_DIRECTORY}
        known |= {*_STATE_FILES}
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        lines = [
            f"{entry.name}: is a link, which is not followed; it is left alone"
            for entry in entries
            if entry.name in known and entry.is_symlink() and entry.name != event_file.name
        ]
        if others := [entry.name for entry in entries if entry.name not in known]:
            more = len(others) - _MOST_NAMED
            names = ", ".join(others[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
            lines.append(f"{names}: no part of a recording; left alone")
        left_alone = (*lines, *left_alone)
    recording = Recording(
        path=place,
        name=as_name(place.resolve().name),
        event_file=event_file,
        meta=read_meta(place / META_FILE),
        snapshots=snapshots,
        left_alone=tuple(as_name(line, LONGEST_TEXT) for line in left_alone),
    )
    read = (*event_files.event_files_of(event_file), *files_of(recording))
    return replace(recording, identities={path: _identity(path) for path in read})


def _identity(path: Path) -> tuple[int, ...]:
    """What a file cannot keep when its content changes, or another file takes its place."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _what_else(directory: Path) -> tuple[str]:
    """What a directory without an event file is, and what can be done with it."""
    with suppress(OSError):
        names = {entry.name for entry in directory.iterdir()}
        if "data" in names and any(name.startswith("data.") for name in names):
            return ("was recorded with perf record --threads; record without it",)
        has_snapshots = any(name.isdigit() for name in names) or SNAPSHOT_DIRECTORY in names
        if names & {"zoneinfo", "buddyinfo", "pagetypeinfo"} or has_snapshots:
            return (
                "holds copies of /proc and no events; join it with a trace by pagealloc attach, "
                "or ask pagealloc explain",
            )
    return (
        f"is a directory without {event_files.EVENT_FILE}; give a recording's directory or an "
        "event file",
    )


def located(path: str | Path) -> Path:
    """Where a path that a user gave leads to."""
    wanted = Path(path).expanduser()
    if is_given(wanted):
        return wanted
    is_name = len(wanted.parts) == 1
    for directory in _recording_directories() if is_name else ():
        if (directory / wanted).exists():
            return directory / wanted
    here, top = Path.cwd(), Path(__file__).parents[2]
    beside = (path.parent for path in (here, *here.parents) if path.name == _NOTEBOOKS)
    checkout = (top,) if (top / _NOTEBOOKS).is_dir() else ()
    folders = () if wanted.is_absolute() else tuple(dict.fromkeys((here, *beside, *checkout)))
    for directory in folders:
        place = directory / wanted
        if place.is_file() or (place.is_dir() and event_files.event_file_of(place) is not None):
            return place
    cut_off = sorted(
        wanted.parent.glob(f".{glob.escape(wanted.name)}.*/{glob.escape(wanted.name)}")
    )
    cut_off = [place for place in cut_off if event_files.event_file_of(place) is not None]
    if cut_off:
        todo = f"what was written until then is in {cut_off[-1]}: give that path"
        raise RecordingError(path, "does not exist: its recorder was cut off", todo=todo)
    names = {*recording_names()}
    if is_name:
        names.update(*map(_names_in, folders))
    near = known_names(str(wanted), sorted(names), "recordings")
    where = f" (looked in {', '.join(map(str, folders))})" if folders else ""
    raise RecordingError(path, f"does not exist{where}", todo=f"give a path, or a name; {near}")


def state_files(directory: Path) -> Iterator[str]:
    """Names of the files beside events and snapshots that a recording's directory has."""
    for name in _STATE_FILES if directory.is_dir() else ():
        if _is_plain(directory / name):
            yield name


def files_of(recording: Recording) -> Iterator[Path]:
    """Files beside the events that a recording is read from; links are none of them."""
    if recording.meta:
        yield recording.path / META_FILE
    yield from (recording.path / name for name in state_files(recording.path))
    yield from state_files_of(recording.path)
    for snapshot in recording.snapshots:
        yield from filter(_is_plain, (snapshot.directory / name for name in KNOWN_FILES))


def _is_plain(file: Path) -> bool:
    return file.is_file() and not file.is_symlink()


_MOST_NAMED = 3


_TIME = re.compile("[0-9]{1,20}")
_LAST_NS = (1 << 63) - 1


def snapshots_of(recording: Path) -> tuple[tuple[Snapshot, ...], tuple[str, ...]]:
    """The snapshots in a directory by time, and what of them is left alone, one line each."""
    directory = recording / SNAPSHOT_DIRECTORY
    if directory.is_symlink() or not directory.is_dir():
        return (), ()
    snapshots: dict[int, Snapshot] = {}
    odd, unknown = [], set()
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        if not _TIME.fullmatch(entry.name) or int(entry.name) > _LAST_NS:
            odd.append(f"{entry.name}: its name is no time in ns; it is ignored")
        elif not entry.is_dir(follow_symlinks=False):
            odd.append(f"{entry.name}: is no directory; it is ignored")
        elif int(entry.name) in snapshots:
            odd.append(f"{entry.name}: another snapshot is of this time; it is ignored")
        else:
            snapshot = Snapshot(time_ns=int(entry.name), directory=directory / entry.name)
            snapshots[snapshot.time_ns] = snapshot
            unknown |= {*snapshot.names()} - {*KNOWN_FILES}
    if unknown:
        odd.append(f"{count_of(len(unknown), 'file')} of other names, such as {min(unknown)}")
    lines = tuple(f"{SNAPSHOT_DIRECTORY}/{line}" for line in odd)
    return tuple(snapshots[time_ns] for time_ns in sorted(snapshots)), lines


def write_meta(directory: Path, meta: Mapping[str, Any]) -> None:
    """Write a recording's meta.json; one that is there stays if this fails."""
    with written_whole(directory / META_FILE) as partial:
        partial.write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")


_KINDS_OF_VALUES: tuple[tuple[tuple[str, ...], Any, str], ...] = (
    (("sysctl", "thp"), dict, "a JSON object"),
    (("profile", "attached"), dict | None, "a JSON object"),
    (("perf", "command", WITHOUT_HOLES), list | None, "a list"),
    (
        ("kpageflags_at_ns", "page_owner_at_ns", "nr_cpus", "start_ns", "end_ns"),
        int | None,
        "a whole number",
    ),
)


def read_meta(path: Path) -> Mapping[str, Any]:
    """Content of meta.json; a newer layout and values of a type that no layout has are refused."""
    if not is_given(path):
        return {}
    todo = "restore the file, or delete it to go on without the recording's settings"
    meta = json_of(text_of(path, "utf-8", todo=todo), path, todo=todo)
    if not isinstance(meta, dict):
        raise RecordingError(path, "is not a JSON object", todo=todo)
    version = meta.get("bundle_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise RecordingError(path, f"bundle_version is {version!r}, not a version", todo=todo)
    if version > RECORDING_VERSION:
        raise RecordingError(
            path,
            f"bundle_version is {version}, this version reads up to {RECORDING_VERSION}",
            todo="update pagealloc_model",
        )
    uname = meta.get("uname")
    if uname is not None and not (
        isinstance(uname, list) and len(uname) >= 3 and all(type(word) is str for word in uname)
    ):
        raise RecordingError(path, "uname is not a list of five strings", todo=todo)
    if uname is not None:
        meta["uname"] = [as_name(word, LONGEST_TEXT) for word in uname]
        meta["uname"][2] = as_word(uname[2])
    for keys, kind, words in _KINDS_OF_VALUES:
        for key in keys:
            if key in meta and not isinstance(meta[key], kind):
                raise RecordingError(path, f"{key} is not {words}", todo=todo)
    nr_cpus = meta.get("nr_cpus")
    if nr_cpus is not None and not 1 <= nr_cpus <= NR_CPUS_MAX:
        what = f"nr_cpus is {nr_cpus}; a machine has 1 to {NR_CPUS_MAX}"
        raise RecordingError(path, what, todo=todo)
    return meta
