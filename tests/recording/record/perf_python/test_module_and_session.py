"""Finding perf's module, saying what is lacking, and reading files through a module that can."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.recording.record import perf_python as perf_module
from pagealloc_model.recording.record import perf_python as session
from pagealloc_model.recording.record.perf_python import load_perf_module, module_words
from pagealloc_model.recording.trace.columns import COLUMN_TYPES
from pagealloc_model.recording.trace.perf_data import read_perf_data
from tests import synthetic_perf_data as perf
from tests.recording.record.perf_python.fake_perf_module import Sample, fake_module, reading_module
from tests.synthetic_perf_data import ALLOC, CONTENTION, FREE


@pytest.fixture(autouse=True)
def searched_anew() -> None:
    load_perf_module.cache_clear()


@pytest.fixture
def no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory is the only place to look; returns it."""
    monkeypatch.setattr(perf_module, "_DISTRIBUTION_PLACES", (str(tmp_path),))
    monkeypatch.setattr(perf_module, "_WHATEVER_ITS_VERSION", f"{tmp_path}/perf.cpython-*.so")
    monkeypatch.setattr(perf_module.importlib.util, "find_spec", lambda _: None)
    return tmp_path


def test_modules_that_cannot_be_used(no_module: Path) -> None:
    with pytest.raises(UsageError, match=r"no Python module of perf for Python .*make perf-python"):
        load_perf_module()
    (no_module / "perf.cpython-35-x86_64-linux-gnu.so").touch()
    with pytest.raises(UsageError, match=r"is for Python 3\.5 .*, not for Python 3\.\d+"):
        load_perf_module()

    (no_module / f"perf{sysconfig.get_config_var('EXT_SUFFIX')}").write_text("no library")
    with pytest.raises(UsageError, match=r"cannot be loaded .*make perf-python"):
        load_perf_module()


def test_the_module_of_this_machine() -> None:
    try:
        module = load_perf_module()
    except UsageError as error:
        pytest.skip(str(error))
    assert module is load_perf_module()
    assert re.match(r"\S*/perf\S* \((evsel|parse_events), live", module_words(module))


def test_what_the_state_says(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_module([], by_name=True)
    module.session = object
    monkeypatch.setattr(perf_module, "runs_scripts", lambda: False)
    assert module_words(module) == (
        "/fake/perf.so (parse_events, live and from files); perf script -s does not run Python"
    )


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    attrs = [perf.attr_of(point, [n]) for n, point in enumerate((ALLOC, FREE, CONTENTION), 1)]
    lock = CONTENTION.raw(lock_addr=0xFFFF888000000001, flags=1)
    records = [
        perf.sample(attrs[0], ALLOC.raw(pfn=5, order=2, gfp_flags=0xCC0), number=1, time=1),
        perf.sample(attrs[2], lock, number=3, time=2),
        perf.sample(attrs[1], FREE.raw(pfn=5, order=2), number=2, time=3),
    ]
    return perf.write(tmp_path / "perf.data", attrs, records)


def samples_of(recording: Path) -> list[Sample]:
    """What perf.session hands over for it, the last first."""
    fixed = {"sample_cpu": 0, "sample_tid": 77}
    return [
        Sample(evsel="evsel(kmem:mm_page_free)", sample_time=3, **fixed, pfn=5, order=2),
        Sample(
            evsel="evsel(lock:contention_begin)",
            sample_time=2,
            **fixed,
            lock_addr=0xFFFF888000000001,
            flags=1,
        ),
        Sample(
            evsel="evsel(kmem:mm_page_alloc)",
            sample_time=1,
            **fixed,
            pfn=5,
            order=2,
            gfp_flags=0xCC0,
            migratetype=0,
        ),
        Sample(evsel="evsel(dummy:u)", sample_time=9, **fixed),
    ]


def test_a_file_through_the_module(monkeypatch: pytest.MonkeyPatch, recording: Path) -> None:
    module = reading_module(samples_of(recording))
    monkeypatch.setattr(session, "load_perf_module", lambda: module)
    native, other = read_perf_data(recording), session.read_with_perf_session(recording)
    for name in set(COLUMN_TYPES) - {"in_interrupt"}:
        np.testing.assert_array_equal(getattr(other, name), getattr(native, name), err_msg=name)
    assert other.gfp_bits == native.gfp_bits
    for column, values in native.tables["lock:contention_begin"].items():
        if column != "row":
            shown = other.tables["lock:contention_begin"][column]
            np.testing.assert_array_equal(shown, values)
            assert shown.dtype == values.dtype


def test_a_module_that_only_samples_live(monkeypatch: pytest.MonkeyPatch, recording: Path) -> None:
    monkeypatch.setattr(session, "load_perf_module", lambda: fake_module([], by_name=True))
    with pytest.raises(UsageError, match="samples live only"):
        session.read_with_perf_session(recording)


def test_a_file_that_the_module_refuses(monkeypatch: pytest.MonkeyPatch, recording: Path) -> None:
    def refuse() -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(session, "load_perf_module", lambda: reading_module([], refuse))
    with pytest.raises(RecordingError, match=r"perf's module cannot read it .*Invalid argument"):
        session.read_with_perf_session(recording)
