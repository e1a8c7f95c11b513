"""The final message as a value of the type that was asked for. Pure."""

import re
from typing import Any, Generic, TypeVar

from .._jsontext import decode_json, encode_json
from ..errors import InvalidValue, UnreadableData
from ..message import Message
from ..router import AnyModel
from ..tools import TypeSchema
from ..tools.nodes import trial
from ..wire.schemas import fit_schema
from .jsonprefix import JsonPrefix

__all__ = ["OutputReader", "PartialReader"]

OutputT = TypeVar("OutputT")

# Its end is searched for once, apart: one expression for both would try every line break for each opening.
_FENCE = re.compile(r"```(?:json)?[^\S\n]*+\n")
# A partial output is read again when the text has grown by this share, so that long texts take linear time.
_GROWTH = 64


class OutputReader(Generic[OutputT]):
    """Reads messages as values of a type; text is read as it is."""

    def __init__(self, output_type: type[OutputT]) -> None:
        if output_type is None:
            raise InvalidValue("output_type must be a type, such as int, got None: leave it out for text")
        if isinstance(output_type, str):
            raise InvalidValue.of("output_type", output_type, "a type, such as str, and not its name")
        self.is_text = output_type is str
        self._name = getattr(output_type, "__name__", str(output_type))
        self._schema: TypeSchema[OutputT] | None = None
        self._is_wrapped = False
        if not self.is_text:
            self._schema = TypeSchema.of(output_type)
            # Providers want an object at the top; anything else stands in a field of one.
            self._is_wrapped = self._schema.schema.get("type") != "object"

    def params(self, model: AnyModel) -> dict[str, Any]:
        """Return the settings of a call whose answer shall be of the type; none if the model cannot take its schema."""
        if self._schema is None or not model.supports("structured_output"):
            return {}
        schema, rules = self._wrapped_schema(), model.rules.schemas
        return {"output_schema": schema} if rules.takes_others or fit_schema(schema, rules)[1] else {}

    def instruction(self) -> str:
        """Return what a model is told that does not get the schema as a setting; nothing for text."""
        if self._schema is None:
            return ""
        return (
            "When you give your final answer, give it as one JSON object and nothing else. It must fit this JSON "
            f"Schema:\n{encode_json(self._wrapped_schema()).decode()}"
        )

    def read(self, message: Message) -> OutputT:
        """Return the value; raise InvalidValue, in words for the model, if it is not of the type."""
        if self._schema is None:
            return message.text  # type: ignore[return-value]  # the type is str
        return self._typed(self._json(message.text))

    def find(self, text: str) -> tuple[OutputT, ...]:
        """Return the value of a JSON text; nothing if it is not of the type. What the type raises is not reported."""
        try:
            with trial():
                return (self._typed(decode_json(text)),)
        except (UnreadableData, InvalidValue):
            return ()

    def _typed(self, value: Any) -> OutputT:
        assert self._schema is not None
        if self._is_wrapped:
            if not isinstance(value, dict) or set(value) != {"value"}:
                raise InvalidValue('The answer must be a JSON object with the one field "value".')
            value = value["value"]
        output, problems = self._schema.read(value)
        if problems:
            listed = "\n".join(f"- {problem}" for problem in problems)
            raise InvalidValue(f"The answer is not a valid {self._name}:\n{listed}")
        return output  # type: ignore[return-value]  # without problems it is of the type

    def _json(self, text: str) -> Any:
        opening = _FENCE.search(text)
        end = text.find("```", opening.end()) if opening else -1
        try:
            return decode_json(text[opening.end() : end] if opening and end >= 0 else text)
        except UnreadableData as error:
            raise InvalidValue(f"The answer must be JSON alone, but it is {error}.") from None

    def _wrapped_schema(self) -> dict[str, Any]:
        assert self._schema is not None
        schema = self._schema.schema
        if not self._is_wrapped:
            return schema
        inner = {name: part for name, part in schema.items() if name != "$defs"}
        wrapped: dict[str, Any] = {
            "type": "object",
            "properties": {"value": inner},
            "required": ["value"],
            "additionalProperties": False,
        }
        return {**wrapped, "$defs": schema["$defs"]} if "$defs" in schema else wrapped


class PartialReader(Generic[OutputT]):
    """Reads one answer as a value while it arrives. What does not fit the type yet is left out."""

    def __init__(self, output: OutputReader[OutputT]) -> None:
        self._output = output
        self._pieces: list[str] = []
        self._length = self._read_at = 0
        self._json = JsonPrefix()
        self._shown = ""

    def feed(self, piece: str) -> tuple[OutputT, ...]:
        """Return the value with this piece; nothing if there is none, or if it is the same as before."""
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length - self._read_at < self._read_at // _GROWTH:
            return ()
        self._read_at = self._length
        text = "".join(self._pieces)
        self._pieces = [text]
        if self._output.is_text:
            return (text,)  # type: ignore[return-value]  # the type is str
        opening = None if self._json.has_begun else _FENCE.search(text)
        self._json.follow(text, opening.end() if opening else 0)
        for closed in self._json.closed_texts(text):
            if closed.text == self._shown:
                break
            if closed.probe is None or self._output.find(closed.probe):
                found = self._output.find(closed.text)
                if found:
                    self._shown = closed.text
                    return found
        return ()
