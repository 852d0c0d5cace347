"""How kernels' functions become LLVM's: with short ways for what they consist of.

numba writes a variable of one block to the stack for the next, all words of an array whenever an
element is read, and every argument of a call word by word. LLVM takes all that away again, but it
is first written and read as text: 16 MB for the event loop. Here a variable that is assigned once
is a value, `array[index]` takes the array's address, and arguments that are handed on stay as they
are. All else is lowered by numba. This rests on its insides.
"""

from __future__ import annotations

from typing import Any

from llvmlite.ir import IRBuilder
from numba import types
from numba.core import ir
from numba.core.analysis import compute_cfg_from_blocks, compute_use_defs
from numba.core.errors import LoweringError, new_error_context
from numba.core.ir_utils import find_const, get_definition, guard
from numba.core.lowering import Lower
from numba.np.arrayobj import load_item, store_item

from pagealloc_model.base.kernel_calls import (
    DirectConvention,
    MayFail,
    Values,
    called_directly,
    declared,
    is_dense,
    never_fails,
    part_types,
    parts,
    whole_of,
)


class KernelLower(Lower):
    """From a function's typed code to LLVM's, by numba's way to call it.

    Where indices are tested, arrays are read and written by numba.
    """

    def init(self) -> None:
        """Begin, with nothing known."""
        self._parts: dict[str, Values] = {}
        self._short = not self.flags.boundscheck
        super().init()

    def _find_singly_assigned_variable(self) -> None:
        """Find the variables that are values; numba's are those used in one block only."""
        if self._short:
            self._singly_assigned_vars = _assigned_once(self.func_ir.blocks)
            self._blk_local_varmap = {}
        else:
            super()._find_singly_assigned_variable()

    def lower_block(self, block: ir.Block) -> None:
        """Lower a block; an error says in which line it is."""
        self.pre_block(block)
        for statement in block.body:
            self.loc = statement.loc
            try:
                self.lower_inst(statement)
            except MayFail:
                raise
            except Exception:
                with new_error_context(
                    'lowering "{inst}" at {loc}',
                    inst=statement,
                    loc=self.loc,
                    errcls_=lambda *given, **named: LoweringError(*given, loc=self.loc, **named),
                ):
                    raise
        self.post_block(block)

    def lower_inst(self, inst: Any) -> None:
        """Lower a statement; numba would also make a text of it, which nobody reads."""
        if isinstance(inst, ir.Assign):
            value = self.lower_assign(self.typeof(inst.target.name), inst)
            if value is not None:
                self.storevar(value, inst.target.name)
        elif isinstance(inst, ir.StaticSetItem) and self._is_element(inst.target, inst.index_var):
            signature = self.fndesc.calltypes[inst]
            self.lower_setitem(inst.target, inst.index_var, inst.value, signature)
        else:
            super().lower_inst(inst)

    def lower_assign(self, ty: Any, inst: Any) -> Any:
        """Lower an assignment; return its value, None if the value's parts are known instead."""
        value, name = inst.value, inst.target.name
        if isinstance(ty, types.Dispatcher):
            return self.context.get_dummy_value()
        if self._short and name in self._singly_assigned_vars and _has_parts(ty):
            found = self._found_parts(ty, value)
            if found is not None:
                self._parts[name] = found
                return None
        if isinstance(value, ir.Arg):
            self._make_whole(value.index)
        return super().lower_assign(ty, inst)

    def _found_parts(self, kind: Any, value: Any) -> Values | None:
        """Parts of what is assigned, None if they are not known."""
        if isinstance(value, ir.Arg):
            if self.typeof(f"arg.{value.name}") != kind:
                return None
            return self._parts_of_argument(kind, value.index)
        if isinstance(value, ir.Var):
            return self._parts.get(value.name) if self.typeof(value.name) == kind else None
        if isinstance(value, ir.Expr) and value.op == "getattr" and value.value.name in self._parts:
            above = self.typeof(value.value.name)
            place = above.fields.index(value.attr) if isinstance(above, types.BaseNamedTuple) else 0
            if not isinstance(above, types.BaseNamedTuple) or above[place] != kind:
                return None
            before = sum(len(part_types(self.context, each)) for each in above.types[:place])
            length = len(part_types(self.context, kind))
            return self._parts[value.value.name][before : before + length]
        return None

    def _parts_of_argument(self, kind: Any, place: int) -> Values | None:
        return parts(self.context, self.builder, kind, self.fnargs[place])

    def _make_whole(self, place: int) -> None:
        """Make an argument from its parts; it came as a whole."""

    def loadvar(self, name: str) -> Any:
        """Return a variable's value."""
        if name in self._parts:
            spread = iter(self._parts[name])
            return whole_of(self.context, self.builder, self.typeof(name), spread)
        return super().loadvar(name)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """Store a value; numba would load what was there before, to count references."""
        if name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self.builder.store(value, self.getvar(name))

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """Lower an expression."""
        if expr.op == "static_getitem" and self._is_element(expr.value, expr.index_var):
            signature = self.fndesc.calltypes[expr]
            return self.lower_getitem(resty, expr, expr.value, expr.index_var, signature)
        return super().lower_expr(resty, expr)

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        """Lower `value[index]`."""
        if not self._is_element(value, index):
            return super().lower_getitem(resty, expr, value, index, signature)
        kind = self.typeof(value.name)
        read = load_item(self.context, self.builder, kind, self._address(kind, value, index))
        return self.context.cast(self.builder, read, signature.return_type, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """Lower `target[index] = value`."""
        kind = self.typeof(target_var.name)
        given = types.unliteral(self.typeof(value_var.name))
        scalars = types.Number | types.Boolean
        if not (
            self._is_element(target_var, index_var)
            and isinstance(kind.dtype, scalars)
            and isinstance(given, scalars)
        ):
            return super().lower_setitem(target_var, index_var, value_var, signature)
        value = self.context.cast(self.builder, self._cast_var(value_var, given), given, kind.dtype)
        address = self._address(kind, target_var, index_var)
        store_item(self.context, self.builder, kind, value, address)
        return None

    def _is_element(self, array: Any, index: Any) -> bool:
        """Whether one element of an array without gaps is meant."""
        if not self._short or index is None:
            return False
        kind, by = self.typeof(array.name), self.typeof(index.name)
        numbers = tuple(by) if isinstance(by, types.BaseTuple) else (by,)
        return (
            is_dense(kind)
            and len(numbers) == kind.ndim
            and all(isinstance(each, types.Integer) for each in numbers)
        )

    def _address(self, kind: Any, array: Any, index: Any) -> Any:
        """Where an array's element lies; its indices do not count from the array's end."""
        data, *lengths = self._spread(array.name)
        by, given = self.typeof(index.name), self.loadvar(index.name)
        if isinstance(by, types.BaseTuple):
            numbers = [
                self._index(each, self.builder.extract_value(given, place))
                for place, each in enumerate(by)
            ]
        else:
            numbers = [self._index(by, given)]
        place = numbers[0]
        for number, length in zip(numbers[1:], lengths[1:], strict=True):
            place = self.builder.add(self.builder.mul(place, length), number)
        return self.builder.gep(data, [place])

    def _index(self, kind: Any, value: Any) -> Any:
        plain = types.unliteral(kind)
        value = self.context.cast(self.builder, value, kind, plain)
        wide = types.intp if plain.signed else types.uintp
        return self.context.cast(self.builder, value, plain, wide)

    def _spread(self, name: str) -> Values:
        """A variable's parts."""
        if name in self._parts:
            return self._parts[name]
        return parts(self.context, self.builder, self.typeof(name), self.loadvar(name))

    def _lower_call_normal(self, fnty: Any, expr: Any, signature: Any) -> Any:
        if isinstance(fnty, types.Dispatcher) and not expr.vararg and not expr.kws:
            call = self.context.get_function(fnty, signature)
            callee = getattr(call, "called_directly", None)
            if callee is not None and len(expr.args) == len(callee.argtypes):
                spread = [
                    part
                    for argument, kind in zip(expr.args, callee.argtypes, strict=True)
                    for part in self._handed_over(argument, kind)
                ]
                self.context.add_linking_libs(call.libs)
                return called_directly(self.context, self.builder, callee, spread)
        if getattr(fnty, "typing_key", None) is int and len(expr.args) == 1:
            kind = types.unliteral(self.typeof(expr.args[0].name))
            if isinstance(kind, types.Integer | types.Boolean):
                given = self._cast_var(expr.args[0], kind)
                return self.context.cast(self.builder, given, kind, signature.return_type)
        return super()._lower_call_normal(fnty, expr, signature)

    def _handed_over(self, argument: Any, kind: Any) -> Values:
        if argument.name in self._parts and self.typeof(argument.name) == kind:
            return self._parts[argument.name]
        return parts(self.context, self.builder, kind, self._cast_var(argument, kind))


class DirectLower(KernelLower):
    """The same, for a function that is called directly (see `kernel_calls`).

    Raises:
        MayFail: by `lower`, where the function may raise.
    """

    def emit_environment_object(self) -> None:
        """Declare nothing: what refers to Python's objects may raise."""

    def setup_function(self, fndesc: Any) -> None:
        """Begin the function."""
        self.function = declared(self.context, self.module, fndesc)
        self.context.convention = DirectConvention(self.context, self.function)
        self.entry_block = self.function.append_basic_block("entry")
        self.builder = IRBuilder(self.entry_block)
        self.call_helper = self.call_conv.init_call_helper(self.builder)

    def extract_function_arguments(self) -> Any:
        """Take the arguments; of those that have parts, the parts."""
        given = iter(self.function.args)
        self._arguments: list[Values] = []
        self.fnargs = []
        for kind in self.fndesc.argtypes:
            if _has_parts(kind):
                self._arguments.append([next(given) for _ in part_types(self.context, kind)])
                self.fnargs.append(None)
            else:
                self._arguments.append([])
                self.fnargs.append(whole_of(self.context, self.builder, kind, given))
        return self.fnargs

    def _parts_of_argument(self, kind: Any, place: int) -> Values | None:
        return self._arguments[place]

    def _make_whole(self, place: int) -> None:
        if self.fnargs[place] is None:
            spread, kind = iter(self._arguments[place]), self.fndesc.argtypes[place]
            self.fnargs[place] = whole_of(self.context, self.builder, kind, spread)

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """Lower an expression; a range's step is tested unless it is known."""
        self.context.convention.certain = (expr.op == "getiter" and self._steps(expr.value)) or (
            expr.op == "iternext" and isinstance(self.typeof(expr.value.name), types.UniTupleIter)
        )
        try:
            return super().lower_expr(resty, expr)
        finally:
            self.context.convention.certain = False

    def _steps(self, iterated: ir.Var) -> bool:
        """Whether something is a range whose step is not zero."""
        made = guard(get_definition, self.func_ir, iterated)
        if not isinstance(self.typeof(iterated.name), types.RangeType):
            return False
        if not isinstance(made, ir.Expr) or made.op != "call" or made.vararg:
            return False
        return len(made.args) < 3 or bool(guard(find_const, self.func_ir, made.args[2]))

    def lower_normal_function(self, fndesc: Any) -> None:
        """Lower the function.

        Raises:
            MayFail: it calls what may raise.
        """
        super().lower_normal_function(fndesc)
        passes_on = self.call_conv.passes_on
        if passes_on and not all(map(never_fails, self.library._linking_libraries)):
            raise MayFail


def _has_parts(kind: Any) -> bool:
    """Whether a value is handed over in parts: an array without gaps, or a tuple that holds one."""
    return is_dense(kind) or (isinstance(kind, types.BaseTuple) and any(map(_has_parts, kind)))


def _assigned_once(blocks: dict[int, ir.Block]) -> set[str]:
    """Variables with one assignment, which is lowered before whatever reads them."""
    found = compute_use_defs(blocks)
    above = compute_cfg_from_blocks(blocks).dominators()
    assigned: dict[str, list[int]] = {}
    for label, block in blocks.items():
        for each in block.find_insts(ir.Assign):
            assigned.setdefault(each.target.name, []).append(label)
    used: dict[str, list[int]] = {}
    for label, names in found.usemap.items():
        for name in names:
            used.setdefault(name, []).append(label)
    return {
        name
        for name, places in assigned.items()
        if len(places) == 1
        and all(
            places[0] < label and places[0] in above.get(label, ()) for label in used.get(name, ())
        )
    }
