"""The table of tensors in the pickle of a `torch.save` file, read without unpickling.

A pickle can call any Python function. A small interpreter walks over its opcodes here, knows the
few that a table of tensors needs, and gives meaning to two callables, `OrderedDict` and
`_rebuild_tensor_v2`. All else is refused by name.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .stored import Element

STORAGES = {
    "DoubleStorage": Element.F64,
    "FloatStorage": Element.F32,
    "HalfStorage": Element.F16,
    "BFloat16Storage": Element.BF16,
}
OTHER_STORAGES = {"LongStorage", "IntStorage", "ShortStorage", "CharStorage", "ByteStorage"}
OTHER_STORAGES |= {"BoolStorage"}
"""Position ids and the like: known, and not needed."""
MARK = object()


@dataclass(frozen=True)
class Symbol:
    """A global that the pickle names; only a name here."""

    name: str


@dataclass(frozen=True)
class Storage:
    """Numbers of one member of the archive; `element` is None for integers."""

    element: Element | None
    key: str


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of the table: contiguous, `offset` numbers into its storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]


ORDERED_DICT = Symbol("collections OrderedDict")
REBUILD_TENSOR = Symbol("torch._utils _rebuild_tensor_v2")
REBUILD_PARAMETER = Symbol("torch._utils _rebuild_parameter")
KNOWN = {ORDERED_DICT, REBUILD_TENSOR, REBUILD_PARAMETER} | {
    Symbol(f"torch {kind}") for kind in [*STORAGES, *OTHER_STORAGES]
}


class Refused(Exception):
    """Why a pickle is not a table of tensors."""


def table(pickle: bytes) -> dict[str, TensorEntry]:
    """The pickle's dictionary; entries that are no tensors are left out."""
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(pickle):
            machine.step(opcode.name, argument)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise Refused(f"its pickle is malformed ({error})") from error
    if not isinstance(machine.result, dict):
        raise Refused("it does not hold a table of tensors")
    table = machine.result.get("state_dict", machine.result)
    if not isinstance(table, dict):
        raise Refused("it does not hold a table of tensors")
    return {str(name): entry for name, entry in table.items() if isinstance(entry, TensorEntry)}


class _Machine:
    """The pickle's stack and memo; no object is ever built but lists, tuples and dictionaries."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.result: Any = None

    def step(self, name: str, argument: Any) -> None:
        """Runs one opcode."""
        if name in LITERALS:
            self.stack.append(LITERALS[name])
        elif name in VALUES:
            self.stack.append(argument)
        elif name in ACTIONS:
            ACTIONS[name](self, argument)
        elif name not in IGNORED:
            raise Refused(f"its pickle uses {name}, which a table of tensors does not need")

    def pop_to_mark(self) -> list[Any]:
        """What was pushed since the last MARK."""
        items = []
        while (item := self.stack.pop()) is not MARK:
            items.append(item)
        return items[::-1]

    def pop(self, count: int) -> list[Any]:
        """The top `count` values, the lowest first."""
        return [self.stack.pop() for _ in range(count)][::-1]

    def push_symbol(self, argument: Any) -> None:
        """`module name`, separated by a space."""
        symbol = Symbol(str(argument))
        if symbol not in KNOWN:
            raise Refused(f"its pickle would call {symbol.name.replace(' ', '.')}")
        self.stack.append(symbol)

    def push_stack_symbol(self, _argument: Any) -> None:
        """As `push_symbol`, with module and name on the stack."""
        name, module = self.stack.pop(), self.stack.pop()
        self.push_symbol(f"{module} {name}")

    def put(self, argument: Any) -> None:
        """Keeps the top; MEMOIZE numbers by itself."""
        self.memo[len(self.memo) if argument is None else int(argument)] = self.stack[-1]

    def set_items(self, pairs: list[Any]) -> None:
        """Keys and values in turn, into the dictionary on the stack."""
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise Refused("its pickle stores items in something that is no table")
        target.update(zip(pairs[::2], pairs[1::2], strict=True))

    def append(self, items: list[Any]) -> None:
        """Into the list on the stack."""
        if not isinstance(self.stack[-1], list):
            raise Refused("its pickle appends to something that is no list")
        self.stack[-1].extend(items)

    def load_storage(self, _argument: Any) -> None:
        """`("storage", type, key, device, count)` -> Storage."""
        kind, storage_type, key, *_ = self.stack.pop()
        if kind != "storage" or not isinstance(storage_type, Symbol):
            raise Refused("its pickle refers to something that is no storage")
        element = STORAGES.get(storage_type.name.removeprefix("torch "))
        self.stack.append(Storage(element, str(key)))

    def drop_state(self, _argument: Any) -> None:
        """The attributes of an OrderedDict (version numbers) are not needed."""
        self.stack.pop()

    def finish(self, _argument: Any) -> None:
        """What is on top at the end is the file's content."""
        self.result = self.stack.pop()

    def call(self, _argument: Any) -> None:
        """The two callables of a table of tensors, and the wrapper of a parameter."""
        arguments, symbol = self.stack.pop(), self.stack.pop()
        if symbol == ORDERED_DICT:
            self.stack.append(dict(*arguments))
        elif symbol == REBUILD_TENSOR:
            self.stack.append(_rebuilt(*arguments[:4]))
        elif symbol == REBUILD_PARAMETER:
            self.stack.append(arguments[0])
        else:
            raise Refused("its pickle calls what is no function of a table of tensors")


def _rebuilt(storage: Any, offset: Any, shape: Any, strides: Any) -> TensorEntry:
    """Only contiguous tensors: the others come from views that nobody publishes."""
    sizes = (offset, *shape)
    if not isinstance(storage, Storage) or not all(isinstance(s, int) and s >= 0 for s in sizes):
        raise Refused("its pickle has a tensor without storage, offset or shape")
    expected, step = [], 1
    for size in reversed(shape):
        expected.append(step)
        step *= size
    if tuple(strides) != tuple(expected[::-1]) and step > 1:
        raise Refused(f"it has a tensor of shape {tuple(shape)} that is not contiguous")
    return TensorEntry(storage, offset, tuple(shape))


LITERALS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "MARK": MARK}
LITERALS |= {"EMPTY_TUPLE": ()}
VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"}
VALUES |= {"BINUNICODE8"}
IGNORED = {"PROTO", "FRAME"}
ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_to_mark())),
    "TUPLE1": lambda machine, _: machine.stack.append(tuple(machine.pop(1))),
    "TUPLE2": lambda machine, _: machine.stack.append(tuple(machine.pop(2))),
    "TUPLE3": lambda machine, _: machine.stack.append(tuple(machine.pop(3))),
    "GLOBAL": _Machine.push_symbol,
    "STACK_GLOBAL": _Machine.push_stack_symbol,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.put,
    "BINGET": lambda machine, key: machine.stack.append(machine.memo[key]),
    "LONG_BINGET": lambda machine, key: machine.stack.append(machine.memo[key]),
    "SETITEM": lambda machine, _: machine.set_items(machine.pop(2)),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_to_mark()),
    "APPEND": lambda machine, _: machine.append(machine.pop(1)),
    "APPENDS": lambda machine, _: machine.append(machine.pop_to_mark()),
    "BINPERSID": _Machine.load_storage,
    "REDUCE": _Machine.call,
    "BUILD": _Machine.drop_state,
    "STOP": _Machine.finish,
}
