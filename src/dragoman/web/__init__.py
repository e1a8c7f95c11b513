"""Servers: the gateway, which other people's clients talk to. Its modules are for `dragoman serve`; none is public."""

__all__: list[str] = []
