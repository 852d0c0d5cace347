"""Classes of requests by gfp word."""

import numpy as np
import pytest

from pagealloc_model.measured.measured import REQUEST_CLASSES, request_classes


@pytest.mark.parametrize(
    ("gfp", "order", "expected"),
    [
        (0x1C24CA, 9, "thp"),
        (0x1C20CA, 9, "thp"),
        (0x1C24CA, 4, "movable"),
        (0x820, 0, "atomic"),
        (0x2800, 3, "nowait"),
        (0x100CCA, 0, "movable"),
        (0xCD0, 0, "reclaimable"),
        (0xCE0, 0, "kernel"),
        (0xCC0, 2, "kernel"),
    ],
)
def test_class(gfp: int, order: int, expected: str) -> None:
    code = request_classes(np.array([gfp], np.uint32), np.array([order]), bits={})
    assert REQUEST_CLASSES[code[0]] == expected
