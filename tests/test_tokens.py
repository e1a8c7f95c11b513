"""Token counts: the estimate beside a real vocabulary, which counter a model gets, messages, what usage corrects."""

import base64
import hashlib
import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.catalogue import list_models
from dragoman.context import tokens
from dragoman.context.tokens import (
    LARGEST_OVERHEAD,
    MEDIA_TOKENS,
    OVERHEADS,
    EstimateCounter,
    Overhead,
    TokenCounter,
    UsageCorrection,
    count_message,
    find_counter,
)
from dragoman.errors import InvalidValue
from dragoman.message import (
    FileRef,
    Image,
    Message,
    Part,
    ProviderItem,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from dragoman.testing.strategies import messages
from tests.token_texts import TEXTS

ESTIMATE = EstimateCounter()
ANY_TEXT = st.text(st.characters())  # lone surrogates too
# Texts in which the classes of bytes alternate more than chance would make them.
MIXED = st.text(
    st.sampled_from("aZ7 \t\n.é\N{GREEK SMALL LETTER PI}ж\N{HEBREW LETTER ALEF}नქ—の中한\uff0c😀\ud800"), max_size=200
)


def vocabulary() -> TokenCounter:
    """Return the vocabulary that the estimate was fitted to."""
    counter = find_counter("openai", "gpt-4o")
    assert counter.name == "splintr:o200k_base"
    return counter


def plainly_estimated(text: str) -> int:
    """Return what the tables of classes and pairs say, added up byte by byte."""
    data = text.encode("utf-8", "surrogatepass")
    class_of = {byte: (name, weight) for name, members, weight in tokens._CLASSES for byte in members}
    sixteenths = sum(class_of[byte][1] for byte in data)
    for first, second in pairwise(data):
        for firsts, seconds, halves in tokens._PAIRS:
            if class_of[first][0] in firsts and class_of[second][0] in seconds:
                sixteenths += 8 * halves
    return math.ceil(sixteenths / 16)


# The estimate.


@pytest.mark.parametrize("name", TEXTS)
def test_the_estimate_is_within_a_quarter_of_the_vocabulary(name: str) -> None:
    counted = vocabulary().count(TEXTS[name])
    assert 0.75 * counted <= ESTIMATE.count(TEXTS[name]) <= 1.25 * counted


def test_on_average_over_the_texts_the_estimate_is_within_a_twentieth() -> None:
    # Each text weighs the same here; by their tokens, base64 would be two fifths of all.
    errors = [ESTIMATE.count(text) / vocabulary().count(text) - 1 for text in TEXTS.values()]
    assert abs(sum(errors) / len(errors)) < 0.05


@pytest.mark.parametrize("name", ["russian", "chinese", "japanese", "korean", "thai", "base64", "hashes"])
def test_four_characters_per_token_are_far_worse_beyond_english(name: str) -> None:
    counted = vocabulary().count(TEXTS[name])
    plain = abs(EstimateCounter(4).count(TEXTS[name]) - counted)
    assert plain > 1.5 * abs(ESTIMATE.count(TEXTS[name]) - counted)


def test_nothing_is_no_token() -> None:
    assert ESTIMATE.count("") == EstimateCounter(4).count("") == vocabulary().count("") == 0


@given(ANY_TEXT.filter(bool))
def test_any_text_is_at_least_one_token(text: str) -> None:
    assert min(counter.count(text) for counter in (ESTIMATE, EstimateCounter(4), vocabulary())) >= 1


@given(ANY_TEXT | MIXED)
def test_the_estimate_is_what_its_tables_say(text: str) -> None:
    assert ESTIMATE.count(text) == plainly_estimated(text)


@pytest.mark.parametrize("shift", range(-2, 3))
def test_the_estimate_of_a_long_text_is_what_its_tables_say(shift: int) -> None:
    text = "." * (tokens._CACHED + shift) + "aB7c" * 20_000 + "中é"
    assert ESTIMATE.count(text) == plainly_estimated(text)


@given(ANY_TEXT | MIXED, ANY_TEXT | MIXED)
def test_two_texts_together_count_as_each_alone_give_or_take_one(left: str, right: str) -> None:
    apart = ESTIMATE.count(left) + ESTIMATE.count(right)
    assert apart - 1 <= ESTIMATE.count(left + right) <= apart + 1


@given(ANY_TEXT | MIXED, ANY_TEXT | MIXED)
def test_a_longer_text_never_counts_less(left: str, right: str) -> None:
    for counter in (ESTIMATE, EstimateCounter(3.5)):
        assert counter.count(left + right) >= max(counter.count(left), counter.count(right))


@given(ANY_TEXT | MIXED)
def test_the_estimate_never_exceeds_two_tokens_a_byte(text: str) -> None:
    assert ESTIMATE.count(text) <= 2 * len(text.encode("utf-8", "surrogatepass"))


@given(ANY_TEXT)
def test_with_characters_per_token_the_estimate_is_just_that(text: str) -> None:
    assert EstimateCounter(4).count(text) == math.ceil(len(text) / 4)
    assert EstimateCounter(characters_per_token=2.5).count(text) == math.ceil(len(text) / 2.5)


@pytest.mark.parametrize("given_number", [0, -1, math.inf, math.nan, True, "4"])
def test_characters_per_token_must_be_a_number_above_zero(given_number: Any) -> None:
    with pytest.raises(InvalidValue, match="characters_per_token must be a finite number above 0"):
        EstimateCounter(given_number)


def test_an_estimate_says_how_it_was_made() -> None:
    assert [EstimateCounter().name, EstimateCounter(4).name] == ["estimate", "estimate:characters/4"]


def test_every_byte_has_one_class() -> None:
    assert sorted(b"".join(members for _, members, _ in tokens._CLASSES)) == list(range(256))


def test_classes_and_pairs_have_no_more_bits_than_a_byte() -> None:
    assert all(0 <= sixteenths <= 8 for _, _, sixteenths in tokens._CLASSES)
    assert sum(halves for _, _, halves in tokens._PAIRS) <= 8


def test_pairs_name_classes() -> None:
    named = {name for firsts, seconds, _ in tokens._PAIRS for name in firsts + seconds}
    assert named <= {name for name, _, _ in tokens._CLASSES}


def test_the_estimate_does_not_loop_over_characters() -> None:
    steps = 0

    def watch(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += 1
        return watch

    text = "word, 中 " * 150_000
    before = sys.gettrace()
    sys.settrace(watch)
    try:
        ESTIMATE.count(text)
    finally:
        sys.settrace(before)
    assert 0 < steps < 1000


# Hostile texts.


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude00", "\ude00-\ud83d", "\ud800" * 1000])
def test_lone_surrogates_are_counted(text: str) -> None:
    for counter in (ESTIMATE, vocabulary()):
        assert 1 <= counter.count(text) <= 3 * len(text)


@pytest.mark.parametrize("unit", ["a", " ", "\n", "\0", "中", "😀", "\ud800", "Zx9"], ids=ascii)
def test_ten_megabytes_are_estimated(unit: str) -> None:
    text = unit * (10_000_000 // len(unit.encode("utf-8", "surrogatepass")))
    assert len(text) / 20 <= ESTIMATE.count(text) <= 3 * len(text)


def test_ten_megabytes_are_counted_piece_by_piece() -> None:
    line = TEXTS["english"] + "\n"
    times = 10_000_000 // len(line)
    assert vocabulary().count(line * times) == pytest.approx(vocabulary().count(line) * times, rel=0.001)


@pytest.mark.parametrize("unit", ["a", " ", "\n", "中"], ids=ascii)
def test_a_run_of_one_character_is_counted(unit: str) -> None:
    assert 1000 < vocabulary().count(unit * 500_000) <= 1_000_000


@pytest.mark.parametrize("model", ["gpt-4o", "qwen3-32b", "mistral-large-3", "gemini-2.5-pro", "glm-4.6"])
@pytest.mark.parametrize("spelled", ["<|endoftext|>", "<|im_start|>", "<start_of_turn>", "[INST]", "</s>"])
def test_a_control_token_spelled_out_is_words(model: str, spelled: str) -> None:
    assert find_counter(None, model).count(spelled) > 1


# Which counter a model gets.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("provider", "model", "name"),
    [
        ("openai", "gpt-5.4-mini", "splintr:o200k_base"),
        ("openai", "o3-deep-research", "splintr:o200k_base"),
        ("openai", "chat-latest", "splintr:o200k_base"),
        ("openai", None, "splintr:o200k_base"),
        ("openai", "ft:gpt-4o-mini:acme::x1", "splintr:o200k_base"),
        ("openai-chat", "gpt-4", "splintr:cl100k_base"),
        ("openai-chat", "gpt-4-turbo", "splintr:cl100k_base"),
        ("azure", "gpt-35-turbo", "splintr:cl100k_base"),
        ("azure", "our-deployment", "splintr:o200k_base"),
        ("groq", "openai/gpt-oss-120b", "splintr:o200k_base"),
        ("openrouter", "openai/o1-pro", "splintr:o200k_base"),
        ("google", "gemini-3-flash-preview", "splintr:gemma3"),
        ("google", None, "splintr:gemma3"),
        ("google", "gemma-3-27b-it", "splintr:gemma3"),
        ("cerebras", "gemma-4-31b", "splintr:gemma4"),
        ("ollama", "gemma2:27b", "splintr:gemma2"),
        ("bedrock", "us.meta.llama3-3-70b-instruct-v1:0", "splintr:llama3"),
        ("groq", "deepseek-r1-distill-llama-70b", "splintr:llama3"),
        ("ollama", "codellama:13b", "splintr:codellama"),
        ("together", "meta-llama/Llama-2-7b-chat-hf", "splintr:llama2"),
        ("together", "Qwen/Qwen3.5-9B", "splintr:qwen3"),
        ("deepseek", "deepseek-chat", "splintr:deepseek_v3"),
        ("fireworks", "accounts/fireworks/models/kimi-k2p5", "splintr:kimi_k2"),
        ("moonshot", "kimi-k3.1-pro", "splintr:kimi_k3"),
        ("mistral", "zai-glm-5", "splintr:glm4"),
        ("mistral", "devstral-latest", "splintr:mistral_v3"),
        ("bedrock", "mistral.mistral-7b-instruct-v0:2", "splintr:mistral_v2"),
        ("huggingface", "microsoft/phi-4", "splintr:phi4"),
        ("huggingface", "allenai/OLMo-2-1124-7B", "splintr:olmo2"),
        ("anthropic", "claude-opus-4-8", "estimate"),
        ("azure", "claude-sonnet-5", "estimate"),
        ("bedrock", "amazon.nova-2-lite", "estimate"),
        ("bedrock", "meta.llama4-scout-17b-instruct", "estimate"),
        ("xai", "grok-4.7", "estimate"),
        ("openai-compatible", "house-model", "estimate"),
        ("huggingface", "EleutherAI/gpt-j-6b", "estimate"),
        (None, None, "estimate"),
    ],
)
def test_a_model_is_counted_by_its_family(provider: str | None, model: str | None, name: str) -> None:
    assert find_counter(provider, model).name == name


def test_every_vocabulary_that_a_family_names_is_there() -> None:
    named = {vocabulary for _, vocabulary in tokens._FAMILIES} | set(tokens._PROVIDERS.values())
    loaded = {vocabulary: tokens._load_splintr(vocabulary) for vocabulary in named - {""}}
    assert [vocabulary for vocabulary, counter in loaded.items() if counter is None] == []


def test_every_model_of_the_catalogue_gets_a_counter_that_counts() -> None:
    for info in list_models():
        assert 1 <= find_counter(info.provider, info.model_id).count("hello") <= 2


def test_a_vocabulary_is_loaded_once() -> None:
    assert find_counter("openai", "gpt-5") is find_counter("groq", "openai/gpt-oss-20b")


def test_a_vocabulary_that_splintr_does_not_have_is_none() -> None:
    assert tokens._load_splintr("no such vocabulary") is None


# What is installed. Each program runs in a fresh interpreter that may not open a connection.

FORBID_NETWORK = """
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise SystemExit(f"{event} {arguments!r}")

sys.addaudithook(refuse)
"""


def printed_by(program: str, *, without: tuple[str, ...] = (), cache: Path | str | None = None) -> str:
    """Return what `program` prints where the packages of `without` cannot be imported."""
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in without)
    environment = {} if cache is None else {"TIKTOKEN_CACHE_DIR": str(cache)}
    command = [sys.executable, "-I", "-W", "error", "-c", FORBID_NETWORK + blocked + program]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, encoding="utf-8")
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.strip()


def counting(model: str) -> str:
    """Return a program that prints which counter it found for an OpenAI model, and what that counts for each text."""
    return (
        "from dragoman.context.tokens import find_counter\n"
        f"counter = find_counter('openai', {model!r})\n"
        f"print(counter.name, *[counter.count(text) for text in {list(TEXTS.values())!a}])\n"
    )


@pytest.fixture(scope="module")
def vocabulary_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that tiktoken would download, written anew from splintr's vocabularies."""
    from splintr import Tokenizer

    folder = tmp_path_factory.mktemp("vocabularies")
    for name, size in (("o200k_base", 199_998), ("cl100k_base", 100_256)):
        read = Tokenizer.from_pretrained(name).decode_token_bytes
        lines = [base64.b64encode(read(rank)) + b" %d\n" % rank for rank in range(size)]
        address = tokens._TIKTOKEN_ADDRESS.format(name)
        (folder / hashlib.sha1(address.encode()).hexdigest()).write_bytes(b"".join(lines))
    return folder


def test_without_any_tokenizer_there_is_the_estimate() -> None:
    printed = printed_by(counting("gpt-5"), without=("splintr", "tiktoken"))
    assert printed.split() == ["estimate", *[str(ESTIMATE.count(text)) for text in TEXTS.values()]]


def test_without_tiktoken_a_cached_file_is_not_enough(vocabulary_files: Path) -> None:
    program = counting("gpt-5")
    assert printed_by(program, without=("splintr", "tiktoken"), cache=vocabulary_files).startswith("estimate ")


@pytest.mark.parametrize(("model", "name"), [("gpt-5", "o200k_base"), ("gpt-4", "cl100k_base")])
def test_tiktoken_counts_the_same_from_its_cache(model: str, name: str, vocabulary_files: Path) -> None:
    counter = find_counter("openai", model)
    assert counter.name == f"splintr:{name}"
    printed = printed_by(counting(model), without=("splintr",), cache=vocabulary_files)
    assert printed.split() == [f"tiktoken:{name}", *[str(counter.count(text)) for text in TEXTS.values()]]


def test_splintr_is_preferred_to_tiktoken(vocabulary_files: Path) -> None:
    assert printed_by(counting("gpt-5"), cache=vocabulary_files).startswith("splintr:o200k_base ")


def test_tiktoken_has_nothing_for_other_families(vocabulary_files: Path) -> None:
    program = counting("qwen3-32b")
    assert printed_by(program, without=("splintr",), cache=vocabulary_files).startswith("estimate ")


@pytest.mark.slow
def test_tiktoken_counts_hostile_texts(vocabulary_files: Path) -> None:
    program = (
        "from dragoman.context.tokens import find_counter\n"
        "counter = find_counter('openai', 'gpt-5')\n"
        "print(counter.name, *[counter.count(text) for text in ('', '\\ud800', ' ' * 500_000, 'a' * 500_000)])\n"
    )
    printed = printed_by(program, without=("splintr",), cache=vocabulary_files).split()
    expected = [vocabulary().count(text) for text in ("", "\ud800", " " * 500_000, "a" * 500_000)]
    assert printed == ["tiktoken:o200k_base", *map(str, expected)]


@pytest.mark.parametrize("cache", ["missing", "damaged", "switched off"])
def test_tiktoken_is_never_made_to_download(cache: str, tmp_path: Path) -> None:
    file = tmp_path / hashlib.sha1(tokens._TIKTOKEN_ADDRESS.format("o200k_base").encode()).hexdigest()
    if cache == "damaged":
        file.write_bytes(b"IQ== 0\n")
    folder = "" if cache == "switched off" else tmp_path
    assert printed_by(counting("gpt-5"), without=("splintr",), cache=folder).startswith("estimate ")
    assert file.exists() == (cache == "damaged")


def test_no_tokenizer_is_loaded_before_it_is_asked_for() -> None:
    program = "import dragoman.context.tokens\nprint({'splintr', 'tiktoken'} & set(sys.modules))"
    assert printed_by(program) == "set()"


# Messages.


NO_OVERHEAD = Overhead(0, 0, 0, 0, 0)


def tokens_of(*parts: Part, **options: bool) -> int:
    """Return what an assistant's message of these parts counts beside its overhead, a character a token."""
    return count_message(Message.assistant(*parts), EstimateCounter(1), overhead=NO_OVERHEAD, **options)


def test_an_empty_message_is_its_overhead() -> None:
    assert count_message(Message.user(), ESTIMATE) == LARGEST_OVERHEAD.message
    for overhead in OVERHEADS.values():
        assert count_message(Message.user(), ESTIMATE, overhead=overhead) == overhead.message


def test_texts_count_each_by_itself() -> None:
    assert tokens_of(Text("four"), Text("three")) == 9


def test_thinking_counts_only_where_it_is_asked_for() -> None:
    assert tokens_of(Thinking("hm"), Text("yes")) == 3
    assert tokens_of(Thinking("hm"), Text("yes"), include_thinking=True) == 5


def test_a_call_counts_its_id_its_name_and_its_argument_text_as_written() -> None:
    assert tokens_of(ToolCall.parse("a-long-identifier", "read", '{ "n" : 1 }')) == 17 + 4 + 11


def test_a_call_whose_arguments_did_not_parse_counts_what_was_written() -> None:
    assert tokens_of(ToolCall.parse("c1", "read", '{"n": ')) == 2 + 4 + 6


@pytest.mark.parametrize(
    ("content", "count"),
    [
        ("done", 4),
        ({"ok": True}, len('{"ok":true}')),
        ((Text("one"), Text("two")), 6),
        ((Text("see"), Image(url="https://example.org/a.png")), 3 + MEDIA_TOKENS["image"]),
        ((), 0),
    ],
)
def test_a_result_counts_what_it_says(content: Any, count: int) -> None:
    message = Message.tool(ToolResult("c1", content))
    assert count_message(message, EstimateCounter(1), overhead=NO_OVERHEAD) == 2 + count


@pytest.mark.parametrize(
    ("part", "count"),
    [
        (Image(mime_type="image/png", data=b"x" * 9000), MEDIA_TOKENS["image"]),
        (Image(url="https://example.org/a.png"), MEDIA_TOKENS["image"]),
        (FileRef(data=b"x", mime_type="image/png"), MEDIA_TOKENS["image"]),
        (FileRef(data=b"x", mime_type="audio/wav"), MEDIA_TOKENS["audio"]),
        (FileRef(url="https://example.org/a.mp4", mime_type="video/mp4"), MEDIA_TOKENS["video"]),
        (FileRef(data=b"%PDF", mime_type="application/pdf"), MEDIA_TOKENS["document"]),
        (FileRef(file_id="file-1"), MEDIA_TOKENS["document"]),
        (FileRef(path="notes.txt", mime_type="text/plain"), MEDIA_TOKENS["document"]),
        (FileRef(data="naïve".encode(), mime_type="text/plain"), 5),
        (FileRef(data=b"ab\xff", mime_type="text/csv"), 3),
    ],
)
def test_media_count_by_their_kind(part: Part, count: int) -> None:
    assert count_message(Message.user(part), EstimateCounter(1), overhead=NO_OVERHEAD) == count


def test_a_provider_item_counts_its_text_or_else_its_json() -> None:
    assert tokens_of(ProviderItem("web_search_call", {"id": "ws_1"}, "searched")) == 8
    assert tokens_of(ProviderItem("web_search_call", {"id": "ws_1"})) == len('{"id":"ws_1"}')


def test_a_part_of_a_later_version_counts_its_json() -> None:
    assert tokens_of(UnknownPart("hologram", {"w": 1})) == len('{"w":1}')


@given(messages(text=ANY_TEXT))
def test_any_message_is_counted(message: Message) -> None:
    without, whole = (count_message(message, ESTIMATE, include_thinking=thinking) for thinking in (False, True))
    assert LARGEST_OVERHEAD.message <= without <= whole


# The correction by reported usage.

COUNTS = st.integers(1, 1_000_000)
CALLS = st.lists(st.tuples(COUNTS, COUNTS), max_size=40)


def learned(*calls: tuple[int, int | None]) -> UsageCorrection:
    """Return what is learned from these calls, each our count and the reported one."""
    correction = UsageCorrection()
    for estimated, reported in calls:
        correction = correction.updated_by(estimated, reported)
    return correction


def test_before_any_report_nothing_is_corrected() -> None:
    assert (UsageCorrection().ratio, UsageCorrection().corrected(1234)) == (1.0, 1234)


def test_one_report_sets_the_ratio() -> None:
    assert learned((100, 110)).corrected(100) == 110


def test_an_odd_report_does_not_move_the_ratio() -> None:
    assert learned(*[(100, 120)] * 5, (100, 9000), (100, 1)).corrected(1000) == 1200


def test_of_two_reports_the_greater_is_taken() -> None:
    assert learned((100, 120), (100, 140)).ratio == learned((100, 140), (100, 120)).ratio == 1.4


def test_a_lasting_change_is_learned_after_eight_reports() -> None:
    assert learned(*[(100, 100)] * 50, *[(100, 150)] * 7).ratio == 1.0
    assert learned(*[(100, 100)] * 50, *[(100, 150)] * 8).ratio == 1.5


@pytest.mark.parametrize("call", [(0, 100), (-5, 100), (100, 0), (100, None), (100, -1)])
def test_a_call_that_says_nothing_teaches_nothing(call: tuple[int, int | None]) -> None:
    before = learned((100, 130))
    assert before.updated_by(*call) is before


def test_a_correction_is_rounded_up() -> None:
    assert learned((100, 101)).corrected(1) == 2
    assert learned((100, 1)).corrected(1) == 1


@given(CALLS, st.integers(0, 1_000_000))
def test_a_correction_stays_within_a_half_and_three_times(calls: list[tuple[int, int]], estimate: int) -> None:
    correction = learned(*calls)
    assert 0.5 <= correction.ratio <= 3
    assert estimate / 2 <= correction.corrected(estimate) <= 3 * estimate
    assert len(correction.ratios) <= 15


@given(CALLS, COUNTS, COUNTS)
def test_a_greater_estimate_is_never_corrected_to_less(calls: list[tuple[int, int]], one: int, other: int) -> None:
    correction = learned(*calls)
    assert correction.corrected(min(one, other)) <= correction.corrected(max(one, other))


@given(CALLS, COUNTS, COUNTS)
def test_a_correction_is_a_value(calls: list[tuple[int, int]], estimated: int, reported: int) -> None:
    correction = learned(*calls)
    kept = correction.ratios
    assert correction.updated_by(estimated, reported) == learned(*calls, (estimated, reported))
    assert correction.ratios == kept


@pytest.mark.parametrize("ratio", [0.0, 0.49, 3.01, math.inf, math.nan, -1.0])
def test_a_ratio_outside_the_range_is_refused(ratio: float) -> None:
    with pytest.raises(InvalidValue, match=r"ratios must be from 0\.5 to 3\.0"):
        UsageCorrection((1.0, ratio))
