"""What agents can do: functions made tools, their arguments read and checked, calls run.

Everything is loaded when it is first asked for.
"""

from typing import TYPE_CHECKING

from .._lazynames import lazy_names

if TYPE_CHECKING:
    from .arguments import ToolArgumentParser
    from .asking import Asking, Question, QuestionAnswer, SamplingRequest
    from .batches import ReadyCall
    from .coercion import coerce_arguments
    from .definition import Approval, FunctionTool, ToolDefinition, ToolOutput, tool
    from .executor import ToolExecutor
    from .mcp import McpServer
    from .registry import ToolLike, ToolRegistry
    from .schema import TypeSchema
    from .toolcontext import ToolContext

__all__ = [
    "Approval",
    "Asking",
    "FunctionTool",
    "McpServer",
    "Question",
    "QuestionAnswer",
    "ReadyCall",
    "SamplingRequest",
    "ToolArgumentParser",
    "ToolContext",
    "ToolDefinition",
    "ToolExecutor",
    "ToolLike",
    "ToolOutput",
    "ToolRegistry",
    "TypeSchema",
    "coerce_arguments",
    "tool",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        __all__,
        found_in={"coerce_arguments": "coercion"},
        modules=(
            "asking",
            "toolcontext",
            "definition",
            "registry",
            "schema",
            "arguments",
            "batches",
            "executor",
            "mcp",
        ),
    )
