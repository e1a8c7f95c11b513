"""Servers over HTTP: the gateway, which other people's clients talk to, and the inspector. None loads the other."""

__all__: list[str] = []
