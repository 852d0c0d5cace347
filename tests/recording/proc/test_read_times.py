"""read_ns.json of a snapshot."""

from pathlib import Path

import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.proc.counts import format_read_times, parse_read_times

PATH = Path("read_ns.json")


def test_what_is_written_is_read() -> None:
    times = {"buddyinfo": (5, 9), "zoneinfo": (9, 12)}
    assert parse_read_times(format_read_times(times), PATH) == times
    assert parse_read_times("{}", PATH) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ("[1, 2]", "is not a JSON object"),
        ('{"vmstat": [1]}', "'vmstat' has no two times in ns"),
        ('{"vmstat": 7}', "'vmstat' has no two times in ns"),
        ('{"vmstat": [2, 1]}', "'vmstat' has no two times in ns"),
        ('{"vmstat": [-1, 1]}', "'vmstat' has no two times in ns"),
        ('{"vmstat": [true, 1]}', "'vmstat' has no two times in ns"),
        ('{"vmstat": [1.0, 2.0]}', "'vmstat' has no two times in ns"),
        ('{"vmstat": [1, 9223372036854775808]}', "'vmstat' has no two times in ns"),
    ],
)
def test_odd_times_are_refused(text: str, message: str) -> None:
    with pytest.raises(RecordingError, match=message):
        parse_read_times(text, PATH)
