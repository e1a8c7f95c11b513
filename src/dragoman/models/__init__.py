"""Models: a conversation in, a guarded stream of deltas out. Retrying and falling back are not decided here."""

from .client_call import Model, model, render_request
from .clients import ErrorMapper, ProviderClient
from .streams import ModelStream, guard_stream

__all__ = ["ErrorMapper", "Model", "ModelStream", "ProviderClient", "guard_stream", "model", "render_request"]
