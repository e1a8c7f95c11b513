"""What helps to test code that uses dragoman: scripted models, replayed traffic, conformance kits, strategies.

Everything is loaded when it is first asked for. `strategies` and `histories` need Hypothesis, pip install
'dragoman[testing]', and the validators need the vendors' SDKs, pip install 'dragoman[validation]'; nothing else here
needs either.
"""

from typing import TYPE_CHECKING

from .._lazynames import lazy_names

__all__ = [
    "Call",
    "RecordingTransport",
    "ReplayTransport",
    "ReplayedResponse",
    "ScriptedModel",
    "ScriptedRequest",
    "Turn",
    "WireSample",
    "conformance",
    "decode_recorded",
    "engines",
    "engineworkers",
    "forbid_network",
    "histories",
    "require_conformance",
    "require_engine_conformance",
    "require_store_conformance",
    "require_valid_request",
    "require_worker_conformance",
    "scripted",
    "stores",
    "strategies",
    "transports",
    "validate_request",
    "validators",
]

if TYPE_CHECKING:
    from . import conformance, engines, engineworkers, histories, scripted, stores, strategies, transports, validators
    from .conformance import WireSample, require_conformance
    from .engines import require_engine_conformance
    from .engineworkers import require_worker_conformance
    from .network import forbid_network
    from .recorded import decode_recorded
    from .scripted import Call, ScriptedModel, ScriptedRequest, Turn
    from .stores import require_store_conformance
    from .transports import RecordingTransport, ReplayedResponse, ReplayTransport
    from .validators import require_valid_request, validate_request
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        __all__,
        found_in={
            "Call": "scripted",
            "RecordingTransport": "transports",
            "ReplayTransport": "transports",
            "ReplayedResponse": "transports",
            "ScriptedModel": "scripted",
            "ScriptedRequest": "scripted",
            "Turn": "scripted",
            "WireSample": "conformance",
            "conformance": "conformance",
            "decode_recorded": "recorded",
            "engines": "engines",
            "engineworkers": "engineworkers",
            "forbid_network": "network",
            "histories": "histories",
            "require_conformance": "conformance",
            "require_engine_conformance": "engines",
            "require_store_conformance": "stores",
            "require_valid_request": "validators",
            "require_worker_conformance": "engineworkers",
            "scripted": "scripted",
            "stores": "stores",
            "strategies": "strategies",
            "transports": "transports",
            "validate_request": "validators",
            "validators": "validators",
        },
    )
