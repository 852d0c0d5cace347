"""Words of 8 bytes at any byte of a buffer, which must extend 8 bytes past the last one's start.

This module imports numba; import it inside functions only.
"""

from __future__ import annotations

import numba
import numba.extending
import numpy as np
from llvmlite import ir

from pagealloc_model.base.jit import entry, inner


def _word_at(data: np.ndarray, position: int) -> int:
    """The int64 at any byte of a uint8 array: what `word_at` is without compilation."""
    if not 0 <= position <= len(data) - 8:
        raise IndexError("a word outside its buffer")
    return int.from_bytes(data[position : position + 8].tobytes(), "little", signed=True)


@numba.extending.intrinsic
def _compiled_word_at(typing_context, data, position):  # noqa: ANN001, ANN202
    """One unaligned load; composing eight bytes, or a view with a stride of 1, is slower."""
    signature = numba.types.int64(data, numba.types.int64)

    def generate(context, builder, signature, arguments):  # noqa: ANN001, ANN202
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte = builder.gep(array.data, [arguments[1]])
        load = builder.load(builder.bitcast(byte, ir.IntType(64).as_pointer()))
        load.align = 1
        return load

    return signature, generate


@inner
def _checked_word_at(data, position):  # noqa: ANN001, ANN202
    """The same within the buffer, else an IndexError: numba's checks do not see the load."""
    if position < 0 or position > len(data) - 8:
        raise IndexError("a word outside its buffer")
    return _compiled_word_at(data, position)


if numba.config.DISABLE_JIT:
    word_at = _word_at
elif numba.config.BOUNDSCHECK:
    word_at = _checked_word_at
else:
    word_at = _compiled_word_at


@entry
def gather_words(data, positions, gathered):  # noqa: ANN001, ANN201
    """Fill `gathered` with the words at `positions`, all of which must lie in the buffer."""
    for index in range(len(positions)):
        gathered[index] = word_at(data, positions[index])
