"""/proc/vmstat."""

import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.proc.counts import parse_vmstat
from tests.recording.proc.samples_of import RELEASES, sample


@pytest.mark.parametrize("release", RELEASES)
def test_every_line_is_one_counter(release: str) -> None:
    text = sample(release, "vmstat")
    stat = parse_vmstat(text)
    assert len(stat.values) == len(text.splitlines())
    assert stat.get("nr_free_pages") and stat.get("pgfree")


def test_a_counter_the_kernel_lacks_is_none() -> None:
    assert parse_vmstat("pgfree 3\n").get("pgalloc_normal") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no counter found"),
        ("pgfree\n", "line 1: is not a name and a value"),
        ("pgfree 1\npgfree 2\n", "line 2: pgfree appears a second time"),
        ("pgfree 1.5\n", "'1.5' is not a count"),
    ],
)
def test_odd_text_is_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(RecordingError, match=message):
        parse_vmstat(text)
