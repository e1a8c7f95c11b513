"""What helps to test code that uses dragoman: replayed traffic, conformance kits, request validators, strategies.

Everything is loaded when it is first asked for. `strategies` and `histories` need Hypothesis, pip install
'dragoman[testing]', and the validators need the vendors' SDKs, pip install 'dragoman[validation]'; nothing else here
needs either.
"""

from typing import TYPE_CHECKING

__all__ = [
    "RecordingTransport",
    "ReplayTransport",
    "ReplayedResponse",
    "WireSample",
    "conformance",
    "decode_recorded",
    "histories",
    "require_conformance",
    "require_store_conformance",
    "require_valid_request",
    "stores",
    "strategies",
    "transports",
    "validate_request",
    "validators",
]

if TYPE_CHECKING:
    from . import conformance, histories, stores, strategies, transports, validators
    from .conformance import WireSample, require_conformance
    from .recorded import decode_recorded
    from .stores import require_store_conformance
    from .transports import RecordingTransport, ReplayedResponse, ReplayTransport
    from .validators import require_valid_request, validate_request
else:
    _HOMES = {
        "RecordingTransport": "transports",
        "ReplayTransport": "transports",
        "ReplayedResponse": "transports",
        "WireSample": "conformance",
        "decode_recorded": "recorded",
        "require_conformance": "conformance",
        "require_store_conformance": "stores",
        "require_valid_request": "validators",
        "validate_request": "validators",
    }

    def __getattr__(name: str) -> object:
        """Load a name, or a module of this package, when it is first asked for."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        module = importlib.import_module(f".{_HOMES.get(name, name)}", __name__)
        return getattr(module, name) if name in _HOMES else module
