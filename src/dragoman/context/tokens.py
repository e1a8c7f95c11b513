"""Text and messages in, numbers of tokens out: by a model's own vocabulary where one is at hand, else by an estimate.

Counting is pure. `find_counter` alone looks at what is installed and reads files; it never touches the network.
Of a wire API it knows how many tokens that writes around what is said, and nothing more.
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Protocol, assert_never

import msgspec

from .._jsontext import encode_json, join_surrogates
from ..errors import InvalidValue
from ..message import FileRef, Image, Message, Part, ProviderItem, Text, Thinking, ToolCall, ToolResult, UnknownPart
from .lines import file_text

__all__ = [
    "LARGEST_OVERHEAD",
    "MEDIA_TOKENS",
    "OVERHEADS",
    "EstimateCounter",
    "Overhead",
    "TokenCounter",
    "UsageCorrection",
    "count_message",
    "count_overhead",
    "find_counter",
]


class Overhead(msgspec.Struct, frozen=True):
    """The tokens that a wire API writes around a message, each of its parts, a call, a result, and a tool's spec."""

    message: int
    part: int
    call: int
    result: int
    tool: int


# By specification: what stands around the texts in a request, measured by encoding messages and counting their JSON
# with the vocabulary o200k. The ids of calls are counted as they are.
OVERHEADS: dict[str, Overhead] = {
    "openai-chat": Overhead(message=7, part=4, call=22, result=8, tool=14),
    "openai-responses": Overhead(message=7, part=18, call=18, result=12, tool=14),
    "anthropic-messages": Overhead(message=9, part=8, call=14, result=14, tool=12),
    "gemini": Overhead(message=9, part=5, call=16, result=16, tool=12),
    "bedrock-converse": Overhead(message=9, part=5, call=16, result=16, tool=16),
}
# For a target that is not known.
LARGEST_OVERHEAD = Overhead(
    *(max(getattr(each, name) for each in OVERHEADS.values()) for name in Overhead.__struct_fields__)
)

# What is no text counts as one figure per kind, because size in bytes says little about tokens: an image as large as
# Anthropic lets one be at normal resolution, three pages of a PDF, a minute of sound or of video as Gemini counts them.
MEDIA_TOKENS: dict[str, int] = {"image": 1_600, "audio": 2_000, "video": 18_000, "document": 6_000}

# A family's vocabulary, by the first pattern found in a model's id in lower case. Where a family has changed its
# vocabulary since, the nearest one stands here; the usage that is reported corrects for it. Claude, Grok, Nova,
# Llama 4 and others have none that is public or at hand: they get the estimate.
_FAMILIES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), vocabulary)
    for pattern, vocabulary in (
        (r"claude|grok|llama-?4(?!\d)", ""),
        (r"distill-llama|llama-?3(?!\d)", "llama3"),
        (r"code-?llama", "codellama"),
        (r"llama-?2(?!\d)|tinyllama|vicuna", "llama2"),
        (r"distill-qwen|qwen|qwq", "qwen3"),
        (r"deepseek", "deepseek_v3"),
        (r"kimi-k3", "kimi_k3"),
        (r"kimi", "kimi_k2"),
        (r"(?<![a-z])glm-", "glm4"),
        (r"gemma-?2(?!\d)", "gemma2"),
        (r"gemma-?4(?!\d)", "gemma4"),
        (r"gemma-?3(?!\d)|gemini", "gemma3"),
        (r"mixtral|mistral[-:]7b", "mistral_v2"),
        (r"(?:mi|mini|magi|dev|code|vox)stral|pixtral", "mistral_v3"),
        (r"(?<![a-z])phi-?4", "phi4"),
        (r"olmo-?2", "olmo2"),
        (r"(?<![a-z])gpt-(?:4|3\.?5)(?:-|$)", "cl100k_base"),
        (r"gpt-(?:[4-9]|[1-9]\d|oss|audio|realtime)|(?:^|[/.:])o[134](?:-|$)", "o200k_base"),
    )
)

# A provider whose models share a vocabulary, for an id that says nothing (an Azure deployment's name, `chat-latest`).
_PROVIDERS: dict[str, str] = {
    **dict.fromkeys(("openai", "openai-chat", "azure", "azure-responses"), "o200k_base"),
    **dict.fromkeys(("google", "google-vertex", "google-openai"), "gemma3"),
    **dict.fromkeys(("deepseek", "deepseek-responses"), "deepseek_v3"),
    "mistral": "mistral_v3",
}

# The files of vocabularies that tiktoken would download: where from, and the SHA-256 that it demands of them.
_TIKTOKEN_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
_TIKTOKEN_DIGESTS: dict[str, str] = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}

# Longer texts are counted piece by piece: the ids of one piece are in memory at a time, and no tokenizer is asked to
# split a run of a million letters. A cut costs at most a token or two.
_PIECE = 100_000

# The estimate counts bits. Every byte of the text becomes a byte with as many bits set as it has sixteenths of a token,
# by its class; every pair of neighbours becomes the bits that the first one's class offers and the second one's takes,
# each half a token. So one class has 8 bits for itself and 8 for pairs, and whole numbers do the rest at machine speed.
# Class, its bytes in UTF-8, sixteenths. A character beyond ASCII is a first byte, which tells its script, and others.
_CLASSES: tuple[tuple[str, bytes, int], ...] = (
    ("punctuation", b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", 6),
    ("small", bytes(range(0x61, 0x7B)), 2),
    ("capital", bytes(range(0x41, 0x5B)), 8),
    ("digit", bytes(range(0x30, 0x3A)), 8),
    ("space", b" \t", 1),
    ("control", bytes((*range(0x09), *range(0x0A, 0x20), 0x7F)), 8),  # line ends above all
    ("continuation", bytes(range(0x80, 0xC0)), 3),
    ("latin", bytes(range(0xC0, 0xCE)), 6),  # accented letters, combining marks
    ("greek", b"\xce\xcf", 4),
    ("cyrillic, semitic", bytes(range(0xD0, 0xE0)), 3),
    ("indic, thai", b"\xe0", 1),
    ("georgian, khmer", b"\xe1", 1),  # Burmese, Ethiopic and Vietnamese letters too
    ("sign", b"\xe2", 8),  # quotation marks, arrows, boxes
    ("kana", b"\xe3", 7),
    ("han", bytes(range(0xE4, 0xEA)), 8),
    ("hangul", bytes(range(0xEA, 0xEE)), 7),  # a lone surrogate too
    ("wide", b"\xee\xef", 8),
    ("emoji", bytes(range(0xF0, 0x100)), 6),
)
# Where one of these classes is followed by one of those, half a token more, or several halves.
_PAIRS: tuple[tuple[tuple[str, ...], tuple[str, ...], int], ...] = (
    (("space", "punctuation", "digit", "control"), ("small",), 1),  # a word begins
    (("space", "digit"), ("punctuation",), 1),
    (("small", "digit"), ("capital",), 1),  # a name changes case, or it is base64
    (("digit",), ("small", "capital"), 1),  # a hash, or base64
    (("capital", "latin", "emoji"), ("digit", "continuation"), 2),  # base64; the dear ones of the other scripts
)
_CACHED = 65_536  # bytes looked at together: what stays in a processor's cache; the result does not depend on it


def _bit_tables() -> tuple[bytes, bytes, bytes]:
    """Return three tables over bytes: the bits of one for itself, those it offers as a first, takes as a second."""
    own, offered, taken = bytearray(256), bytearray(256), bytearray(256)
    for name, members, sixteenths in _CLASSES:
        first, second, bit = 0, 0, 0
        for firsts, seconds, halves in _PAIRS:
            bits = (1 << halves) - 1 << bit
            first |= bits * (name in firsts)
            second |= bits * (name in seconds)
            bit += halves
        for byte in members:
            own[byte], offered[byte], taken[byte] = (1 << sixteenths) - 1, first, second
    return bytes(own), bytes(offered), bytes(taken)


_OWN_BITS, _OFFERED_BITS, _TAKEN_BITS = _bit_tables()


class TokenCounter(Protocol):
    """Something that counts the tokens of a text: 0 for none, never fewer than 1 for any."""

    @property
    def name(self) -> str:
        """What counts: `splintr:<vocabulary>`, `tiktoken:<vocabulary>`, `estimate`, or a caller's own word."""
        ...

    def count(self, text: str) -> int:
        """Return how many tokens `text` is."""
        ...


class EstimateCounter(msgspec.Struct, frozen=True):
    """A count without a vocabulary, from the kinds of bytes in the text and how they alternate.

    Fitted to the vocabulary o200k, and measured against it on a second draw from the same sources (a part was in both),
    in pieces of 2,000 to 4,000 characters. The error of their sum, and the root mean square of single ones:

    | text | this | single | four characters per token |
    |---|---|---|---|
    | English documents | 0 % | 11 % | -6 % |
    | Python, C, JavaScript | +1 % | 15 % | -16 % |
    | JSON of agents' conversations | -1 % | 8 % | -14 % |
    | Chinese | -5 % | 10 % | -57 % |
    | Japanese, Korean | +6 % | 7 % | -53 % |
    | thirteen European languages in Latin letters | -8 % | 12 % | -17 % |
    | Cyrillic | 0 % | 13 % | -27 % |
    | base64 | -8 % | 8 % | -63 % |

    Scripts that the vocabulary itself knows badly (Sinhala, Gurmukhi) come out a third too low.
    A longer text never counts less, and two texts together count as much as each alone, give or take 1.
    With `characters_per_token` it is just that: the number of characters divided, rounded up.
    """

    characters_per_token: float | None = None

    def __post_init__(self) -> None:
        given = self.characters_per_token
        if given is not None and (type(given) not in (int, float) or not 0 < given < math.inf):
            raise InvalidValue.of("characters_per_token", given, "a finite number above 0")

    @property
    def name(self) -> str:
        """`estimate`, and how many characters make a token if that was given."""
        return "estimate" if self.characters_per_token is None else f"estimate:characters/{self.characters_per_token:g}"

    def count(self, text: str) -> int:
        """Return the estimate; the work is linear in the text, and none of it is a loop over characters here."""
        if self.characters_per_token is not None:
            return math.ceil(len(text) / self.characters_per_token)
        data = text.encode("utf-8", "surrogatepass")
        sixteenths = 0
        for start in range(0, len(data), _CACHED):
            firsts, seconds = data[start : start + _CACHED], data[start + 1 : start + 1 + _CACHED]
            own = int.from_bytes(firsts.translate(_OWN_BITS), "little")
            offered = int.from_bytes(firsts.translate(_OFFERED_BITS), "little")
            taken = int.from_bytes(seconds.translate(_TAKEN_BITS), "little")
            sixteenths += own.bit_count() + 8 * (offered & taken).bit_count()
        return -(-sixteenths // 16)


class _VocabularyCounter:
    """Counts with a real vocabulary. A control token spelled out in the text is counted as the words it is."""

    __slots__ = ("_encode", "name")

    def __init__(self, name: str, encode: Callable[[str], Sequence[int]]) -> None:
        self.name = name
        self._encode = encode

    def count(self, text: str) -> int:
        text = join_surrogates(text)
        if len(text) <= _PIECE:
            return len(self._encode(text))
        return sum(len(self._encode(text[start : start + _PIECE])) for start in range(0, len(text), _PIECE))


def find_counter(provider: str | None = None, model: str | None = None) -> TokenCounter:
    """Return the best counter at hand for a model; its `name` says which that is.

    The vocabulary of the model's family through splintr (the extra `tokens`), or through tiktoken if that is installed
    and has the vocabulary's file in its cache; the estimate where neither has it. Nothing is ever downloaded. A
    vocabulary is loaded once per process, which takes up to half a second.
    """
    vocabulary = _vocabulary_of(provider, model)
    if not vocabulary:
        return EstimateCounter()
    return _load_splintr(vocabulary) or _load_tiktoken(vocabulary) or EstimateCounter()


def count_message(
    message: Message,
    counter: TokenCounter,
    *,
    include_thinking: bool = False,
    overhead: Overhead = LARGEST_OVERHEAD,
) -> int:
    """Return what a message adds to a request, as `counter` sees it.

    Counted are text; the name and the argument text of a call; what a result says; the text of a provider's item, or
    its JSON where it has no text. Thinking counts only if it is asked for: to most targets it is not sent back. A text
    file with its data counts as its text, other media as `MEDIA_TOKENS` says, wherever their bytes are. What the target
    writes around all that is `overhead`. Opaque provider data counts nothing.
    """
    said = sum(_count_part(part, counter, include_thinking) for part in message.parts)
    return said + count_overhead(message, overhead)


def count_overhead(message: Message, overhead: Overhead) -> int:
    """Return how many of a message's tokens the target writes around what it says."""
    size = overhead.message
    for part in message.parts:
        if isinstance(part, ToolCall):
            size += overhead.call
        elif isinstance(part, ToolResult):
            size += overhead.result + (overhead.part * len(part.content) if isinstance(part.content, tuple) else 0)
        else:
            size += overhead.part
    return size


# A report outside these bounds is mostly about something that was not counted: a conversation that the provider keeps,
# a long hidden prompt above a few words.
_LEAST_RATIO, _GREATEST_RATIO = 0.5, 3.0
_REPORTS_KEPT = 15


class UsageCorrection(msgspec.Struct, frozen=True):
    """How far reported usage lies from our counts: one value per conversation, model and counter.

    The ratio is the median of the newest reports (the upper of the middle two: too much is the safe side), so one odd
    report does not move it, and a model that counts differently has moved it after eight calls.
    """

    ratios: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for ratio in self.ratios:
            if not _LEAST_RATIO <= ratio <= _GREATEST_RATIO:
                raise InvalidValue.of("ratios", ratio, f"from {_LEAST_RATIO} to {_GREATEST_RATIO}")

    @property
    def ratio(self) -> float:
        """Reported tokens for each that we counted; 1 before any report."""
        return sorted(self.ratios)[len(self.ratios) // 2] if self.ratios else 1.0

    def corrected(self, estimate: int) -> int:
        """Return the tokens that a provider would report where we count `estimate`, rounded up."""
        return math.ceil(round(estimate * self.ratio, 6))  # 100 * 1.1 is a little over 110

    def updated_by(self, estimated: int, reported: int | None) -> "UsageCorrection":
        """Return the correction after one answered call: our count for its request, and its `input_tokens`.

        A call that reports nothing, or that we counted as nothing, teaches nothing.
        """
        if estimated <= 0 or not reported or reported < 0:
            return self
        ratio = min(max(reported / estimated, _LEAST_RATIO), _GREATEST_RATIO)
        return UsageCorrection((*self.ratios, ratio)[-_REPORTS_KEPT:])


def _count_part(part: Part, counter: TokenCounter, include_thinking: bool) -> int:
    match part:
        case Text():
            return counter.count(part.text)
        case Thinking():
            return counter.count(part.text) if include_thinking else 0
        case ToolCall():
            said = counter.count(part.tool_name) + counter.count(part.raw_args_text)
            return said + counter.count(part.tool_call_id)
        case ToolResult():
            return counter.count(part.tool_call_id) + _count_result(part, counter)
        case Image() | FileRef():
            return _count_media(part, counter)
        case ProviderItem():
            return counter.count(encode_json(part.item).decode() if part.text is None else part.text)
        case UnknownPart():
            return counter.count(encode_json(part.payload).decode())
        case _:
            assert_never(part)


def _count_result(result: ToolResult, counter: TokenCounter) -> int:
    if isinstance(result.content, str):
        return counter.count(result.content)
    if isinstance(result.content, dict):
        return counter.count(encode_json(result.content).decode())
    return sum(_count_part(part, counter, include_thinking=False) for part in result.content)


_BYTES_PER_TOKEN = 3  # of a text that is not here yet: rather too many tokens than too few


def _count_media(part: Image | FileRef, counter: TokenCounter) -> int:
    text = file_text(part)
    if text is not None:
        return counter.count(text)
    kind = "image" if isinstance(part, Image) else (part.mime_type or "").partition("/")[0]
    if kind == "text" and isinstance(part, FileRef) and part.size is not None:  # by its path: read when it is sent
        return -(-part.size // _BYTES_PER_TOKEN)
    return MEDIA_TOKENS.get(kind, MEDIA_TOKENS["document"])


@lru_cache(256)
def _vocabulary_of(provider: str | None, model: str | None) -> str:
    """Return the name of the vocabulary, empty if none is known."""
    name = (model or "").lower()
    for pattern, vocabulary in _FAMILIES:
        if pattern.search(name):
            return vocabulary
    return _PROVIDERS.get(provider or "", "")


@cache
def _load_splintr(vocabulary: str) -> TokenCounter | None:
    try:
        from splintr import Tokenizer
    except ImportError:
        return None
    try:
        tokenizer = Tokenizer.from_pretrained(vocabulary)
    except ValueError:  # a version without this vocabulary
        return None
    return _VocabularyCounter(f"splintr:{vocabulary}", tokenizer.encode_ordinary)


@cache
def _load_tiktoken(vocabulary: str) -> TokenCounter | None:
    if not _tiktoken_has(vocabulary):
        return None
    try:
        import tiktoken
    except ImportError:
        return None
    return _VocabularyCounter(f"tiktoken:{vocabulary}", tiktoken.get_encoding(vocabulary).encode_ordinary)


def _tiktoken_has(vocabulary: str) -> bool:
    """Whether tiktoken would find the vocabulary in its cache; it downloads what is missing there or damaged."""
    import hashlib
    import os
    import tempfile
    from pathlib import Path

    if vocabulary not in _TIKTOKEN_DIGESTS:
        return False
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder is None:
        folder = str(Path(tempfile.gettempdir(), "data-gym-cache"))
    elif not folder:  # an empty name turns the cache off
        return False
    address = _TIKTOKEN_ADDRESS.format(vocabulary)
    path = Path(folder, hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest())
    try:
        data = path.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(data).hexdigest() == _TIKTOKEN_DIGESTS[vocabulary]
