"""Anthropic's Messages API, spoken by Anthropic, Bedrock (invoke), Vertex and compatible servers."""

from ...stream import Codec
from ..failures import error_from_response
from .answers import Decoder
from .dialects import DIALECTS, SPECIFICATION, AnthropicDialect
from .requests import encode_request

__all__ = ["CODEC", "DIALECTS", "AnthropicDialect"]

CODEC = Codec(
    specification=SPECIFICATION,
    encode_request=encode_request,
    open_decoder=Decoder,
    map_error=error_from_response,
)
