"""What a person decided for the catalogue: which models are in it, and which of two sources is right. Tables only.

`build_catalogue.py` applies them. A decision that rests on a vendor's documents says so; all are to be looked at again
when the catalogue is rebuilt.
"""

import re
from typing import Any, NamedTuple

Entry = dict[str, Any]

# LiteLLM's flag -> our ability.
FLAGS = {
    "function_calling": "tools",
    "parallel_function_calling": "parallel_tools",
    "response_schema": "structured_output",
    "reasoning": "reasoning",
    "vision": "images",
    "pdf_input": "documents",
    "audio_input": "audio",
    "video_input": "video",
    "web_search": "hosted_tools",
    "assistant_prefill": "prefill",
}


# What a host may leave unsaid and another host of the same open model may say for it: facts of the model itself.
BORROWED = frozenset({"function_calling", "parallel_function_calling", "response_schema", "reasoning"})


class Vendor(NamedTuple):
    """How one provider's models are found in the two tables, and what is true of all of them.

    `always` and `never` are from the vendor's documents. `skip` are ids that are no models to talk to, or too many.
    """

    table: tuple[str, ...]
    prefix: str = ""
    second: str | None = None
    skip: str = r"(?!)"
    only: str = r""
    always: str = ""
    never: str = ""
    retired: bool = True
    borrows: bool = False


VENDORS: dict[str, Vendor] = {
    "openai": Vendor(
        ("openai",),
        second="openai",
        skip=r"ft:.*|.*container|.*(?:search-preview|audio-preview|computer-use).*|gpt-rosalind.*|.*-cyber.*|.*daybreak.*"
        r"|gpt-3\.5-turbo-.+|gpt-4-.*(?:0613|1106).*|.*-chat$",
        never="prefill",
    ),
    "anthropic": Vendor(("anthropic",), second="anthropic", skip=".*-preview", always="hosted_tools documents"),
    "google": Vendor(
        ("gemini",),
        "gemini/",
        second="google",
        skip=r".*(?:-tts|-exp|lyria|learnlm|deep-research|robotics|computer-use|gemma-2|omni|imagen|live).*",
        only=r"gem",
    ),
    "groq": Vendor(("groq",), "groq/", second="groq", skip=r".*guard-.*", never="strict_tools", borrows=True),
    "mistral": Vendor(
        ("mistral",),
        "mistral/",
        second="mistral",
        skip=r"labs-.*|.*vibe.*|.*mamba.*|.*tiny|.*-fim-.*|mistral-small",
    ),
    # It answers in JSON but takes no schema for it.
    "deepseek": Vendor(
        ("deepseek",),
        second="deepseek",
        skip=r"deepseek/.*",
        never="structured_output strict_tools documents",
    ),
    "cerebras": Vendor(("cerebras",), "cerebras/", second="cerebras", skip=r"llama3\.1-70b|qwen-3-32b", borrows=True),
    # Its hosted tools are on another API than the one we speak.
    "xai": Vendor(
        ("xai",),
        "xai/",
        second="x-ai",
        skip=r".*(?:beta|experimental|gv2|multi-agent|-\d{4}).*",
        always="parallel_tools",
        never="hosted_tools strict_tools",
    ),
    "together": Vendor(
        ("together_ai",),
        "together_ai/",
        second="together",
        skip=r"together.*|.*(?:CodeLlama|Qwen2|Llama-3\.[12]|Kimi-K2-Instruct|Mistral-7B|DeepSeek-(?:V3|R1)|405B).*",
        never="strict_tools hosted_tools",
        retired=False,
        borrows=True,
    ),
    "fireworks": Vendor(
        ("fireworks_ai",),
        "fireworks_ai/",
        second="fireworks",
        only=r"accounts/",
        skip=r".*(?:/auto.*|firerouter|firefunction.*|mixtral.*|llama-v3.*|glm-4p5.*|kimi-k2-instruct.*)",
        never="strict_tools hosted_tools",
        retired=False,
        borrows=True,
    ),
    "moonshot": Vendor(
        ("moonshot",), "moonshot/", second="moonshotai", skip=r".*-auto", always="hosted_tools", never="strict_tools"
    ),
    "zai": Vendor(("zai",), "zai/", second="zai", always="hosted_tools", never="structured_output strict_tools"),
    "bedrock": Vendor(
        ("bedrock_converse", "bedrock"),
        second="aws",
        skip=r".*/.*|.*@.*|.*(?:\.j2-|jamba|titan|claude-(?:v|instant|3-opus|3-5)|cohere|llama2|llama3-(?:8b|70b)|mixtral|"
        r"mistral-7b|pegasus|writer|safeguard|voxtral|3-7-sonnet|mythos-preview).*|claude.*|mistral\.mistral-(?:large|small)-2.*",
        never="hosted_tools",
        borrows=True,
    ),
    "bedrock-mantle": Vendor(
        ("bedrock_mantle",), "bedrock_mantle/", skip=r".*/.*|.*(?:safeguard|daybreak|cyber).*", borrows=True
    ),
}

# Providers that offer another one's models by the same ids, and what these cannot do there.
RESELLERS = {
    "openai-chat": {"like": "openai", "lacks": "hosted_tools"},
    "azure": {"like": "openai", "lacks": "hosted_tools"},
    "azure-responses": {"like": "openai"},
    "anthropic-vertex": {"like": "anthropic"},
    "anthropic-bedrock": {"like": "bedrock"},
    "bedrock-mantle": {"like": "bedrock"},
    "google-vertex": {"like": "google"},
    "google-openai": {"like": "google", "lacks": "hosted_tools"},
    "deepseek-responses": {"like": "deepseek"},
    "openrouter-responses": {"like": "openrouter"},
}

# Models that the second table alone has: priced from there, otherwise as the sibling they were announced beside.
SIBLINGS = {
    "openai": {"gpt-6.1-terra": "gpt-6.1-sol"},
    "moonshot": {
        "kimi-k2.7-code-highspeed": "kimi-k2.7-code",
        "kimi-k3.1-pro": "kimi-k3",
        "kimi-k3.1-pro-highspeed": "kimi-k3",
    },
    "zai": {"glm-5.3-flashx": "glm-5.3-flash", "glm-4.6v": "glm-4.5v"},
}

# OpenRouter: its word for a vendor -> ours, and the open models that are popular there.
ROUTED = {
    "anthropic": "anthropic",
    "openai": "openai",
    "google": "google",
    "x-ai": "xai",
    "deepseek": "deepseek",
    "mistralai": "mistral",
    "moonshotai": "moonshot",
    "z-ai": "zai",
}
ROUTED_AT_LIST_PRICE = ("anthropic", "openai", "google", "xai", "mistral")
ROUTED_OPEN = re.compile(
    r"(?:qwen/qwen3(?:-coder|-max|-235b|\.[5-8])|meta-llama/llama-(?:3\.3|4)|minimax/minimax-m[23]|nvidia/nemotron-3"
    r"|openai/gpt-oss|deepseek/deepseek-v|z-ai/glm-|moonshotai/kimi-|google/gemma-[34]).*"
)

# Where the tables disagree or are silent and the vendor's documents, or its other hosts, decide.
SETTLED: dict[tuple[str, str], Entry] = {
    # The first table has 128,000, Bedrock and Vertex 64,000: a limit that is too low is accepted, one too high refused.
    ("anthropic", "claude-sonnet-4-6"): {"output": 64_000},
    # One source still has the launch price, which ended in October 2026; this is the list price.
    ("mistral", "mistral-large-4"): {"prices": [1.36, 4.18, 0.14]},
    ("mistral", "mistral-large-4-0"): {"prices": [1.36, 4.18, 0.14]},
    # The oldest of the chat models does not think.
    ("openai", "gpt-5-chat-latest"): {"lacks": "reasoning fixed_sampling"},
    # An image model has the small window of its documents, not the family's million.
    ("google", "gemini-3-pro-image-preview"): {"window": 65_536},
    # The smaller of two windows, since one too large costs more than one too small.
    ("cerebras", "llama3.1-8b"): {"window": 32_768},
    ("bedrock", "qwen.qwen3-coder-480b-a35b"): {"window": 128_000},
    # The vendor's price list.
    ("mistral", "open-mistral-nemo"): {
        "prices": [0.15, 0.15],
        "adds": "tools parallel_tools strict_tools",
        "lacks": "caching",
    },
    # Names for whatever model is newest, which refuses a temperature.
    ("google", "gemini-flash-latest"): {"adds": "fixed_sampling"},
    ("google", "gemini-flash-lite-latest"): {"adds": "fixed_sampling"},
    # Not known which is newer: the dearer one, so that a limit on cost holds.
    ("together", "Qwen/Qwen3.7-Max"): {"prices": [2.5, 7.5, 0.5]},
    ("together", "Qwen/Qwen3.8-2.4T-A95B"): {"prices": [2, 6, 0.5]},
    # The first table leaves out the price of the cache, and that they think.
    ("zai", "glm-4.5"): {"prices": [0.6, 2.2, 0.11], "adds": "reasoning caching"},
    ("zai", "glm-4.5v"): {"prices": [0.6, 1.8, 0.11], "adds": "reasoning caching"},
    ("zai", "glm-4.5-x"): {"prices": [2.2, 8.9, 0.45], "adds": "reasoning caching"},
    ("zai", "glm-4.5-air"): {"prices": [0.2, 1.1, 0.03], "adds": "reasoning caching"},
    ("zai", "glm-4.5-airx"): {"prices": [1.1, 4.5, 0.22], "adds": "reasoning caching"},
    ("zai", "glm-4.5-flash"): {"adds": "reasoning"},
}

# Where the tables disagree and the first is right: OpenAI's chat models have a window of 128,000 and Google's image
# models small ones, as documented; of codestral's two windows it is the smaller; the others are names that moved on to
# a newer model, and the second table has the price of an older one.
CONFIRMED = re.compile(
    r"openai:gpt-5\.[12]-chat-latest|google:gemini-.*-image(?:-preview)?|mistral:(?:codestral|magistral)-.*"
    r"|mistral:mistral-(?:large-latest|medium)|xai:grok-code-fast(?:-1)?|deepseek:deepseek-(?:chat|reasoner)"
)

# OpenAI's models from before hosted tools and strict schemas.
OLD_OPENAI = re.compile(r"gpt-3\.5|gpt-4(?:$|-)|gpt-4o-2024-05|o1|o3-mini|gpt-audio|chatgpt")
THINKS_ALWAYS = re.compile(r"(?:openai[.:/])?(?:o\d|gpt-[5-9])|chat-latest")
