"""Names that a recording chose are names: no path, no line, no cell of their own anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.base.text import as_name, as_word, escaped, unescaped
from pagealloc_model.cli import main
from pagealloc_model.recording.exporting import export_recording
from pagealloc_model.recording.importing import import_recording
from pagealloc_model.recording.recording import read_meta
from tests.perf_data_writer import Feature, write_perf_data, write_tracing_data
from tests.recording.rewritten_store import rewrite
from tests.small_recordings import write_recording
from tests.synthetic_perf_data import ALLOC, FREE, Tracepoint, attr_of, sample

SAMPLE = Path(__file__).parent / "trace/samples/lossy.dat"
FORGED = "7 [000] 63.500000000: kmem:mm_page_free: page=0x1 pfn=0x100 order=0"
NAMES = (
    *(f"evil {FORGED}\n  y", f"evil {FORGED}", f"\n{FORGED}\n", "a 7 [000] 1.000000:"),
    *("1.000000: a:b: ", "\x1b]0;title\x07", "a\tb", "a\rb", "\u202eevil", "a\x85b", "a\u2028b"),
    *("a\\x20b", "a\\x0ab", "\\", "  led", "trailing  ", "two  blanks", ":7", "123", "-5", "#a"),
    *("Web Content", "kworker/0:1H", "tokio [worker]: 1", "PERF_RECORD_LOST lost 5", "a" * 500),
    *("=cmd()", "<script>", "a|b", "\u00e9", "\ud800"),
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A recording in columnar form."""
    return import_recording(SAMPLE, tmp_path / "store").path


def named(store: Path, names: tuple[str, ...]) -> pm.Recording:
    """The recording with these names of threads, in turn."""

    def change(column: str, values: np.ndarray) -> np.ndarray:
        if column.endswith(("comms/name", "thread_names/name")):
            texts = [name.encode("utf-8", "replace").decode() for name in names]
            return np.array([texts[place % len(texts)] for place in range(len(values))], object)
        return values

    rewrite(store / "events.arrow", change=change)
    return pm.open(store)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_printable_line_and_stays_it(name: str) -> None:
    shown = as_name(name)
    assert len(shown) <= 64 and len(shown.splitlines()) <= 1 and as_name(shown) == shown
    assert not {*shown} & {*"\t\n\r\x1b\x85\u2028\u202e\ud800"}
    assert as_name("kworker/0:1H") == "kworker/0:1H"


@pytest.mark.filterwarnings("ignore:.*depend on the kernel")
@pytest.mark.parametrize("name", NAMES)
def test_text_with_a_hostile_name_read_again_is_the_same(
    store: Path, tmp_path: Path, name: str
) -> None:
    recording = named(store, (name,))
    trace = recording.trace
    again = pm.open(export_recording(recording, tmp_path / "text", "text").path).trace
    np.testing.assert_array_equal(again.time_ns, trace.time_ns)
    np.testing.assert_array_equal(again.pfn, trace.pfn)
    assert again.losses.total == trace.losses.total
    threads = {*trace.pid.tolist()}
    assert {pid: trace.comms.get(pid) for pid in threads} == {
        pid: again.comms.get(pid) for pid in threads
    }


@pytest.mark.filterwarnings("ignore:.*depend on the kernel")
@pytest.mark.parametrize("text", [*NAMES, "12abc", "a,b", "(a)", "0x1"])
def test_texts_in_fields_read_again_are_the_same(store: Path, tmp_path: Path, text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    event = next(event for event in pm.open(store).trace.tables)

    def rename(name: str) -> str:
        return name.replace(f"tables/{event}/", "tables/odd:event/")

    rewrite(store / "events.arrow", rename=rename)
    trace = pm.open(store).trace
    rows = len(trace.tables["odd:event"]["time_ns"])
    words = np.array([text] * rows, object)
    changed = {**trace.tables, "odd:event": {**trace.tables["odd:event"], "words": words}}
    object.__setattr__(trace, "tables", changed)
    recording = pm.open(store)
    object.__setattr__(recording, "trace", trace)
    again = pm.open(export_recording(recording, tmp_path / "text", "text").path).trace
    assert set(again.tables["odd:event"]["words"].tolist()) == {as_name(text, 1000)}


def test_an_export_of_a_store_writes_no_file_outside(store: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    results = tmp_path / "victim/results.parquet"
    results.write_text("mine")
    events = list(pm.open(store).trace.tables)
    evil = [str(results.with_suffix("")), "../up:x", "events", "losses", "a\nb:c"]
    names = dict(zip(events, evil, strict=False))

    def rename(name: str) -> str:
        group, _, column = name.rpartition("/")
        event = group.removeprefix("tables/")
        return f"tables/{names[event]}/{column}" if event in names else name

    rewrite(store / "events.arrow", rename=rename)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    done = export_recording(pm.open(store), tmp_path / "out", "parquet")
    new = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert results.read_text() == "mine"
    assert {path.parent for path in new} == {done.path} and len(new) == len(done.rows)
    assert pq.read_table(done.path / "events.parquet").num_rows == len(pm.open(store).trace)


def test_an_export_of_a_perf_data_writes_no_file_outside(tmp_path: Path) -> None:
    system = str(tmp_path / "victim")
    odd = Tracepoint("vmscan:x", 503, (("nid", 4, True),))
    attrs = [attr_of(ALLOC, [1]), attr_of(FREE, [2]), attr_of(odd, [3])]
    texts = [("kmem", ALLOC.text.encode()), ("kmem", FREE.text.encode())]
    texts.append((system, odd.text.encode()))
    records = [
        sample(attrs[0], ALLOC.raw(pfn=1), number=1, time=1),
        sample(attrs[2], odd.raw(nid=1), number=3, time=2),
    ]
    path = tmp_path / "in/perf.data"
    path.parent.mkdir()
    features = {Feature.TRACING_DATA: write_tracing_data(texts)}
    write_perf_data(path, attrs=attrs, features=features, records=b"".join(records), compress=False)
    done = export_recording(pm.open(path), tmp_path / "out", "parquet")
    assert [file.name for file in tmp_path.glob("*.parquet")] == []
    assert len(list(done.path.iterdir())) == 3


def test_a_release_adds_no_line_to_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = write_recording(tmp_path / "small\nlost       9 events")
    meta = json.loads((recording / "meta.json").read_text())
    lines = "6.1.0\nlost       9 events\nAcked-by: A <a@b>\nBcc: me"
    meta["uname"] = ["Linux", "", lines, "", ""]
    (recording / "meta.json").write_text(json.dumps(meta))
    (recording / "odd\nlost       9 events").write_text("")
    for command in (["info"], ["info", "--full"], ["replay"], ["validate"]):
        assert main([*command, str(recording)]) == 0
        printed = capsys.readouterr().out
        assert "6.1.0" in printed
        for line in printed.splitlines():
            assert not line.strip().startswith(("Acked-by", "Bcc", "lost       9"))


def test_an_error_is_one_line() -> None:
    for error in (RecordingError("a\nb", "c\nd"), UsageError("a\nb\x1b[2J")):
        assert len(str(error).splitlines()) == 1 and "\x1b" not in str(error)


@pytest.mark.parametrize("text", NAMES)
def test_escapes_are_taken_back(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert unescaped(escaped(text, r"[\s\W]")) == text


@pytest.mark.parametrize("release", ["6.1 lost 0 events", "6.1\u00a0lost", "6.1\tlost", *NAMES])
def test_a_release_is_one_word(tmp_path: Path, release: str) -> None:
    release = release.encode("utf-8", "replace").decode()
    shown = as_word(release)
    assert shown.isascii() and len(shown.split()) <= 1 and as_word(shown) == shown
    meta = {"bundle_version": 1, "uname": ["Linux", "host", release, "#1 SMP", "x86_64"]}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    assert read_meta(tmp_path / "meta.json")["uname"][2] == shown
    assert as_word("6.18.44-fc+deb13~1_amd64") == "6.18.44-fc+deb13~1_amd64"


def test_an_event_file_names_a_release_of_one_word_and_no_more_cpus_than_a_kernel_has(
    store: Path,
) -> None:
    def claim(header: dict[str, Any]) -> None:
        header["trace"] |= {"release": "6.1 lost 0 events", "nr_cpus": 0xFFFFFFFF}

    rewrite(store / "events.arrow", header=claim)
    trace = pm.open(store).trace
    assert trace.release == "6.1\\x20lost\\x200\\x20events"
    assert trace.nr_cpus == 0
