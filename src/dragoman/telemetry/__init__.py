"""Spans and metrics of agents, model calls and tools, written through OpenTelemetry by its GenAI conventions.

Knows values alone: no agent, no model. Needs the extra `otel`, and loads it when a `Telemetry` is made.
"""

from .recording import Telemetry

__all__ = ["Telemetry"]
