"""What a framing gives and a decoder takes: one event of a response body, as its name and its bytes."""

from typing import Protocol, TypeAlias

__all__ = ["EventParser", "WireEvent"]

# (name, data). The name is empty where the framing has none.
WireEvent: TypeAlias = tuple[str, bytes]


class EventParser(Protocol):
    """Response bytes to events, whatever the framing. Bytes may be cut anywhere."""

    def feed(self, chunk: bytes) -> list[WireEvent]:
        """Return the events that `chunk` completes; raise ModelError for bytes that break the framing."""

    def end(self) -> list[WireEvent]:
        """Return what the end of the body completes."""
