"""Ways to damage a recording."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

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
_KINDS = (
    *("flip", "byte", "word", "aligned word", "aligned word", "add", "delete", "repeat", "move"),
    *("token", "digit", "shorten"),
)
_DIGITS = (b"0", b"7", b"9", b"64", b"4096", b"999999999")


def damaged(seed: bytes, others: Sequence[bytes], dice: random.Random) -> bytes:
    """A copy with one to eight things wrong with it."""
    data = bytearray(seed)
    for _ in range(1 << dice.randrange(4)):
        if len(data) < 16:
            break
        if dice.random() < 0.1:
            position, other = dice.randrange(len(data)), dice.choice(others)
            start, length = dice.randrange(len(other)), dice.choice((8, 64, 512, 4096))
            data[position : position + dice.choice((0, length))] = other[start : start + length]
        else:
            _damage(data, dice)
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
    return seed[: dice.randrange(len(seed))]


def _damage(data: bytearray, dice: random.Random) -> None:
    """Do one thing to an input of at least 16 bytes; digits are such as a format's offsets."""
    position = dice.randrange(len(data))
    length = dice.choice((1, 4, 8, 16, 64, 256))
    match dice.choice(_KINDS):
        case "flip":
            data[position] ^= 1 << dice.randrange(8)
        case "byte":
            data[position] = dice.randrange(256)
        case "word":
            size = dice.choice((1, 2, 4, 8))
            start = min(position, len(data) - size)
            data[start : start + size] = dice.choice(_WORDS).to_bytes(8, "little")[:size]
        case "aligned word":
            start = dice.randrange(len(data) // 8) * 8
            word = dice.choice((*_WORDS, len(data), len(data) - start, start))
            data[start : start + 8] = word.to_bytes(8, "little")
        case "add":
            data[position] = (data[position] + dice.randint(-16, 16)) % 256
        case "delete":
            del data[position : position + length]
        case "repeat":
            copies = dice.choice((1, 2, 16))
            data[position:position] = data[position : position + length] * copies
        case "move":
            target = dice.randrange(len(data))
            data[target : target + length] = data[position : position + length]
        case "token":
            data[position : position + dice.choice((0, 0, 4, 8))] = dice.choice(_TOKENS)
        case "digit":
            digits = (place for place in range(position, len(data)) if data[place] in b"0123456789")
            for place in islice(digits, 1):
                data[place : place + 1] = dice.choice(_DIGITS)
        case "shorten":
            del data[dice.randrange(16, len(data) + 1) :]
