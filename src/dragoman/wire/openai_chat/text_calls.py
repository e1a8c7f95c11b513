"""Tools, calls and results as text, for models whose server does not read their calls. Pure.

The words are those of the chat templates that such models were trained with: `<tool_call>` around JSON (Hermes, Qwen
2.5 and 3) or around `<function=name>` (Qwen3-Coder), and `<tool_response>` in a user turn. `stream/textcalls`
reads the answers.
"""

from collections.abc import Sequence
from typing import Literal

from ..._jsontext import encode_json
from ...message import Part, Text, ToolCall
from ...toolspec import ToolSpec
from ..encoding import argument_object

__all__ = ["CallForm", "describe_tools", "write_calls", "write_result"]

CallForm = Literal["json", "xml"]

_INSTRUCTIONS: dict[CallForm, str] = {
    "json": """\
For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>""",
    "xml": """\
If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>""",
}


def describe_tools(tools: Sequence[ToolSpec], form: CallForm) -> str:
    """Return what the system text says of the tools, and of how to call them."""
    functions = []
    for tool in tools:
        parameters = {"type": "object", **tool.parameter_schema}
        function = {"name": tool.name, "description": tool.description or "", "parameters": parameters}
        functions.append(encode_json({"type": "function", "function": function}).decode())
    listed = "\n".join(functions)
    return (
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n"
        f"<tools>\n{listed}\n</tools>\n\n{_INSTRUCTIONS[form]}"
    )


def write_calls(parts: Sequence[Part], form: CallForm) -> list[Part]:
    """Return an assistant's parts with each call as text.

    It is the text that the model itself wrote, if it is known. A call of another model is written in this one's form.
    """
    written: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall):
            own = (part.provider_data or {}).get("text")
            lead = "\n" if any(isinstance(before, Text) and before.text for before in written) else ""
            written.append(Text(own if isinstance(own, str) else lead + _call_text(part, form)))
        else:
            written.append(part)
    return written


def _call_text(call: ToolCall, form: CallForm) -> str:
    arguments = argument_object(call)
    if form == "json":
        return f"<tool_call>\n{encode_json({'name': call.tool_name, 'arguments': arguments}).decode()}\n</tool_call>"
    lines = [f"<tool_call>\n<function={call.tool_name}>"]
    for name, value in arguments.items():
        said = value if isinstance(value, str) else encode_json(value).decode()
        lines.append(f"<parameter={name}>\n{said}\n</parameter>")
    return "\n".join((*lines, "</function>\n</tool_call>"))


def write_result(content: str) -> str:
    """Return what a tool gave, as a user turn says it."""
    return f"<tool_response>\n{content}\n</tool_response>"
