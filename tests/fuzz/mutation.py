"""Ways to damage a recording."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.fuzz.seeds import FINISHED_ROUND, SAMPLE, records_of

_KEPT_KINDS = (2, 3, 7, SAMPLE, 13, FINISHED_ROUND)
_WORDS = (0, 1, 7, 8, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
_TOKENS = (
    b"0x",
    b"-1",
    b"99999999999999999999999",
    b"kmem:mm_page_alloc: ",
    b" 1.000001: ",
    b"[000]",
    b"pfn=",
    b"gfp_flags=",
    b"PERF_RECORD_LOST lost ",
    b"|__GFP_",
    b"<<",
    b"1.5: ",
    b"\n",
    b"\t",
    b"__data_loc char[] ",
    b"field:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;",
)
Mutation = Callable[[bytearray, random.Random], None]


def damaged(seed: bytes, others: Sequence[bytes], dice: random.Random) -> bytes:
    """A copy with one to eight things wrong with it.

    Args:
        seed: an input.
        others: inputs to take pieces from.
        dice: decides.
    """
    data = bytearray(seed)
    for _ in range(1 << dice.randrange(4)):
        if len(data) < 16:
            break
        if dice.random() < 0.1:
            _splice(data, dice.choice(others), dice)
        else:
            dice.choice(_MUTATIONS)(data, dice)
    return bytes(data)


def with_one_record_damaged(seed: bytes, dice: random.Random) -> bytes:
    """A copy with bytes inside one record wrong, so that it can spoil no other event."""
    records = [place for place in records_of(seed) if place.kind in _KEPT_KINDS]
    bodies = [(start + 8, end) for _, start, end in records if end > start + 8]
    start, end = dice.choice(bodies)
    data = bytearray(seed)
    for _ in range(dice.randint(1, 4)):
        size = min(dice.choice((1, 2, 4, 8)), end - start)
        position = dice.randrange(start, end - size + 1)
        word = dice.choice((dice.getrandbits(64), dice.choice(_WORDS))).to_bytes(8, "little")
        data[position : position + size] = word[:size]
    return bytes(data)


def cut(seed: bytes, dice: random.Random) -> bytes:
    """The beginning of an input."""
    return seed[: dice.randrange(len(seed))]


def _flip(data: bytearray, dice: random.Random) -> None:
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _byte(data: bytearray, dice: random.Random) -> None:
    data[dice.randrange(len(data))] = dice.randrange(256)


def _word(data: bytearray, dice: random.Random) -> None:
    size = dice.choice((1, 2, 4, 8))
    position = dice.randrange(len(data) - size)
    word = dice.choice(_WORDS).to_bytes(8, "little")
    data[position : position + size] = word[:size]


def _aligned_word(data: bytearray, dice: random.Random) -> None:
    position = dice.randrange(len(data) // 8) * 8
    word = dice.choice((*_WORDS, len(data), len(data) - position, position))
    data[position : position + 8] = word.to_bytes(8, "little")


def _add(data: bytearray, dice: random.Random) -> None:
    position = dice.randrange(len(data))
    data[position] = (data[position] + dice.randint(-16, 16)) % 256


def _delete(data: bytearray, dice: random.Random) -> None:
    position, length = _run(data, dice)
    del data[position : position + length]


def _repeat(data: bytearray, dice: random.Random) -> None:
    position, length = _run(data, dice)
    data[position:position] = data[position : position + length] * dice.choice((1, 2, 16))


def _move(data: bytearray, dice: random.Random) -> None:
    position, length = _run(data, dice)
    piece = data[position : position + length]
    target = dice.randrange(len(data))
    data[target : target + length] = piece


def _token(data: bytearray, dice: random.Random) -> None:
    position = dice.randrange(len(data))
    replaced = dice.choice((0, 0, 4, 8))
    data[position : position + replaced] = dice.choice(_TOKENS)


def _digit(data: bytearray, dice: random.Random) -> None:
    """Other digits in a text, such as a format's offsets and sizes."""
    position = dice.randrange(len(data))
    for index in range(position, min(position + 4096, len(data))):
        if 0x30 <= data[index] <= 0x39:
            data[index : index + 1] = dice.choice((b"0", b"7", b"9", b"64", b"4096", b"999999999"))
            return


def _shorten(data: bytearray, dice: random.Random) -> None:
    del data[dice.randrange(16, len(data) + 1) :]


def _splice(data: bytearray, other: bytes, dice: random.Random) -> None:
    position = dice.randrange(len(data))
    start = dice.randrange(len(other))
    length = dice.choice((8, 64, 512, 4096))
    data[position : position + dice.choice((0, length))] = other[start : start + length]


def _run(data: bytearray, dice: random.Random) -> tuple[int, int]:
    return dice.randrange(len(data)), dice.choice((1, 4, 8, 16, 64, 256))


_MUTATIONS: tuple[Mutation, ...] = (
    _flip,
    _byte,
    _word,
    _aligned_word,
    _aligned_word,
    _add,
    _delete,
    _repeat,
    _move,
    _token,
    _digit,
    _shorten,
)
