"""JSON objects and arrays that cannot be changed: what a recorded value holds, and every caller may be handed.

They are dicts and lists to every reader, also to encoders. A copy (`copy.deepcopy`, `dict(…)`) can be changed.
"""

from typing import Any, NoReturn

__all__ = ["FrozenDict", "FrozenList", "frozen"]


def _refuse(value: Any, *_given: Any, **_named: Any) -> NoReturn:
    kind = "object" if isinstance(value, dict) else "array"
    raise TypeError(f"this {kind} is part of a recorded value and cannot be changed: change a copy.deepcopy of it")


class FrozenDict(dict[str, Any]):
    """A JSON object that cannot be changed. It equals the plain dict; its copies are plain dicts."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, _memo: object) -> Any:
        return _thawed(self)

    def __reduce__(self) -> tuple[type, tuple[list[tuple[str, Any]]]]:
        return dict, (list(self.items()),)


class FrozenList(list[Any]):
    """A JSON array that cannot be changed. It equals the plain list; its copies are plain lists."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, _memo: object) -> Any:
        return _thawed(self)

    def __reduce__(self) -> tuple[type, tuple[tuple[Any, ...]]]:
        return list, (tuple(self),)


def frozen(value: dict[str, Any]) -> FrozenDict:
    """Return the JSON object as one that nothing can change; the given one and what it holds stay as they are."""
    if type(value) is FrozenDict:
        return value
    copy = FrozenDict(value)
    pending: list[FrozenDict | FrozenList] = [copy]
    while pending:  # without recursion: the object may be nested as deeply as the caller's stack is full
        holder = pending.pop()
        inner: FrozenDict | FrozenList
        if isinstance(holder, FrozenDict):
            for name, item in holder.items():
                if isinstance(item, (dict, list, tuple)) and type(item) not in _FROZEN:
                    inner = FrozenDict(item) if isinstance(item, dict) else FrozenList(item)
                    dict.__setitem__(holder, name, inner)  # of a name that is there: the iteration goes on
                    pending.append(inner)
        else:
            for index, item in enumerate(holder):
                if isinstance(item, (dict, list, tuple)) and type(item) not in _FROZEN:
                    inner = FrozenDict(item) if isinstance(item, dict) else FrozenList(item)
                    list.__setitem__(holder, index, inner)
                    pending.append(inner)
    return copy


def _thawed(value: Any) -> Any:
    """A plain copy of a frozen object or array, without recursion. What else it holds cannot be changed."""
    top: list[Any] = [value]
    pending: list[Any] = [top]
    while pending:
        holder = pending.pop()
        for name, item in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
            if type(item) in _FROZEN:
                holder[name] = dict(item) if isinstance(item, dict) else list(item)
                pending.append(holder[name])
    return top[0]


_FROZEN = frozenset({FrozenDict, FrozenList})
