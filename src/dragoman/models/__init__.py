"""Models: a conversation in, a guarded stream of deltas out. Retrying and falling back are not decided here."""

from .clients import ErrorMapper, ProviderClient
from .model import Model, model, render_request
from .streams import ModelStream, guard_stream

__all__ = ["ErrorMapper", "Model", "ModelStream", "ProviderClient", "guard_stream", "model", "render_request"]
