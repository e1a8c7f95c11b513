"""Servers: the gateway, which other people's clients talk to."""
