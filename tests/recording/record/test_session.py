"""Recordings with a fake perf, and what is said of a finished one."""

from __future__ import annotations

import gzip
import os
import signal
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.recording.record import carried_state
from pagealloc_model.recording.record import session as session_module
from pagealloc_model.recording.record.host import Host
from pagealloc_model.recording.record.perf import (
    RecordOptions,
    default_buffer,
    parse_size,
    why_unusable,
)
from pagealloc_model.recording.record.session import (
    Recorded,
    Workspace,
    read_back,
    record,
    summary_lines,
)
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.show.post import describe_recording
from tests.recording.record.machines import KALLSYMS, PAGE_FLAGS
from tests.synthetic_perf_data import ALLOC, attr_of, sample, trailer, write
from tests.synthetic_perf_data import record as perf_record

Setting = pytest.MonkeyPatch
SLEEP = ("sleep", "10")


def recorded(machine: Host, destination: Path, **options: object) -> Recorded:
    lines: list[str] = []
    request = RecordOptions(destination=destination, **options)  # type: ignore[arg-type]
    return record(request, machine, lines.append, lines.append)


def refusal(machine: Host, destination: Path, **options: object) -> str:
    """The one line of a recording that fails; nothing of it is left, and no probes."""
    before = set(destination.parent.iterdir())
    with pytest.raises(UsageError) as refused:
        recorded(machine, destination, **options)
    assert set(destination.parent.iterdir()) == before
    assert probes_set(machine) == set()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def probes_set(machine: Host) -> set[str]:
    """Probes defined and not removed."""
    defined: set[str] = set()
    for line in (machine.sysfs / "kernel/tracing/kprobe_events").read_text().splitlines():
        kind, _, event = line.split()[0].partition(":")
        (defined.discard if kind == "-" else defined.add)(event)
    return defined


def signalled(
    machine: Host, destination: Path, number: signal.Signals, **options: object
) -> Recorded:
    """A recording that gets a signal as soon as it runs, and again while it finishes.

    Were the signal missed, it would end by itself.
    """

    def send(line: str) -> None:
        if line.startswith(("recording", "finishing")):
            os.kill(os.getpid(), number)

    if "command" not in options:
        options["seconds"] = 10
    request = RecordOptions(destination=destination, **options)  # type: ignore[arg-type]
    return record(request, machine, lambda line: None, send)


def test_a_recording_is_whole(machine: Host, fake_perf: Setting, tmp_path: Path) -> None:
    done = recorded(machine, tmp_path / "mine", command=("true",))
    assert done.command_code == 0
    assert done.ended_by == "command"
    recording = open_recording(tmp_path / "mine")
    assert [snapshot.directory.name for snapshot in recording.snapshots] == sorted(
        path.name for path in (tmp_path / "mine/snapshots").iterdir()
    )
    assert done.snapshots == len(recording.snapshots) >= 4
    assert all(len(snapshot.directory.name) == 20 for snapshot in recording.snapshots)
    assert (recording.snapshots[0].directory / "vmstat").read_text().startswith("nr_free_pages 17")
    assert gzip.decompress((recording.path / "kpageflags.u64.gz").read_bytes()) == PAGE_FLAGS
    meta = recording.meta
    for snapshot in recording.snapshots:
        assert snapshot.read_ns is not None
        names = ["zoneinfo", "vmstat", "buddyinfo", "pressure_memory", "stat", "pagetypeinfo"]
        assert list(snapshot.read_ns) == names
        assert snapshot.pressure == {"some": 5, "full": 3}
        assert snapshot.system_s == 2.5
        assert "btime" not in snapshot.text("stat")
        moments = [snapshot.time_ns, *(time for span in snapshot.read_ns.values() for time in span)]
        assert moments == sorted(moments)
    first, before, after = (snapshot.time_ns for snapshot in recording.snapshots[:3])
    assert first < meta["kpageflags_at_ns"] < before < meta["start_ns"] <= after
    assert meta["command"] == ["true"]
    assert meta["rc"] == 0
    assert meta["clock"] == "CLOCK_MONOTONIC"
    assert meta["perf"][:5] == ["perf", "record", "-a", "-k", "CLOCK_MONOTONIC"]
    assert {"-z=1", "32M"} <= set(meta["perf"])
    assert "pa:pcp_bulk_free" in meta["perf"]
    assert len(meta["probes"]) == 14
    where = meta["perf"].index("pa:block_type")
    assert meta["perf"][where + 1 : where + 3] == ["--filter", "mask & 7"]
    assert "page_owner_at_ns" not in meta
    assert set(tmp_path.iterdir()) == {tmp_path / "bin", tmp_path / "machine", tmp_path / "mine"}
    assert probes_set(machine) == set()


def test_a_machine_is_prepared_between_the_ring_buffers_and_the_first_event(
    machine: Host, fake_perf: Setting, tmp_path: Path
) -> None:
    vmstat = machine.proc / "vmstat"

    def last() -> None:
        vmstat.write_text("nr_free_pages 19\n")
        (machine.proc / "sys/vm/min_free_kbytes").write_text("4096\n")

    there = f"find {tmp_path} -name perf.data -path '*mine*' | grep -q . || exit 3"
    command = ("sh", "-c", f"{there}; echo nr_free_pages 18 > {vmstat}")
    target = tmp_path / "mine"
    recorded(machine, target, command=("true",), set_up=command, before_copies=last)
    recording = open_recording(tmp_path / "mine")
    free = [(snapshot.directory / "vmstat").read_text() for snapshot in recording.snapshots]
    assert [text.split()[1] for text in free[:3]] == ["19", "19", "19"]
    assert recording.meta["sysctl"]["min_free_kbytes"] == "4096"
    assert recording.snapshots[0].time_ns < recording.meta["kpageflags_at_ns"]
    assert recording.meta["kpageflags_at_ns"] < recording.snapshots[1].time_ns
    assert recording.snapshots[1].time_ns < recording.meta["start_ns"]


@pytest.mark.parametrize(("state", "slept"), [("S", True), ("R", False)])
def test_a_recording_begins_when_kswapd_sleeps_or_says_so(
    machine: Host, fake_perf: Setting, tmp_path: Path, state: str, slept: bool
) -> None:
    kswapd = machine.proc / "37/stat"
    kswapd.parent.mkdir()

    def last() -> None:
        kswapd.write_text(f"37 (kswapd0) {state} 2 0")

    kswapd.write_text("37 (kswapd0) S 2 0")
    target = tmp_path / "mine"
    longest_s = 5.0 if slept else 0.3
    options = {"command": ("true",), "before_copies": last, "settle_s": longest_s}
    made = recorded(machine, target, **options)
    assert open_recording(target).meta["kswapd_slept"] is slept
    begun = [line for line in summary_lines(made, None) if line.startswith("began")]
    late = ["began      while kswapd worked: it did not sleep for 0.3 s"]
    assert begun == ([] if slept else late)


def test_it_is_not_waited_for_where_that_is_not_wanted(
    machine: Host, fake_perf: Setting, tmp_path: Path
) -> None:
    kswapd = machine.proc / "37/stat"
    kswapd.parent.mkdir()
    kswapd.write_text("37 (kswapd0) R 2 0")
    recorded(machine, tmp_path / "mine", command=("true",), settle_s=0.0)
    assert "kswapd_slept" not in open_recording(tmp_path / "mine").meta


def test_the_machines_state_is_read_after_the_first_event_may_come_and_before_the_last(
    machine: Host, fake_perf: Setting, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    def read(file: Path) -> None:
        with log.open("a") as lines:
            lines.write(f"{file.parent.name}/{file.name}\n")
        if file.stem == "end":
            raise UsageError("the machine did not hold still")
        file.touch()

    command = ("sh", "-c", f"echo command >> {log}")
    made = recorded(machine, tmp_path / "mine", command=command, read_state=read)
    assert log.read_text().split() == ["states/begin.state", "command", "states/end.state"]
    assert (tmp_path / "mine/states/begin.state").exists()
    assert made.unread_state == "the machine did not hold still"
    assert open_recording(tmp_path / "mine").meta["unread_state"] == made.unread_state
    line = next(line for line in summary_lines(made, None) if "state:" in line)
    assert line == (
        "left out   the machine's state: the machine did not hold still; where pages lie on lists "
        "at the start is drawn at random within their counts"
    )


def test_a_state_of_a_machine_that_goes_on_is_carried_by_all_events(
    machine: Host, fake_perf: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def carried(moving: str, trace: Trace) -> SimpleNamespace:
        asked.append((moving, len(trace) > 0))
        if moving == "end":
            raise UsageError("no event was recorded before the state had been read")
        return SimpleNamespace(carried_words=lambda: "5 pages are not certain")

    monkeypatch.setattr(carried_state, "carried_state", carried)
    monkeypatch.setattr(session_module, "write_state", lambda file, _: file.touch())
    made = recorded(
        machine, tmp_path / "mine", command=("true",), read_state=lambda file: file.stem
    )
    assert asked == [("begin", True), ("end", True)]
    assert [file.name for file in (tmp_path / "mine/states").iterdir()] == ["begin.state"]
    assert "carried    begin.state: 5 pages are not certain" in list(summary_lines(made, None))
    assert made.unread_state.startswith("no event was recorded")


def test_a_state_that_cannot_be_read_is_not_asked_for_again(
    machine: Host, fake_perf: Setting, tmp_path: Path
) -> None:
    asked = []

    def read(file: Path) -> None:
        asked.append(file.stem)
        raise UsageError("no kcore")

    recorded(machine, tmp_path / "mine", command=("true",), read_state=read)
    assert asked == ["begin"]
    assert not (tmp_path / "mine/states").exists()


def test_a_set_up_can_be_interrupted(machine: Host, fake_perf: Setting, tmp_path: Path) -> None:
    command = ("sh", "-c", f"kill -INT {os.getpid()}; exec sleep 600")
    with pytest.raises(KeyboardInterrupt):
        recorded(machine, tmp_path / "mine", seconds=1, set_up=command)
    assert not (tmp_path / "mine").exists()


def test_kernel_symbols_are_copied_for_call_chains_unless_hidden(
    machine: Host, fake_perf: Setting, tmp_path: Path
) -> None:
    recorded(machine, tmp_path / "mine", seconds=0.01)
    with gzip.open(tmp_path / "mine/kallsyms.gz", "rt") as file:
        assert file.read() == KALLSYMS
    recorded(machine, tmp_path / "without locks", seconds=0.01, locks=False)
    recorded(machine, tmp_path / "chains", seconds=0.01, locks=False, call_chains=True)
    assert (tmp_path / "chains/kallsyms.gz").exists()
    assert "kmem:mm_page_free/call-graph=fp/" in open_recording(tmp_path / "chains").meta["perf"]
    (machine.proc / "kallsyms").write_text("0000000000000000 T _text\n")
    recorded(machine, tmp_path / "hidden", seconds=0.01)
    for name in ("without locks", "hidden"):
        assert not (tmp_path / name / "kallsyms.gz").exists()


def test_page_owners_are_copied_where_there_are_any(
    machine: Host, fake_perf: Setting, tmp_path: Path
) -> None:
    machine.debugfs.mkdir()
    (machine.debugfs / "page_owner").write_text("Page allocated via order 0\n")
    recorded(machine, tmp_path / "mine", seconds=0.01)
    with gzip.open(tmp_path / "mine/page_owner.txt.gz", "rt") as file:
        assert file.read() == "Page allocated via order 0\n"
    assert "page_owner_at_ns" in open_recording(tmp_path / "mine").meta


def test_dropped_tracepoints_and_the_command_s_exit_code_are_kept_in_mind(
    machine: Host, fake_perf: Setting, tmp_path: Path
) -> None:
    file = machine.sysfs / "kernel/tracing/available_events"
    file.write_text(file.read_text().replace("cma:cma_release\n", ""))
    done = recorded(machine, tmp_path / "mine", command=("sh", "-c", "exit 3"))
    assert (done.missing_events, done.command_code) == (("cma:cma_release",), 3)
    meta = open_recording(tmp_path / "mine").meta
    assert (meta["missing_events"], meta["rc"]) == (["cma:cma_release"], 3)
    assert "cma:cma_release" not in meta["perf"]


def test_snapshots_and_rates_come_periodically(
    machine: Host, fake_perf: Setting, tmp_path: Path
) -> None:
    lines: list[str] = []
    options = RecordOptions(destination=tmp_path / "mine", seconds=0.5, live_s=0.1, interval_s=0.05)
    done = record(options, machine, lines.append, lambda line: None)
    assert done.ended_by == "seconds"
    assert done.snapshots > 6
    assert lines
    assert all("pages/s" in line and "vmstat" in line for line in lines)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_recording_cleanly(
    machine: Host, fake_perf: Setting, tmp_path: Path, number: signal.Signals
) -> None:
    handler = signal.getsignal(number)
    done = signalled(machine, tmp_path / "mine", number)
    assert done.ended_by == number.name
    assert len(open_recording(tmp_path / "mine").trace) == 2
    assert signal.getsignal(number) is handler
    assert probes_set(machine) == set()


def test_a_command_ends_with_its_recording(
    machine: Host, fake_perf: Setting, tmp_path: Path
) -> None:
    done = signalled(machine, tmp_path / "mine", signal.SIGTERM, command=SLEEP)
    assert done.command_code == -signal.SIGTERM


def test_an_interrupt_before_the_first_event_leaves_nothing(
    machine: Host, fake_perf: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = session_module.copy_pages

    def interrupted(*arguments: object) -> dict[str, int]:
        os.kill(os.getpid(), signal.SIGINT)
        return copy(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(session_module, "copy_pages", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recorded(machine, tmp_path / "mine", seconds=5)
    assert set(tmp_path.iterdir()) == {tmp_path / "bin", tmp_path / "machine"}
    assert probes_set(machine) == set()


def test_what_cannot_be_begun_is_refused(machine: Host, fake_perf: Setting, tmp_path: Path) -> None:
    target, odd = tmp_path / "mine", tmp_path / "bin/odd"
    assert "no such command" in refusal(machine, target, command=("no-such-command",))
    line = refusal(machine, target, seconds=1, set_up=("sh", "-c", "exit 3"))
    assert line == "the set-up ended with exit code 3"
    odd.write_bytes(b"\x7fELF")
    odd.chmod(0o755)
    line = refusal(machine, target, command=("odd",))
    assert line == "odd: cannot be run (Exec format error); nothing was recorded"
    target.mkdir()
    line = refusal(machine, target, seconds=1)
    assert line == f"{target} exists; name a new directory with -o"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("refuse anything", "saying: anything"),
        ("refuse No permission to enable kmem:mm_page_alloc event.", "the kernel refuses perf"),
        ("disk full while recording", "nothing usable was recorded: the disk is full"),
        ("disk full at the end", "nothing usable was recorded: the disk is full"),
    ],
)
def test_a_perf_that_fails_leaves_nothing(
    machine: Host, fake_perf: Setting, tmp_path: Path, how: str, said: str
) -> None:
    fake_perf.setenv("PAGEALLOC_FAKE_PERF", how)
    target = tmp_path / "new/deep/mine"
    with pytest.raises(UsageError, match=said):
        recorded(machine, target, seconds=1)
    assert not (tmp_path / "new").exists() and probes_set(machine) == set()


def test_a_nearly_full_disk_ends_the_recording_in_time(
    machine: Host, fake_perf: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []

    def nearly_full(self: Workspace, recent: int) -> bool:
        answers.append(recent)
        return len(answers) > 3

    monkeypatch.setattr(Workspace, "nearly_full", nearly_full)
    with pytest.raises(UsageError, match="mine can be used, but the disk is nearly full"):
        recorded(machine, tmp_path / "mine", command=SLEEP)
    assert len(open_recording(tmp_path / "mine").trace) == 2
    assert open_recording(tmp_path / "mine").meta["ended_by"] == "disk nearly full"


def test_no_room_at_all(
    machine: Host, fake_perf: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workspace, "nearly_full", lambda self, recent: True)
    line = refusal(machine, tmp_path / "mine", seconds=1)
    assert "No space left on device; free some space" in line


def test_what_perf_recorded_until_somebody_ended_it_is_kept(
    machine: Host, fake_perf: Setting, tmp_path: Path
) -> None:
    fake_perf.setenv("PAGEALLOC_FAKE_PERF", "ended by somebody")
    with pytest.raises(UsageError, match="can be used, but perf ended with code 0"):
        recorded(machine, tmp_path / "mine", seconds=30)
    assert len(open_recording(tmp_path / "mine").trace) == 2
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700


def test_an_anonymous_recording(machine: Host, fake_perf: Setting, tmp_path: Path) -> None:
    this = os.uname()
    named = os.uname_result((this.sysname, "host-of-a-long-name", *this[2:]))
    fake_perf.setattr(os, "uname", lambda: named)
    recorded(machine, tmp_path / "mine", command=("sh", "-c", ":"), anonymise=True)
    recording = open_recording(tmp_path / "mine")
    meta, trace = recording.meta, recording.whole_trace
    assert meta["uname"][1] == "anonymous"
    assert meta["cmdline"] is None
    assert meta["command"] == ["sh"]
    assert meta["provenance"]["source"] == "anonymous"
    assert not (tmp_path / "mine/perf.data").exists()
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o755
    assert os.uname().nodename not in {*trace.comms.values(), *meta["uname"]}


def test_a_recording_that_cannot_be_anonymised_is_kept_and_said(
    machine: Host, fake_perf: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: object, **options: object) -> None:
        raise RecordingError("x", "is odd")

    monkeypatch.setattr("pagealloc_model.recording.trim.trim_recording", failing)
    with pytest.raises(UsageError, match="could not be anonymised"):
        recorded(machine, tmp_path / "mine", seconds=0.01, anonymise=True)
    assert open_recording(tmp_path / "mine").meta["cmdline"] == "root=/dev/secret quiet"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"seconds": 1, "command": ("true",)}, "give one"),
        ({"seconds": 0}, "--seconds 0 is no length of time"),
        ({"seconds": float("nan")}, "--seconds nan"),
        ({"live_s": -1}, "--live -1"),
        ({"interval_s": 0.001}, "give 0.02 seconds or more"),
    ],
)
def test_impossible_options(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        RecordOptions(destination=Path("x"), **options)  # type: ignore[arg-type]


def test_buffer_sizes() -> None:
    assert parse_size("64M") == 64 << 20
    for text in ("0", "3M", "1K", "x", ""):
        with pytest.raises(UsageError, match="power of two"):
            parse_size(text)


NOTHING_LOST = {
    "events": {"kmem:mm_page_alloc": 1000},
    "other_events": {"lock:contention_end": 34},
    "lost": 0,
    "lost_by_cpu": {},
    "provenance": [{"check": "clock", "level": "usable", "found": "one clock"}],
}


def finished(path: Path, **values: object) -> Recorded:
    usual: dict[str, object] = {
        "path": path,
        "seconds": 2.5,
        "ended_by": "command",
        "command_code": 0,
        "snapshots": 5,
        "buffer_bytes": 64 << 20,
        "missing_events": (),
        "unset_probes": (),
    }
    return Recorded(**(usual | values))  # type: ignore[arg-type]


def test_a_recording_that_lost_nothing(tmp_path: Path) -> None:
    (tmp_path / "perf.data").write_bytes(bytes(3 << 20))
    assert list(summary_lines(finished(tmp_path), NOTHING_LOST)) == [
        "command    ended with exit code 0",
        "lost       nothing",
        f"there      {tmp_path}: 2.5 s, 1,034 events, 5 snapshots, 3.0 MiB",
        "believe    can be believed: all 1 checks passed",
        f"see        pagealloc explore {tmp_path}",
    ]


@pytest.mark.parametrize(("share", "advice"), [(0.01, "--buffer 256M"), (0.9, "--buffer 1G")])
def test_losses_by_cpu_and_a_buffer_that_would_do(
    tmp_path: Path, share: float, advice: str
) -> None:
    lossy = {**NOTHING_LOST, "lost": 700, "lost_by_cpu": {"3": {"lost": 700, "share": share}}}
    text = "\n".join(summary_lines(finished(tmp_path), lossy))
    assert f"700 events: CPU 3 700 ({share:.1%})" in text
    assert advice in text


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "perf.data"
    assert why_unusable(file)
    file.write_bytes(b"PERFILE2" + bytes(96))
    assert why_unusable(file)
    write(file, [attr_of(ALLOC, [10])], [])
    assert why_unusable(file) == "has no events"
    write(file, [attr_of(ALLOC, [10])], [sample(attr_of(ALLOC, [10]), bytes(64), number=10)])
    assert why_unusable(file) == ""


def test_a_recording_that_cannot_be_read_back(tmp_path: Path) -> None:
    assert read_back(tmp_path, None) is None


def test_shares_of_losses_are_described(tmp_path: Path) -> None:
    attr = attr_of(ALLOC, [10])
    raw = ALLOC.raw(pfn=5, order=0, gfp_flags=0xC0, migratetype=0)
    samples = [sample(attr, raw, number=10, time=1000, cpu=cpu) for cpu in (0, 1, 1, 1)]
    where = trailer(attr, number=10, time=2000, cpu=1)
    lost = [perf_record(2, struct.pack("<QQ", 10, count) + where) for count in (5, 4)]
    path = write(tmp_path / "perf.data", [attr], [*samples, *lost])
    content = describe_recording(open_recording(path))
    assert content["lost"] == 9
    assert content["lost_by_cpu"] == {"1": {"lost": 9, "share": 0.75}}


@pytest.mark.parametrize(
    ("available_kib", "size"), [(4_000_000, 32), (400_000, 4), (100, 1), (10**9, 64)]
)
def test_the_buffers_take_little_of_the_memory(
    machine: Host, available_kib: int, size: int
) -> None:
    (machine.proc / "meminfo").write_text(f"MemAvailable: {available_kib} kB\n")
    assert default_buffer(machine) == size << 20


def test_owners_are_given_to_links_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []
    monkeypatch.setattr(os, "chown", lambda *words, **how: given.append((words, how)))
    with Workspace(tmp_path / "new/place/mine") as workspace:
        (workspace.recording / "file").write_text("")
        workspace.keep(workspace.recording, (7, 7))
    assert len(given) == 4
    assert all(how == {"follow_symlinks": False} for _, how in given)
