"""A start image cut into pageblocks of another size than those recorded (S1.12)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import StartImage
from pagealloc_model.base.text import count_of
from pagealloc_model.predicted.start.evidence import frame_count, page_mask
from pagealloc_model.recording.machine import Machine


def recut(machine: Machine, image: StartImage, order: int) -> StartImage:
    """The image with pageblocks of an order, their types from what lies there (S1.12).

    Args:
        machine: with the pageblocks that the image has.
        image: where pages are.
        order: of the new pageblocks.
    """
    length = frame_count(machine.with_pageblock_order(order))
    free, movable = (_of_length(pages, length) for pages in (image.free, image.movable))
    recorded = machine.pageblock_order
    if order < recorded:
        listed = page_mask(length, image.listed)
        types = np.repeat(image.block_types, 1 << (recorded - order))[: length >> order]
        types, changed = _by_contents(types, movable, ~free & ~listed & ~movable)
        what = f"{changed} have another type than the recorded block they lie in, by their pages"
    else:
        types = _of_most(image.block_types, 1 << (order - recorded))
        what = "each has the type of most of the recorded blocks in it"
    count = count_of(len(types), "pageblock")
    line = f"pageblock order {order} in place of {recorded}: of {count}, {what}"
    return replace(
        image, free=free, movable=movable, block_types=types, origin=(*image.origin, line)
    )


def _of_length(pages: np.ndarray, length: int) -> np.ndarray:
    """A mask of page frames with so many of them."""
    return np.concatenate([pages[:length], np.zeros(max(length - len(pages), 0), bool)])


def _by_contents(
    types: np.ndarray, movable: np.ndarray, unmovable: np.ndarray
) -> tuple[np.ndarray, int]:
    """Types of blocks smaller than those recorded, and how many are not their block's."""
    has_movable, has_other = (
        pages.reshape(len(types), -1).any(axis=1) for pages in (movable, unmovable)
    )
    of_kernel = (types == at.UNMOVABLE) | (types == at.RECLAIMABLE)
    found = types.copy()
    found[(types == at.MOVABLE) & has_other & ~has_movable] = at.UNMOVABLE
    found[of_kernel & has_movable & ~has_other] = at.MOVABLE
    return found, int(np.count_nonzero(found != types))


def _of_most(types: np.ndarray, blocks: int) -> np.ndarray:
    """Types of blocks made of so many recorded ones each; of equals the lowest."""
    missing = np.full(-len(types) % blocks, -1, types.dtype)
    parts = np.concatenate([types, missing]).reshape(-1, blocks)
    counts = np.stack([(parts == each).sum(axis=1) for each in range(at.MIGRATETYPES)])
    return np.where(counts.any(axis=0), counts.argmax(axis=0), -1).astype(types.dtype)
