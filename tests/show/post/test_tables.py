import pandas as pd

from pagealloc_model.show.post import snapshot_table


def assert_mailable(text: str) -> None:
    assert text.isascii()
    assert "\t" not in text
    assert max(len(line) for line in text.splitlines()) <= 72


def test_snapshot_table_has_a_line_for_every_snapshot() -> None:
    columns = ["time_s", "metric", "scope", "measured", "predicted", "null"]
    rows = [
        (0.5, "free_pages", "zone=Normal", 1000.0, 990.0, 1200.0),
        (1.5, "free_pages", "zone=Normal", 900.0, float("nan"), 1200.0),
    ]
    lines = snapshot_table(pd.DataFrame(rows, columns=columns)).splitlines()
    assert max(map(len, lines)) <= 72
    assert [line.split() for line in lines[-2:]] == [
        ["0.50", "s", "1000", "990", "1200"],
        ["1.50", "s", "900", "NA", "1200"],
    ]
