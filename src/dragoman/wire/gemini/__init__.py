"""Gemini's generateContent, on Google's two hosts."""

from ...stream import Codec
from .answer_writer import Writer, write_error
from .answers import Decoder, map_error
from .dialects import DIALECTS, SPECIFICATION, GeminiDialect
from .request_reader import read_request
from .requests import Encoder

__all__ = ["CODEC", "DIALECTS", "GeminiDialect"]

CODEC = Codec(
    specification=SPECIFICATION,
    open_encoder=Encoder,
    open_decoder=Decoder,
    map_error=map_error,
    read_request=read_request,
    open_writer=Writer,
    write_error=write_error,
)
