"""Assemble a streamed tool call, then cut the same stream short and see that it never passes for an answer."""

from dragoman import Message, MessageDelta, from_json
from dragoman.stream import Assembly, assemble

STREAM = """
{"runId":"run-1","seq":0,"kind":"start","payload":{"modelId":"some-model","requestId":"req-1"}}
{"runId":"run-1","seq":1,"kind":"thinking","payload":{"textDelta":"Weather.","providerData":{"signature":"c2ln"}}}
{"runId":"run-1","seq":2,"kind":"text","payload":{"textDelta":"Let me "}}
{"runId":"run-1","seq":3,"kind":"text","payload":{"textDelta":"look."}}
{"runId":"run-1","seq":4,"kind":"tool_call_start","payload":{"toolCallId":"call-1","toolName":"get_weather"}}
{"runId":"run-1","seq":5,"kind":"tool_call_args","payload":{"toolCallId":"call-1","argsTextDelta":"{\\"city\\": "}}
{"runId":"run-1","seq":6,"kind":"tool_call_args","payload":{"toolCallId":"call-1","argsTextDelta":"\\"Paris\\"}"}}
{"runId":"run-1","seq":7,"kind":"tool_call_end","payload":{"toolCallId":"call-1"}}
{"runId":"run-1","seq":8,"kind":"usage","payload":{"inputTokens":42,"outputTokens":17,"totalTokens":59}}
{"runId":"run-1","seq":9,"kind":"done","payload":{"finishReason":"tool_calls","rawFinishReason":"tool_use"}}
"""


def read_deltas(lines: str) -> list[MessageDelta]:
    """Return the deltas of a text that has one JSON object per line."""
    values = [from_json(line) for line in lines.splitlines() if line]
    return [value for value in values if not isinstance(value, Message)]


def describe(assembly: Assembly) -> str:
    """Return in words what the stream came to."""
    if assembly.message is not None:
        calls = ", ".join(f"{call.tool_name}({call.arguments})" for call in assembly.message.tool_calls)
        return f"finished ({assembly.finish_reason}): {assembly.message.text!r}, calls {calls}"
    assert assembly.error is not None
    arrived = assembly.partial.text if assembly.partial else ""
    return f"failed ({assembly.error.error_code}): {arrived!r} had arrived, no call may run"


if __name__ == "__main__":
    deltas = read_deltas(STREAM)
    print("whole stream:     ", describe(assemble(deltas)))
    print("cut after 7 of 10:", describe(assemble(deltas[:7])))
