"""The inspector: a page that shows what a store holds, and the JSON endpoints behind it.

`inspector` makes an aiohttp.web application over any `SessionStore`. It stands alone or under a path of another one.
"""

from typing import TYPE_CHECKING

from ..._lazynames import lazy_names

if TYPE_CHECKING:
    from .application import inspector
    from .htmlpage import session_html
    from .state import MakeAgent, OpenModel

__all__ = ["MakeAgent", "OpenModel", "inspector", "session_html"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, modules=("application", "state", "htmlpage"))
