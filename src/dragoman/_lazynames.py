"""Names of a package that are loaded when they are first asked for, so that importing it costs nearly nothing."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence

__all__ = ["lazy_names"]


def lazy_names(
    package: str, names: Sequence[str], *, found_in: Mapping[str, str] | None = None, modules: Sequence[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package that promises `names`.

    `found_in` maps a name to its module; a name that maps to itself is a module. Every other name is looked for in the
    `__all__` of `modules`, in order.
    """
    known = dict(found_in or {})

    def get(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = _found(name)
        setattr(sys.modules[package], name, found)
        return found

    def _found(name: str) -> object:
        for module_name in (known[name],) if name in known else modules:
            module = importlib.import_module(f".{module_name}", package)
            if name == module_name:
                return module
            if name in known or name in module.__all__:
                return getattr(module, name)
        raise AttributeError(f"module {package!r} promises {name!r}, but none of its modules has it")

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return get, list_names
