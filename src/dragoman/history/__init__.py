"""The record of a conversation, and how it is handed to a model that did not make it."""

from .handoff import HandedOff, hand_off

__all__ = ["HandedOff", "hand_off"]
