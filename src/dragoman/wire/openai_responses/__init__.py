"""OpenAI's Responses API and the hosts that speak it."""

from ...stream import Codec
from ..failures import error_from_response
from .answers import Decoder
from .dialects import DIALECTS, SPECIFICATION, ResponsesDialect
from .requests import encode_request

__all__ = ["CODEC", "DIALECTS", "ResponsesDialect"]

CODEC = Codec(
    specification=SPECIFICATION,
    encode_request=encode_request,
    open_decoder=Decoder,
    map_error=error_from_response,
)
