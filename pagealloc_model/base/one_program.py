"""Kernels compiled as one program: each function once, optimised once, with its entry point.

numba by itself compiles a function anew for every combination of argument types (an int8 read from
a record, an int16, a literal), and optimises and emits it together with all that it calls, at every
depth of the call graph. And it lets every function be called from elsewhere, so that an array stays
seven arguments in each call. Here an inner function is compiled for the types that it declares and
is only lowered; its entry point's library takes in all of them, keeps them to itself, and is the
one that is optimised. All else is numba's; that it has such libraries, and how it finds an array's
element, are insides of it that KNOWN_NUMBA of `jit` have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba import types
from numba.core.codegen import CodeLibrary, JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering
from numba.np import arrayobj


class InnerLibrary(JITCodeLibrary):
    """One function, to be linked into an entry point's library; it is never run by itself.

    Attributes:
        told: what LLVM is told about the function of this name.
    """

    told: tuple[str, tuple[str, ...]] = ("", ())

    def finalize(self) -> None:
        """Nothing may be added from here on; nothing is optimised or emitted."""
        self._finalized = True


class EntryLibrary(JITCodeLibrary):
    """An entry point and all functions it calls, directly or not."""

    def finalize(self) -> None:
        """Link everything, optimise, emit machine code."""
        self._linking_libraries = _called(self._linking_libraries)
        super().finalize()

    def _optimize_final_module(self) -> None:
        told = dict(getattr(library, "told", ("", ())) for library in self._linking_libraries)
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name == "linkonce_odr":
                function.linkage = "internal"
            for attribute in told.get(function.name, ()):
                function.add_function_attribute(attribute)
        super()._optimize_final_module()


def _called(libraries: list[CodeLibrary]) -> list[CodeLibrary]:
    """Libraries and, of inner functions, all libraries below them, each once."""
    found: dict[CodeLibrary, None] = {}

    def add(library: CodeLibrary) -> None:
        if library not in found:
            found[library] = None
            for below in library._linking_libraries if isinstance(library, InnerLibrary) else ():
                add(below)

    for each in libraries:
        add(each)
    return list(found)


@contextmanager
def _indices_from_the_start() -> Iterator[None]:
    """Lower `array[index]` without asking whether the index counts from the array's end."""
    before = arrayobj.fix_integer_index

    def as_it_is(context: Any, builder: Any, given: Any, index: Any, _: Any) -> Any:
        return context.cast(builder, index, given, types.intp if given.signed else types.uintp)

    arrayobj.fix_integer_index = as_it_is
    try:
        yield
    finally:
        arrayobj.fix_integer_index = before


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerGuest(NativeLowering):
    """Lower a caller's function that only kernels call; it comes with their entry points."""

    _name = "lower_guest"

    def run_pass(self, state: Any) -> bool:
        """Make the function's library and let kernels find it."""
        state.library = InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        state["cr"] = lowered = state["cr"]._replace(cfunc=object())
        state.targetctx.insert_user_function(lowered.cfunc, lowered.fndesc, [state.library])
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerInner(LowerGuest):
    """Lower a function of the kernels, whose arrays are apart and whose indices are not below 0."""

    _name = "lower_inner"
    attributes: tuple[str, ...] = ()

    def run_pass(self, state: Any) -> bool:
        """Make the function's library and let other kernels find it."""
        state.flags.noalias = True
        with _indices_from_the_start():
            super().run_pass(state)
        state.library.told = (state["cr"].fndesc.llvm_func_name, self.attributes)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerHot(LowerInner):
    """Lower a function that becomes part of those that call it."""

    _name = "lower_hot"
    attributes = ("alwaysinline",)


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerCold(LowerInner):
    """Lower a function that stays by itself, away from what is run most."""

    _name = "lower_cold"
    attributes = ("noinline", "cold")


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerEntry(NativeLowering):
    """Lower an entry point into a library that optimises all it calls."""

    _name = "lower_entry"

    def run_pass(self, state: Any) -> bool:
        """Make the entry point's library."""
        state.library = EntryLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.flags.noalias = True
        with _indices_from_the_start():
            return super().run_pass(state)


class InnerCompiler(CompilerBase):
    """numba's passes with `LowerInner`."""

    lowering: type = LowerInner

    def define_pipelines(self) -> list[Any]:
        """The one pipeline."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (self.lowering if each is NativeLowering else each, about)
            for each, about in passes.passes
        ]
        passes.finalize()
        return [passes]


class GuestCompiler(InnerCompiler):
    """numba's passes with `LowerGuest`."""

    lowering = LowerGuest


class HotCompiler(InnerCompiler):
    """numba's passes with `LowerHot`."""

    lowering = LowerHot


class ColdCompiler(InnerCompiler):
    """numba's passes with `LowerCold`."""

    lowering = LowerCold


class EntryCompiler(InnerCompiler):
    """numba's passes with `LowerEntry`."""

    lowering = LowerEntry


class InnerDispatcher(CPUDispatcher):
    """A function with one specialisation: parameters declared `int` are int64."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile the function for the types it declares, whatever integers it is called with."""
        _, folded = self._compiler.fold_argument_types(args, kws)
        declared = self.py_func.__annotations__
        names = self._compiler.pysig.parameters
        wanted = tuple(
            _as_declared(declared.get(name), given)
            for name, given in zip(names, folded, strict=True)
        )
        return super().get_call_template(wanted, {})

    def add_overload(self, cres: Any) -> None:
        """Note what was compiled, for kernels alone."""
        self.overloads[tuple(cres.signature.args)] = cres

    def __call__(self, *_: Any, **__: Any) -> Any:
        """There is no machine code that Python could call.

        Raises:
            TypeError: always.
        """
        name = self.py_func.__name__
        raise TypeError(f"{name}: only kernels call it; call {name}.py_func from Python")


def _as_declared(declaration: str | None, given: Any) -> Any:
    plain = types.unliteral(given)
    if declaration == "int" and isinstance(plain, types.Integer | types.Boolean):
        return types.int64
    return plain if declaration == "bool" else given


def compiled_as(function: Any) -> str:
    """What the machine code of a function rests on, beside its Python code.

    That is its module too: code kept on disk finds the function's globals by that name.

    Args:
        function: one of the dispatchers above, or a plain function.
    """
    plain: Callable[..., Any] = getattr(function, "py_func", function)
    compiler = getattr(getattr(function, "_compiler", None), "pipeline_class", None)
    options = sorted(getattr(function, "targetoptions", {}).items())
    declared = sorted(getattr(plain, "__annotations__", {}).items())
    return f"{plain.__module__} {getattr(compiler, '__name__', '')} {options} {declared}"
