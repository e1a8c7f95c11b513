"""Chat templates for models whose own template does not fit what they write. Jinja, as llama.cpp reads it."""

__all__ = ["FENCED_CALLS"]

# For Qwen2.5-Coder. Its own template asks for <tool_call>, but the model writes calls as fenced JSON. llama.cpp finds
# the fence in this template and takes it for the mark of a call.
FENCED_CALLS = """\
{%- set ns = namespace(system='You are a helpful assistant.', rest=messages) -%}
{%- if messages[0].role == 'system' -%}
{%- set ns.system = messages[0].content -%}
{%- set ns.rest = messages[1:] -%}
{%- endif -%}
<|im_start|>system
{{ ns.system }}
{%- if tools %}

# Tools
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
To call a function answer with:
```json
{"name": <function-name>, "arguments": <args-json-object>}
```
{%- endif %}<|im_end|>
{% for message in ns.rest -%}
{%- if message.role == 'tool' -%}
<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response>
{%- if loop.last %}
Using the tool response above, answer me in one plain sentence.{% endif %}<|im_end|>
{% elif message.role == 'assistant' and message.tool_calls -%}
<|im_start|>assistant
{{ message.content or '' }}
{%- for call in message.tool_calls %}
```json
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
```
{%- endfor %}<|im_end|>
{% else -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""
