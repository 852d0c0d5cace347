"""How kernels call one another: an array is handed over as its address and its lengths.

numba hands an array over as seven words (nine with two dimensions) and takes a result through
memory, and asks after every call whether the function failed. Kernels' arrays have no gaps, so that
address and lengths say all, and kernels do not raise. A function that may fail is called in numba's
way: it calls a hook that may, or has a range whose step may be zero, or tests its indices. This
rests on numba's insides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import copy
from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary

from llvmlite import ir as llvm
from numba import types
from numba.core import cgutils
from numba.core.callconv import CPUCallConv
from numba.core.codegen import CodeLibrary
from numba.core.cpu import CPUContext
from numba.core.funcdesc import default_mangler
from numba.core.imputils import user_function

DATA, LENGTHS = 4, 5
"""Places of an array's address and lengths within numba's structure of it."""
FOR_C = "cfunc."
"""What begins numba's names of functions that C may call: they return a result, no status."""
_FAILS = re.compile(r"\bret i32 (?!0\b)")
_never_fails: WeakKeyDictionary[CodeLibrary, bool] = WeakKeyDictionary()

Values = list[Any]
"""Values of LLVM's."""


class MayFail(Exception):
    """A function that was to be called directly holds something that may raise."""


class DirectConvention(CPUCallConv):
    """numba's convention, but for one function that is called directly.

    Attributes:
        passes_on: whether the function would pass on a failure of a function it calls.
        certain: whether what is lowered raises only for what cannot be, such as a range's step 1
            that is zero.
    """

    passes_on = False
    certain = False

    def __init__(self, context: Any, function: Any) -> None:
        super().__init__(context)
        self._function = function

    def return_value(self, builder: Any, retval: Any) -> None:
        """Return a value."""
        if builder.function is self._function:
            builder.ret(retval)
        else:
            super().return_value(builder, retval)

    def return_status_propagate(self, builder: Any, status: Any) -> None:
        """Pass on a failure of a function that never fails: whether it does is asked later."""
        if builder.function is self._function:
            self.passes_on = True
            builder.unreachable()
        else:
            super().return_status_propagate(builder, status)

    def return_user_exc(self, builder: Any, *given: Any, **named: Any) -> None:
        """Raise an exception.

        Raises:
            MayFail: the function is called directly.
        """
        if self.certain:
            builder.unreachable()
        else:
            self._refuse(builder)
            super().return_user_exc(builder, *given, **named)

    def return_dynamic_user_exc(self, builder: Any, *given: Any, **named: Any) -> None:
        """Raise an exception.

        Raises:
            MayFail: the function is called directly.
        """
        self._refuse(builder)
        super().return_dynamic_user_exc(builder, *given, **named)

    def _return_errcode_raw(self, builder: Any, code: Any) -> None:
        self._refuse(builder)
        super()._return_errcode_raw(builder, code)

    def _refuse(self, builder: Any) -> None:
        if builder.function is self._function:
            raise MayFail


class KernelContext(CPUContext):
    """numba's target, for one function of the kernels.

    Attributes:
        convention: of the function, None if it is called in numba's way.
    """

    convention: DirectConvention | None = None

    @classmethod
    def of(cls, context: CPUContext) -> KernelContext:
        """Return a context like another one, which knows all that numba can compile."""
        made: KernelContext = copy(context)
        made.__class__ = cls
        return made

    def load_additional_registries(self) -> None:
        """Take in what was added to what is loaded; numba would import all of it again."""
        for registry in list(self._registries):
            self.install_registry(registry)

    def mangler(self, name: str, types: Any, *, abi_tags: Any = (), uid: Any = None) -> str:
        """Return a name for LLVM: numba's has all types in it, a page of them."""
        told = sha256(f"{types} {abi_tags}".encode()).hexdigest()[:12]
        return default_mangler(name, (), abi_tags=(told,), uid=uid)

    @property
    def call_conv(self) -> CPUCallConv:
        """The function's convention."""
        return self.convention or CPUCallConv(self)


def let_kernels_call(context: Any, handle: Any, descriptor: Any, library: Any) -> None:
    """Tell numba how a function is called."""
    way = direct_call if library.direct else user_function
    made = way(descriptor, [library])
    context._defns[handle].append(made, made.signature)


def direct_call(descriptor: Any, libraries: list[CodeLibrary]) -> Callable[..., Any]:
    """Return what numba calls to lower a direct call, given whole arguments."""

    def call(context: Any, builder: Any, _: Any, given: Any, loc: Any = None) -> Any:
        spread = [
            value
            for kind, whole in zip(descriptor.argtypes, given, strict=True)
            for value in parts(context, builder, kind, whole)
        ]
        return called_directly(context, builder, descriptor, spread)

    call.signature = descriptor.argtypes  # type: ignore[attr-defined]
    call.libs = tuple(libraries)  # type: ignore[attr-defined]
    call.called_directly = descriptor  # type: ignore[attr-defined]
    return call


def called_directly(context: Any, builder: Any, descriptor: Any, spread: Values) -> Any:
    """Lower a direct call; return what it returns.

    Args:
        context: numba's target.
        builder: where the call is written.
        descriptor: numba's of the function.
        spread: parts of its arguments, one after the other.
    """
    function = declared(context, builder.module, descriptor)
    returned = builder.call(function, spread)
    return context.get_returned_value(builder, descriptor.restype, returned)


def declared(context: Any, module: Any, descriptor: Any) -> Any:
    """Return LLVM's declaration of a function that is called directly."""
    name = descriptor.mangled_name
    if name in module.globals:
        return module.globals[name]
    kinds = [each for kind in descriptor.argtypes for each in part_types(context, kind)]
    returned = context.data_model_manager[descriptor.restype].get_return_type()
    function = llvm.Function(module, llvm.FunctionType(returned, kinds), name)
    for argument in function.args if descriptor.noalias else ():
        if isinstance(argument.type, llvm.PointerType):
            argument.add_attribute("captures(none)")
            argument.add_attribute("noalias")
    if descriptor.inline:
        function.attributes.add("alwaysinline")
    return function


def is_dense(kind: Any) -> bool:
    """Whether a type is that of an array without gaps."""
    return isinstance(kind, types.Array) and kind.layout == "C"


def part_types(context: Any, kind: Any) -> list[Any]:
    """Types of a value's parts."""
    if is_dense(kind):
        return [context.get_data_type(kind.dtype).as_pointer(), *[cgutils.intp_t] * kind.ndim]
    if isinstance(kind, types.BaseTuple):
        return [each for element in kind for each in part_types(context, element)]
    return list(context.get_arg_packer([kind]).argument_types)


def parts(context: Any, builder: Any, kind: Any, whole: Any) -> Values:
    """Parts of a value: what is handed over of it."""
    if is_dense(kind):
        lengths = range(kind.ndim)
        return [
            builder.extract_value(whole, DATA),
            *[builder.extract_value(whole, (LENGTHS, dimension)) for dimension in lengths],
        ]
    if isinstance(kind, types.BaseTuple):
        return [
            part
            for place, element in enumerate(kind)
            for part in parts(context, builder, element, builder.extract_value(whole, place))
        ]
    return list(context.get_arg_packer([kind]).as_arguments(builder, [whole]))


def whole_of(context: Any, builder: Any, kind: Any, spread: Iterator[Any]) -> Any:
    """The value that has parts which come next."""
    if is_dense(kind):
        return _array(context, builder, kind, spread)
    if isinstance(kind, types.BaseTuple):
        whole = llvm.Constant(context.get_value_type(kind), llvm.Undefined)
        for place, element in enumerate(kind):
            value = whole_of(context, builder, element, spread)
            whole = builder.insert_value(whole, value, place)
        return whole
    packer = context.get_arg_packer([kind])
    given = [next(spread) for _ in packer.argument_types]
    return packer.from_arguments(builder, given)[0]


def _array(context: Any, builder: Any, kind: Any, spread: Iterator[Any]) -> Any:
    data, lengths = next(spread), [next(spread) for _ in range(kind.ndim)]
    step = context.get_constant(
        types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype))
    )
    structure = context.get_value_type(kind)
    nobody = llvm.Constant(structure.elements[0], None)
    steps = [step]
    for length in reversed(lengths[1:]):
        steps.insert(0, builder.mul(steps[0], length))
    count = lengths[0]
    for length in lengths[1:]:
        count = builder.mul(count, length)
    whole = llvm.Constant(structure, llvm.Undefined)
    for place, value in enumerate((nobody, nobody, count, step, data)):
        whole = builder.insert_value(whole, value, place)
    for dimension in range(kind.ndim):
        whole = builder.insert_value(whole, lengths[dimension], (LENGTHS, dimension))
        whole = builder.insert_value(whole, steps[dimension], (LENGTHS + 1, dimension))
    return whole


def never_fails(library: CodeLibrary) -> bool:
    """Whether no function of a library, of ours or of numba's small ones, returns a failure."""
    direct = getattr(library, "direct", None)
    if direct is not None:
        return bool(direct)
    if library not in _never_fails:
        _never_fails[library] = not any(
            _FAILS.search(str(function))
            for function in library.get_defined_functions()
            if not function.name.startswith(FOR_C)
        )
    return _never_fails[library]
