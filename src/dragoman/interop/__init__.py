"""Conversations of other libraries in and out, and our own record as JSON Lines.

An import gives an `Imported`; `import_into` appends it to a session, `append_imported` to a state. What is
no conversation of its format raises UnreadableData, which says where.
"""

from ..wire.anthropic.requests import import_anthropic
from ..wire.drafts import Imported
from ..wire.openai_chat.requests import import_openai_chat
from ..wire.openai_responses.requests import import_openai_responses
from .agent_log import import_agent_log
from .claude_code import import_claude_code
from .codex import import_codex
from .exports import export_anthropic, export_openai_chat, export_openai_responses
from .jsonl import read_jsonl, write_jsonl
from .langchain import import_langchain
from .library_exports import export_langchain, export_pydantic_ai, export_vercel_ui
from .llm import import_llm
from .openai_agents import import_openai_agents
from .pi import import_pi
from .planning import PlannedImport, append_imported, import_into, plan_import
from .pydantic_ai import import_pydantic_ai
from .vercel import import_vercel_ui

__all__ = [
    "Imported",
    "PlannedImport",
    "append_imported",
    "export_anthropic",
    "export_langchain",
    "export_openai_chat",
    "export_openai_responses",
    "export_pydantic_ai",
    "export_vercel_ui",
    "import_agent_log",
    "import_anthropic",
    "import_claude_code",
    "import_codex",
    "import_into",
    "import_langchain",
    "import_llm",
    "import_openai_agents",
    "import_openai_chat",
    "import_openai_responses",
    "import_pi",
    "import_pydantic_ai",
    "import_vercel_ui",
    "plan_import",
    "read_jsonl",
    "write_jsonl",
]
