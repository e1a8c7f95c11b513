"""A model on this machine: weights from the package index or a file, behind a llama.cpp server of our own.

`model("local:smollm2")` is the way to use one. A server with settings of your own is

    with LocalServer(find_weights("smollm2"), slots=4) as server:
        local = model("llamacpp:smollm2", base_url=server.base_url())

Needs the extra `local`; nothing is loaded before it is used. Knows no wire API and no model class: `models` uses it.
"""

from typing import TYPE_CHECKING

from .._lazynames import lazy_names

if TYPE_CHECKING:
    from .server import LocalServer
    from .weights import KNOWN_WEIGHTS, Weights, find_weights, pull_weights

__all__ = ["KNOWN_WEIGHTS", "LocalServer", "Weights", "find_weights", "pull_weights"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, modules=("weights", "server"))
