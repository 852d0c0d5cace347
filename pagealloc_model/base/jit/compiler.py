"""Kernels compiled as one program, each function once, into their entry point's library.

numba by itself compiles a function anew for every combination of argument types, optimises it with
all that it calls at every depth of the call graph, and lets it be called from elsewhere. Here an
inner function is only lowered, for the types that it declares; its entry point's library takes all
in, keeps them to itself, and is optimised. All this rests on insides of numba that KNOWN_NUMBA of
`options` have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from numba import types
from numba.core.codegen import CodeLibrary, JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering
from numba.np import arrayobj


class InnerLibrary(JITCodeLibrary):
    """One function, to be linked into an entry point's library; it is never run by itself."""

    attributes: tuple[str, tuple[str, ...]] = ("", ())
    """LLVM's attributes for the function of this name."""

    def finalize(self) -> None:
        """Close the library; nothing is optimised or emitted."""
        self._finalized = True


class EntryLibrary(JITCodeLibrary):
    """An entry point and all functions it calls, directly or not."""

    def finalize(self) -> None:
        """Link everything, each library once, optimise, emit machine code."""
        libraries: dict[CodeLibrary, None] = {}
        waiting = list(self._linking_libraries)[::-1]
        while waiting:
            library = waiting.pop()
            if library not in libraries:
                libraries[library] = None
                if isinstance(library, InnerLibrary):
                    waiting += list(library._linking_libraries)[::-1]
        self._linking_libraries = list(libraries)
        super().finalize()

    def _optimize_final_module(self) -> None:
        attributes = dict(getattr(part, "attributes", ("", ())) for part in self._linking_libraries)
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name == "linkonce_odr":
                function.linkage = "internal"
            for attribute in attributes.get(function.name, ()):
                function.add_function_attribute(attribute)
        super()._optimize_final_module()


@contextmanager
def _indices_from_the_start() -> Iterator[None]:
    """Lower `array[index]` without asking whether the index counts from the array's end."""
    before = arrayobj.fix_integer_index

    def as_it_is(context: Any, builder: Any, kind: Any, index: Any, _: Any) -> Any:
        return context.cast(builder, index, kind, types.intp if kind.signed else types.uintp)

    arrayobj.fix_integer_index = as_it_is
    try:
        yield
    finally:
        arrayobj.fix_integer_index = before


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerKernel(NativeLowering):
    """Lower a function into a library of its own, as its compiler says."""

    _name = "lower_kernel"

    def run_pass(self, state: Any) -> bool:
        """Make the function's library and let other kernels find it."""
        compiler = state.pipeline
        name = state.func_id.func_qualname
        state.library = library = compiler.library(state.targetctx.codegen(), name)
        state.flags.noalias = not compiler.is_guest
        is_entry = isinstance(library, EntryLibrary)
        if is_entry:
            library.enable_object_caching()
        else:
            state.flags.no_compile = True
        with nullcontext() if compiler.is_guest else _indices_from_the_start():
            super().run_pass(state)
        if not is_entry:
            state["cr"] = lowered = state["cr"]._replace(cfunc=object())
            state.targetctx.insert_user_function(lowered.cfunc, lowered.fndesc, [library])
            library.attributes = (lowered.fndesc.llvm_func_name, compiler.attributes)
        return True


class InnerCompiler(CompilerBase):
    """numba's passes with `LowerKernel`, for functions that only kernels call.

    Attributes:
        library: what the function becomes.
        is_guest: it is a caller's; a kernel's arrays are apart, and its indices not below 0.
        attributes: LLVM's, of the function.
    """

    library: type[JITCodeLibrary] = InnerLibrary
    is_guest = False
    attributes: tuple[str, ...] = ()

    def define_pipelines(self) -> list[Any]:
        """The one pipeline."""
        builder = DefaultPassBuilder.define_nopython_pipeline(self.state)
        builder.passes = [
            (LowerKernel if step is NativeLowering else step, about)
            for step, about in builder.passes
        ]
        builder.finalize()
        return [builder]


COMPILERS = {
    role: type(f"{role.title()}Compiler", (InnerCompiler,), about)
    for role, about in {
        "inner": {},
        "guest": {"is_guest": True},
        "hot": {"attributes": ("alwaysinline",)},
        "cold": {"attributes": ("noinline", "cold")},
        "entry": {"library": EntryLibrary},
    }.items()
}


class InnerDispatcher(CPUDispatcher):
    """A function with one specialisation: parameters declared `int` are int64."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile the function for the types it declares, whatever integers it is called with."""
        _, folded = self._compiler.fold_argument_types(args, kws)
        declared, wanted = self.py_func.__annotations__, []
        for name, kind in zip(self._compiler.pysig.parameters, folded, strict=True):
            plain = types.unliteral(kind)
            if declared.get(name) == "int" and isinstance(plain, types.Integer | types.Boolean):
                plain = types.int64
            wanted.append(plain if declared.get(name) in ("int", "bool") else kind)
        return super().get_call_template(tuple(wanted), {})

    def add_overload(self, cres: Any) -> None:
        """Note what was compiled, for kernels alone."""
        self.overloads[tuple(cres.signature.args)] = cres

    def __call__(self, *_: Any, **__: Any) -> Any:
        """There is no machine code that Python could call: a TypeError."""
        name = self.py_func.__name__
        raise TypeError(f"{name}: only kernels call it; call {name}.py_func from Python")


def compiled_as(function: Any) -> str:
    """All that a function's machine code rests on beside its Python code.

    That is its module too: code kept on disk finds the function's globals by that name.
    """
    plain: Callable[..., Any] = getattr(function, "py_func", function)
    compiler = getattr(getattr(function, "_compiler", None), "pipeline_class", None)
    options = sorted(getattr(function, "targetoptions", {}).items())
    declared = sorted(getattr(plain, "__annotations__", {}).items())
    return f"{plain.__module__} {getattr(compiler, '__name__', '')} {options} {declared}"
