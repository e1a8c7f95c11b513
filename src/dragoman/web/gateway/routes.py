"""Which models a client's name for a model means, in which order they are asked. Pure."""

from collections.abc import Sequence

from ...errors import ErrorCode, InvalidValue, ModelError
from ...models.names import LOCAL, split_name
from ...wire import WIRE_APIS

__all__ = ["Routes"]


class Routes:
    """Names that clients ask for, each with the models that answer it.

    A route is `NAME=PROVIDER:MODEL`. The exact name counts first, then the longest `prefix*`, then `*`. Several routes
    of one name are a fallback order. A target of `PROVIDER:*` keeps the client's name. Without any route, a name goes
    to the vendor of the API that it came by.
    """

    def __init__(self, given: Sequence[str] = ()) -> None:
        self._targets: dict[str, list[str]] = {}
        for route in given:
            name, equals, target = route.partition("=")
            if not equals or not name or "*" in name[:-1]:
                raise InvalidValue.of("--model", route, "NAME=PROVIDER:MODEL, where NAME may end in *")
            split_name(target)
            self._targets.setdefault(name, []).append(target)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are whole."""
        return tuple(name for name in self._targets if not name.endswith("*"))

    def find(self, name: str, api: str) -> tuple[str, ...]:
        """Return the models to ask, as `provider:model`; raise ModelError, `not_found`, where no route fits."""
        if not self._targets:
            return (f"{WIRE_APIS[api].providers[0]}:{name}",)
        prefixes = sorted((key for key in self._targets if key.endswith("*")), key=len, reverse=True)
        fitting = (key for key in (name, *prefixes) if key == name or name.startswith(key[:-1]))
        key = next((key for key in fitting if key in self._targets), None)
        if key is None:
            known = ", ".join(sorted(self._targets))
            raise ModelError(f"this gateway has no model {name[:100]!r}; it has {known}", code=ErrorCode.NOT_FOUND)
        return tuple(_kept(target, name) for target in self._targets[key])


def _kept(target: str, name: str) -> str:
    provider, _, model = target.partition(":")
    return f"{provider}:{name}" if model == "*" and provider != LOCAL else target
