"""Files of events: which of a recording's files it is, and what is known without reading it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagealloc_model.recording.event_files import (
    EVENT_FILES,
    digest_of,
    event_file_of,
    event_files_of,
    has_events,
    is_store,
    read_events,
    size_of,
)
from tests.small_recordings import TimedEvents
from tests.synthetic_perf_data import ALLOC, attr_of, sample, write


def copy_of_tracefs(directory: Path) -> Path:
    (directory / "per_cpu/cpu0").mkdir(parents=True)
    (directory / "per_cpu/cpu0/trace_pipe_raw").write_bytes(b"pages")
    (directory / "trace_clock").write_bytes(b"mono")
    return directory


def test_the_first_of_the_known_names_is_the_event_file(tmp_path: Path) -> None:
    assert event_file_of(tmp_path) is None
    (tmp_path / "perf.data.old").touch()
    assert event_file_of(tmp_path) is None
    for name in reversed(EVENT_FILES):
        (tmp_path / name).write_bytes(b"x")
        assert event_file_of(tmp_path) == tmp_path / name


def test_a_copy_of_tracefs_is_an_event_file_as_a_whole(tmp_path: Path) -> None:
    directory = copy_of_tracefs(tmp_path / "copy")
    (directory / "perf.data").write_bytes(b"")
    assert event_file_of(directory) == directory
    assert {file.name for file in event_files_of(directory)} == {
        *("perf.data", "trace_clock", "trace_pipe_raw")
    }
    assert size_of(directory) == len(b"pages" + b"mono")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "per_cpu").symlink_to(directory / "per_cpu")
    assert event_file_of(linked) is None


def test_links_inside_a_copy_are_not_entered(tmp_path: Path) -> None:
    directory = copy_of_tracefs(tmp_path / "copy")
    before = digest_of(directory), size_of(directory)
    (tmp_path / "secret").write_bytes(b"of another")
    (directory / "link").symlink_to(tmp_path / "secret")
    assert (digest_of(directory), size_of(directory)) == before


@pytest.mark.parametrize("change", ["content", "name"])
def test_a_copy_s_digest_tells_content_and_names(tmp_path: Path, change: str) -> None:
    directory = copy_of_tracefs(tmp_path / "copy")
    before = digest_of(directory)
    clock = directory / "trace_clock"
    if change == "content":
        clock.write_bytes(b"glob")
    else:
        clock.rename(directory / "trace_clocks")
    assert digest_of(directory) != before


def test_a_file_s_digest_is_of_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "perf.data"
    file.write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest_of(file) == known
    assert event_files_of(file) == [file] and size_of(file) == 3
    assert size_of(tmp_path / "none") == 0


def test_what_a_file_begins_with_tells_its_format(tmp_path: Path) -> None:
    """perf.data under the name of text, and perf script's text under perf.data's."""
    attr = attr_of(ALLOC, [1])
    binary = tmp_path / "events.txt"
    write(binary, [attr], [sample(attr, ALLOC.raw(7, pfn=5), number=1, time=1000)], (ALLOC,))
    assert read_events(binary).pfn.tolist() == [5] and has_events(binary)
    events = TimedEvents()
    events.on(1, pid=40).alloc(0x1000)
    assert events.trace(tmp_path).pfn.tolist() == [0x1000]
    named = binary.rename(tmp_path / "perf.data")
    assert read_events(named).pfn.tolist() == [0x1000]
    assert has_events(named) and not is_store(named)


def test_a_perf_data_without_samples_has_no_events(tmp_path: Path) -> None:
    file = tmp_path / "perf.data"
    write(file, [attr_of(ALLOC, [1])], [], (ALLOC,))
    assert not has_events(file)
