"""Sweeps on real Dask clusters: processes that are killed, that lack recordings, that go away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from fsspec.implementations.memory import MemoryFile

import pagealloc_model as pm
from pagealloc_model.base.errors import ClusterError, RecordingError, UsageError
from pagealloc_model.sweeps import records as cluster_module
from tests.small_recordings import write_recording

BATCHES = list(range(1, 25))
MADE_ANEW = ["seconds", "finished"]
START_CLUSTER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    made = LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1",
                        dashboard_address=None, worker_dashboard_address=None)
    print(made.scheduler_address, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> pm.Recording:
    return pm.open(write_recording(tmp_path_factory.mktemp("clusters") / "small"))


@pytest.fixture
def workers() -> Iterator[Client]:
    """A client of a cluster of two worker processes."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            worker_dashboard_address=None,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def by_threads(small: pm.Recording) -> pd.DataFrame:
    return pm.sweep([small], vary={"pcp_batch": BATCHES}, seeds=(0, 1), cache=False).rows


def assert_same_rows(one: pd.DataFrame, other: pd.DataFrame) -> None:
    columns = [name for name in one.columns if name not in MADE_ANEW]
    assert other["key"].is_unique
    pd.testing.assert_frame_equal(one[columns], other[columns])


def swept_by(
    client: Client | str, recording: pm.Recording | str, progress: Callable[[float], None] | None
) -> pd.DataFrame:
    """The rows that a cluster makes of the sweep that `by_threads` is."""
    vary = {"pcp_batch": BATCHES}
    return pm.sweep(
        [recording], vary=vary, seeds=(0, 1), client=client, cache=False, progress=progress
    ).rows


def test_a_cluster_makes_the_rows_that_threads_make_also_when_a_worker_is_killed(
    small: pm.Recording, by_threads: pd.DataFrame, workers: Client
) -> None:
    assert_same_rows(by_threads, swept_by(workers.scheduler.address, small, None))
    processes = list(workers.run(os.getpid).values())
    killed: list[int] = []

    def kill_one(share: float) -> None:
        if share > 0.25 and not killed:
            killed.append(processes[0])
            os.kill(processes[0], signal.SIGKILL)

    rows = swept_by(workers, small, kill_one)
    assert killed
    assert_same_rows(by_threads, rows)


def test_points_that_die_with_their_workers_after_they_are_finished_are_made_again(
    small: pm.Recording, by_threads: pd.DataFrame, workers: Client
) -> None:
    killed: list[int] = []

    def kill_all(share: float) -> None:
        if share > 0.25 and not killed:
            killed.extend(workers.run(os.getpid).values())
            for process in killed:
                os.kill(process, signal.SIGKILL)
            while workers.nthreads():
                time.sleep(0.001)

    rows = swept_by(workers, f"file://{small.path}", kill_all)
    assert killed
    own = ["recording_sha256", "key", *MADE_ANEW]
    pd.testing.assert_frame_equal(rows.drop(columns=own), by_threads.drop(columns=own))


def put_in_memory(files: dict[str, bytes]) -> None:
    """Fill the in-memory file system of this process."""
    for name, content in files.items():
        fsspec.filesystem("memory").pipe_file(f"/recordings/small/{name}", content)


def test_a_worker_without_the_recording_leaves_it_to_others_and_none_is_an_error(
    small: pm.Recording, by_threads: pd.DataFrame, workers: Client
) -> None:
    files = {
        str(file.relative_to(small.path)): file.read_bytes()
        for file in small.path.rglob("*")
        if file.is_file()
    }
    put_in_memory(files)
    place = "memory://recordings/small"
    vary = {"pcp_batch": BATCHES[:4]}
    nowhere = pm.sweep([place], vary=vary, client=workers, cache=False)
    assert len(nowhere.failed) == 4
    for error in nowhere.failed["error"]:
        assert error.startswith("no worker can read it; tcp://127.0.0.1:")
        assert "memory://recordings/small: does not exist" in error
    has_it = next(iter(workers.nthreads()))
    workers.run(put_in_memory, files, workers=[has_it])
    result = pm.sweep([place], vary=vary, client=workers, cache=False)
    own = ["recording_sha256", "key", *MADE_ANEW]
    expected = by_threads[(by_threads["seed"] == 0) & by_threads["pcp_batch"].isin(BATCHES[:4])]
    pd.testing.assert_frame_equal(result.rows.drop(columns=own), expected.drop(columns=own))


def test_a_file_whose_name_leads_out_of_its_recording_is_not_fetched() -> None:
    system, path = fsspec.filesystem("memory"), "/recordings/evil/../../perf.data"
    system.store[path] = MemoryFile(system, path, b"x")
    with pytest.raises(RecordingError, match=r"leads out of it: \.\./\.\./perf"):
        cluster_module._stored("memory://recordings/evil")
    del system.store[path]


def test_workers_with_another_version_are_refused(
    small: pm.Recording, workers: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "model_fingerprint", lambda: "another")
    with pytest.raises(ClusterError, match="runs another version of pagealloc_model"):
        pm.sweep([small], client=workers, cache=False)


def test_a_scheduler_that_goes_away_ends_the_sweep_and_what_is_finished_is_kept(
    small: pm.Recording, by_threads: pd.DataFrame, tmp_path: Path
) -> None:
    script = tmp_path / "cluster.py"
    script.write_text(START_CLUSTER)
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()

        def kill_all(share: float) -> None:
            if share > 0.25 and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

        vary = {"pcp_batch": BATCHES}
        cache = tmp_path / "points"
        with pytest.raises(ClusterError, match=r"scheduler tcp://127.0.0.1:\d+ went away after"):
            pm.sweep(
                [small], vary=vary, seeds=(0, 1), client=address, cache=cache, progress=kill_all
            )
    points = len(list(cache.rglob("*.json")))
    assert 0 < points < 2 * len(BATCHES)
    rest = pm.sweep([small], vary=vary, seeds=(0, 1), cache=cache)
    assert rest.reused == points
    assert_same_rows(by_threads, rest.rows)


def test_a_scheduler_that_is_not_there_is_named(
    small: pm.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "CONNECT_S", 1)
    with pytest.raises(ClusterError, match=r"scheduler tcp://127\.0\.0\.1:9: cannot be reached"):
        pm.sweep([small], client="tcp://127.0.0.1:9", cache=False)
    with pytest.raises(UsageError, match="workers are the cluster's own"):
        pm.sweep([small], client="tcp://127.0.0.1:9", workers=2, cache=False)
    for odd in ("nonsense://x", "../x"):
        with pytest.raises(ClusterError, match=f"scheduler {odd}: cannot be reached"):
            pm.sweep([small], client=odd, cache=False)


def test_a_link_in_a_folder_of_recordings_is_not_followed(
    small: pm.Recording, tmp_path: Path
) -> None:
    (tmp_path / "host").symlink_to(small.path)
    with pytest.raises(RecordingError, match="host: is a link in a folder of recordings"):
        pm.sweep([tmp_path], cache=False)
    assert len(pm.sweep([tmp_path / "host"], cache=False).rows) == 1
