"""What helps to test code that uses dragoman. `strategies` needs Hypothesis: pip install 'dragoman[testing]'."""

from typing import TYPE_CHECKING

__all__ = ["strategies", "transports"]

if TYPE_CHECKING:
    from . import strategies, transports
else:

    def __getattr__(name: str) -> object:
        """Load a module when it is first asked for: the rest of this package must not need Hypothesis."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        return importlib.import_module(f".{name}", __name__)
