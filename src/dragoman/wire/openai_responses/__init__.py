"""OpenAI's Responses API and the hosts that speak it."""

from ...stream import Codec
from ..failures import error_from_response
from .answer_writer import Writer, write_error
from .answers import Decoder
from .dialects import DIALECTS, SPECIFICATION, ResponsesDialect
from .request_reader import read_request
from .requests import Encoder

__all__ = ["CODEC", "DIALECTS", "ResponsesDialect"]

CODEC = Codec(
    specification=SPECIFICATION,
    open_encoder=Encoder,
    open_decoder=Decoder,
    map_error=error_from_response,
    read_request=read_request,
    open_writer=Writer,
    write_error=write_error,
)
