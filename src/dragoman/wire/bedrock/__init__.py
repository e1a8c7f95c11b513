"""Amazon Bedrock's Converse API: one host, many model families."""

from ...stream import Codec
from ..failures import error_from_response
from .answers import Decoder
from .dialects import DIALECTS, SPECIFICATION, BedrockDialect, family_dialect
from .requests import Encoder

__all__ = ["CODEC", "DIALECTS", "BedrockDialect", "family_dialect"]

CODEC = Codec(
    specification=SPECIFICATION,
    open_encoder=Encoder,
    open_decoder=Decoder,
    map_error=error_from_response,
)
