"""Asking for a record of an array before it is needed, so that it is in the cache by then."""

from __future__ import annotations

import numba
import numba.extending
import numpy as np
from llvmlite import ir


def _asked_for_nothing(array: np.ndarray, index: int) -> None:
    """No kernel function: what `prefetch` is without compilation."""


@numba.extending.intrinsic
def _compiled_prefetch(typing_context, array, index):  # noqa: ANN001, ANN202
    """No kernel function: one instruction, which neither reads nor writes and faults nowhere."""
    signature = numba.types.void(array, numba.types.int64)

    def generate(context, builder, signature, arguments):  # noqa: ANN001, ANN202
        given = signature.args[0]
        data = context.make_array(given)(context, builder, arguments[0]).data
        each = context.get_abi_sizeof(context.get_data_type(given.dtype))
        size = context.get_constant(numba.types.int64, each)
        first = builder.ptrtoint(data, ir.IntType(64))
        pointer = ir.IntType(8).as_pointer()
        address = builder.inttoptr(builder.add(first, builder.mul(arguments[1], size)), pointer)
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        asked = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        builder.call(asked, [address, word(1), word(3), word(1)])
        return context.get_dummy_value()

    return signature, generate


prefetch = _asked_for_nothing if numba.config.DISABLE_JIT else _compiled_prefetch
"""prefetch(array, index): ask for a record that will be written; any index is allowed."""
