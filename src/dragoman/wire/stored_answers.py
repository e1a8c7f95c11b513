"""An assistant turn in a request → an assistant message. The API's decoder reads it as a whole answer.

So the fields that the provider needs back are where the encoder looks for them.
"""

from typing import Any

from msgspec.structs import replace

from .._jsontext import encode_json
from ..delta import DoneDelta
from ..errors import InvalidValue, UnreadableData
from ..message import FinishReason, Message, MessageMeta, ModelInvocationDescriptor
from ..stream import Assembler, ResponseReader
from . import find_codec, find_dialect, find_provider
from .reading import reading

__all__ = ["invocation_of", "read_answer"]


def invocation_of(made_by: str | None, specification: str) -> ModelInvocationDescriptor | None:
    """Return who made the messages, from `provider:model`; raise InvalidValue for one that speaks another API."""
    if made_by is None:
        return None
    provider, _, model = made_by.partition(":") if isinstance(made_by, str) else ("", "", "")
    if not provider or not model:
        raise InvalidValue.of("made_by", made_by, "provider:model")
    spoken = find_dialect(provider, model).specification
    if spoken != specification:
        raise InvalidValue(f"made_by must name a provider that speaks {specification}: {provider!r} speaks {spoken}")
    return ModelInvocationDescriptor(provider, specification, model)


def read_answer(
    body: dict[str, Any], specification: str, invocation: ModelInvocationDescriptor | None, where: str
) -> Message:
    """Return the message of a whole answer. It has a finish reason only where the body has one."""
    provider, model = (invocation.provider, invocation.model) if invocation else (find_provider(specification), "")
    reader = ResponseReader(find_codec(specification), find_dialect(provider, model))
    assembler = Assembler(invocation=invocation)
    with reading(where):
        for delta in (*reader.feed(encode_json(body)), *reader.end()):
            if isinstance(delta, DoneDelta) and delta.raw_finish_reason is None:
                delta = replace(delta, finish_reason=FinishReason.STOP)  # noqa: PLW2901  # a stored answer is whole
            assembler.feed(delta)
        assembly = assembler.result()
    if assembly.message is None:
        said = assembly.error.message if assembly.error is not None else "it has no end"
        raise UnreadableData(f"{where}: {said}") from reader.bug
    meta = assembly.message.meta or MessageMeta()
    if meta.raw_finish_reason is None:
        meta = replace(meta, finish_reason=None)
    return replace(assembly.message, meta=None if meta == MessageMeta() else meta)
