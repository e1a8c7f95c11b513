"""Settings of models, tools and agents: what each takes, and that it refuses the rest in plain words."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from dragoman import (
    AgentConfig,
    CacheConfig,
    ContextConfig,
    InvalidValue,
    LoopConfig,
    ModelConfig,
    ObservabilityConfig,
    OneTool,
    Reasoning,
    RuntimeConfig,
    ToolsConfig,
    ToolSpec,
)
from dragoman.request import ModelInfo
from dragoman.usage import Prices

NAN, INFINITY = float("nan"), float("inf")


class Refused(NamedTuple):
    """A construction that must fail, and what its error must name: the field, what was seen, what is allowed."""

    build: Callable[..., object]
    given: dict[str, Any]
    field: str
    seen: str
    allowed: str


def model(**given: object) -> dict[str, Any]:
    return {"model_id": "m", **given}


def info(**given: object) -> dict[str, Any]:
    return {"provider": "p", "model_id": "m", **given}


def spec(**given: object) -> dict[str, Any]:
    return {"name": "f", **given}


def agent(**given: object) -> dict[str, Any]:
    return {"model": ModelConfig("m"), **given}


DEEP: dict[str, Any] = {}
for _ in range(300):
    DEEP = {"deeper": DEEP}

REFUSED = [
    Refused(ModelConfig, {"model_id": ""}, "modelId", "''", "non-empty text"),
    Refused(ModelConfig, {"model_id": None}, "modelId", "None", "non-empty text"),
    Refused(ModelConfig, model(temperature=-0.1), "temperature", "-0.1", "from 0 to 2"),
    Refused(ModelConfig, model(temperature=2.1), "temperature", "2.1", "from 0 to 2"),
    Refused(ModelConfig, model(temperature=NAN), "temperature", "nan", "from 0 to 2"),
    Refused(ModelConfig, model(temperature="1"), "temperature", "'1'", "a number"),
    Refused(ModelConfig, model(temperature=True), "temperature", "True", "a number"),
    Refused(ModelConfig, model(max_tokens=0), "maxTokens", "0", "a whole number from 1 up"),
    Refused(ModelConfig, model(max_tokens=1.5), "maxTokens", "1.5", "a whole number from 1 up"),
    Refused(ModelConfig, model(max_tokens=True), "maxTokens", "True", "a whole number from 1 up"),
    Refused(ModelConfig, model(top_p=1.01), "topP", "1.01", "from 0 to 1"),
    Refused(ModelConfig, model(top_p=-1), "topP", "-1", "from 0 to 1"),
    Refused(ModelConfig, model(stop_sequences="stop"), "stopSequences", "stop", "a sequence of texts"),
    Refused(ModelConfig, model(stop_sequences=(5,)), "stopSequences", "5", "text"),
    Refused(ModelConfig, model(stop_sequences=None), "stopSequences", "None", "a sequence of texts"),
    Refused(ModelConfig, model(stop_sequences=("",)), "stopSequences", "''", "non-empty"),
    Refused(ModelConfig, model(tool_choice="maybe"), "toolChoice", "'maybe'", "'auto', 'required', 'none' or OneTool"),
    Refused(ModelConfig, model(tool_choice=["auto"]), "toolChoice", "list", "'auto', 'required', 'none' or OneTool"),
    Refused(ModelConfig, model(cache_config="auto"), "cacheConfig", "'auto'", "a CacheConfig"),
    Refused(ModelConfig, model(hosted_tools=5), "hostedTools", "5", "a sequence of HostedTool"),
    Refused(ModelConfig, model(hosted_tools="x"), "hostedTools", "'x'", "a sequence of HostedTool"),
    Refused(ModelConfig, model(hosted_tools=["web_search"]), "hostedTools", "list", "a sequence of HostedTool"),
    Refused(ModelConfig, model(parallel_tool_calls="no"), "parallelToolCalls", "'no'", "true or false"),
    Refused(Reasoning, {"summary": 1}, "reasoning.summary", "1", "true or false"),
    Refused(ModelConfig, model(extensions=[]), "extensions", "list", "object"),
    Refused(ModelConfig, model(extensions={"a": NAN}), "extensions", "nan", "JSON"),
    Refused(ModelConfig, model(extensions={"a": {1}}), "extensions", "set", "dict, list, str"),
    Refused(CacheConfig, {"strategy": "always"}, "cacheConfig.strategy", "'always'", "auto"),
    Refused(CacheConfig, {"strategy": None}, "cacheConfig.strategy", "None", "auto"),
    Refused(CacheConfig, {"strategy": []}, "cacheConfig.strategy", "list", "auto"),
    Refused(ModelInfo, info(provider=""), "provider", "''", "non-empty text"),
    Refused(ModelInfo, info(model_id=5), "modelId", "5", "non-empty text"),
    Refused(ModelInfo, info(context_window=0), "contextWindow", "0", "a whole number from 1 up"),
    Refused(ModelInfo, info(context_window="8k"), "contextWindow", "'8k'", "a whole number from 1 up"),
    Refused(ModelInfo, info(output_limit=-5), "outputLimit", "-5", "a whole number from 1 up"),
    Refused(ModelInfo, info(input_modalities="text"), "inputModalities", "text", "a sequence of texts"),
    Refused(ModelInfo, info(output_modalities=(5,)), "outputModalities", "5", "text"),
    Refused(ModelInfo, info(abilities="tools"), "abilities", "tools", "texts"),
    Refused(ModelInfo, info(abilities=5), "abilities", "5", "texts"),
    Refused(ModelInfo, info(prices={"input": 1}), "prices", "dict", "Prices"),
    Refused(ToolSpec, {"name": ""}, "name", "''", "1 to 128 visible characters"),
    Refused(ToolSpec, {"name": "two words"}, "name", "'two words'", "1 to 128 visible characters"),
    Refused(ToolSpec, {"name": "line\n"}, "name", "'line\\n'", "1 to 128 visible characters"),
    Refused(ToolSpec, {"name": "a\x00b"}, "name", "'a\\x00b'", "1 to 128 visible characters"),
    Refused(ToolSpec, {"name": "n" * 129}, "name", "a str", "1 to 128 visible characters"),
    Refused(ToolSpec, {"name": None}, "name", "None", "1 to 128 visible characters"),
    Refused(ToolSpec, spec(description=5), "description of tool 'f'", "5", "text"),
    Refused(ToolSpec, spec(parameter_schema=None), "parameterSchema of tool 'f'", "None", "object"),
    Refused(ToolSpec, spec(parameter_schema={"type": "array"}), "parameterSchema of tool 'f'", "'array'", "'object'"),
    Refused(ToolSpec, spec(parameter_schema={"type": ["object"]}), "parameterSchema of tool 'f'", "list", "'object'"),
    Refused(ToolSpec, spec(parameter_schema=DEEP), "parameterSchema of tool 'f'", "deeper", "200"),
    Refused(ToolSpec, spec(strict="yes"), "strict of tool 'f'", "'yes'", "true or false"),
    Refused(ToolSpec, spec(strict=1), "strict of tool 'f'", "1", "true or false"),
    Refused(OneTool, {"tool_name": ""}, "toolName", "''", "non-empty text"),
    Refused(OneTool, {"tool_name": None}, "toolName", "None", "non-empty text"),
    Refused(RuntimeConfig, {"root": ""}, "runtime.root", "''", "non-empty text"),
    Refused(RuntimeConfig, {"options": None}, "runtime.options", "None", "object"),
    Refused(ToolsConfig, {"enabled": "search"}, "tools.enabled", "search", "a sequence of texts"),
    Refused(ToolsConfig, {"enabled": (1,)}, "tools.enabled", "1", "text"),
    Refused(ToolsConfig, {"disabled": None}, "tools.disabled", "None", "a sequence of texts"),
    Refused(ToolsConfig, {"enabled": ("a", "b"), "disabled": ("b",)}, "tools.disabled", "'b'", "must not share"),
    Refused(ToolsConfig, {"approval": "sometimes"}, "tools.approval", "'sometimes'", "as_declared, always, never"),
    Refused(ToolsConfig, {"parallel_limit": 0}, "tools.parallelLimit", "0", "a whole number from 1 up"),
    Refused(ToolsConfig, {"timeout_ms": 0.5}, "tools.timeoutMs", "0.5", "a whole number from 1 up"),
    Refused(ToolsConfig, {"timeout_ms": None}, "tools.timeoutMs", "None", "a whole number from 1 up"),
    Refused(ToolsConfig, {"result_limit_bytes": -1}, "tools.resultLimitBytes", "-1", "a whole number from 1 up"),
    Refused(ContextConfig, {"policy": "newest"}, "context.policy", "'newest'", "epochs, simple"),
    Refused(ContextConfig, {"budget_tokens": 10}, "context.budgetTokens", "10", "from 2000 up"),
    Refused(ContextConfig, {"output_reserve": -1}, "context.outputReserve", "-1", "from 0 up"),
    Refused(LoopConfig, {"max_iterations": 0}, "loop.maxIterations", "0", "a whole number from 1 up"),
    Refused(LoopConfig, {"max_iterations": None}, "loop.maxIterations", "None", "a whole number from 1 up"),
    Refused(LoopConfig, {"attempts": 0}, "loop.attempts", "0", "a whole number from 1 up"),
    Refused(LoopConfig, {"max_tool_rounds": 0}, "loop.maxToolRounds", "0", "a whole number from 1 up"),
    Refused(LoopConfig, {"max_tokens": 1.0}, "loop.maxTokens", "1.0", "a whole number from 1 up"),
    Refused(LoopConfig, {"max_seconds": -1}, "loop.maxSeconds", "-1", "from 0 up"),
    Refused(LoopConfig, {"max_seconds": NAN}, "loop.maxSeconds", "nan", "from 0 up"),
    Refused(LoopConfig, {"max_cost": "1"}, "loop.maxCost", "'1'", "a number from 0 up"),
    Refused(LoopConfig, {"backoff_seconds": None}, "loop.backoffSeconds", "None", "a number from 0 up"),
    Refused(
        LoopConfig, {"backoff_seconds": 5, "backoff_limit_seconds": 1}, "loop.backoffLimitSeconds", "1", "from 5 up"
    ),
    Refused(
        ObservabilityConfig, {"log_level": "loud"}, "observability.logLevel", "'loud'", "debug, info, warning, error"
    ),
    Refused(ObservabilityConfig, {"traces": 1}, "observability.traces", "1", "true or false"),
    Refused(ObservabilityConfig, {"metrics": None}, "observability.metrics", "None", "true or false"),
    Refused(ObservabilityConfig, {"record_content": "no"}, "observability.recordContent", "'no'", "true or false"),
    Refused(AgentConfig, {"model": "m"}, "model", "'m'", "a ModelConfig"),
    Refused(AgentConfig, {"model": 5}, "model", "5", "a ModelConfig"),
    Refused(AgentConfig, agent(runtime={}), "runtime", "dict", "a RuntimeConfig"),
    Refused(AgentConfig, agent(tools=None), "tools", "None", "a ToolsConfig"),
    Refused(AgentConfig, agent(context=ToolsConfig()), "context", "ToolsConfig", "a ContextConfig"),
    Refused(AgentConfig, agent(loop=5), "loop", "5", "a LoopConfig"),
    Refused(AgentConfig, agent(observability="off"), "observability", "'off'", "a ObservabilityConfig"),
]


def plain(name: str) -> str:
    """The field without its spelling: camelCase and snake_case are the same name."""
    return name.replace("_", "").lower()


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case.build.__name__}-{case.field}-{case.seen}")
def test_a_setting_out_of_bounds_is_refused_by_field_value_and_what_is_allowed(case: Refused) -> None:
    with pytest.raises(InvalidValue) as raised:
        case.build(**case.given)
    message = str(raised.value)
    assert plain(case.field) in plain(message)
    assert case.seen in message
    assert case.allowed in message


def test_the_bounds_themselves_are_allowed() -> None:
    ModelConfig("m", temperature=0, max_tokens=1, top_p=0)
    ModelConfig("m", temperature=2, top_p=1)
    ModelInfo(provider="p", model_id="m", context_window=1, output_limit=1)
    ToolSpec("n" * 128)
    ToolsConfig(parallel_limit=1, timeout_ms=1, result_limit_bytes=1)
    ContextConfig(budget_tokens=2_000, output_reserve=0)
    LoopConfig(max_iterations=1, attempts=1, max_tool_rounds=1, max_seconds=0, max_tokens=1, max_cost=0)
    LoopConfig(backoff_seconds=1, backoff_limit_seconds=1)


@pytest.mark.parametrize("choice", ["auto", "required", "none", OneTool("search"), None])
def test_every_tool_choice_is_allowed(choice: Any) -> None:
    assert ModelConfig("m", tool_choice=choice).tool_choice == choice


@pytest.mark.parametrize("name", ["search", "mcp__server__tool", "名前", "a.b/c:d-e"])
def test_a_tool_name_may_have_any_characters_but_spaces_and_controls(name: str) -> None:
    assert ToolSpec(name).name == name


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    assert ToolSpec("f").parameter_schema == {"type": "object", "properties": {}}


def test_two_tools_without_parameters_share_nothing() -> None:
    ToolSpec("f").parameter_schema["properties"]["x"] = {}
    assert ToolSpec("g").parameter_schema == {"type": "object", "properties": {}}


def test_two_configs_share_no_extensions() -> None:
    ModelConfig("a").extensions["x"] = 1
    RuntimeConfig().options["x"] = 1
    assert ModelConfig("b").extensions == {}
    assert RuntimeConfig().options == {}


def test_extensions_pass_through_untouched() -> None:
    extensions: dict[str, Any] = {"reasoning_effort": "high", "nested": [{"a": None}]}
    assert ModelConfig("m", extensions=extensions).extensions == extensions


def test_lists_of_names_become_tuples_in_the_same_order() -> None:
    names: Any = ["b", "a"]
    assert ModelConfig("m", stop_sequences=names).stop_sequences == ("b", "a")
    assert ToolsConfig(enabled=names).enabled == ("b", "a")


def test_a_set_of_names_becomes_a_sorted_tuple() -> None:
    names: Any = {"c", "a", "b"}
    assert ToolsConfig(disabled=names).disabled == ("a", "b", "c")


def test_no_enabled_tools_is_not_the_same_as_all() -> None:
    assert ToolsConfig(enabled=()).enabled == ()
    assert ToolsConfig().enabled is None


def test_an_agent_has_six_groups_and_needs_only_a_model() -> None:
    config = AgentConfig(model=ModelConfig("m"))
    assert AgentConfig.__struct_fields__ == ("model", "runtime", "tools", "context", "loop", "observability")
    assert (config.runtime, config.tools) == (RuntimeConfig(), ToolsConfig())
    assert (config.context, config.loop, config.observability) == (ContextConfig(), LoopConfig(), ObservabilityConfig())


def test_content_is_not_told_to_the_outside_by_default() -> None:
    assert ObservabilityConfig().record_content is False


def test_what_is_not_known_of_a_model_is_none() -> None:
    info = ModelInfo(provider="p", model_id="m")
    assert (info.context_window, info.output_limit, info.prices) == (None, None, None)


def test_a_model_may_have_prices() -> None:
    assert ModelInfo(provider="p", model_id="m", prices=Prices(3, 15)).prices == Prices(3, 15)


@pytest.mark.parametrize(
    "value",
    [
        ModelConfig("m"),
        CacheConfig(),
        ModelInfo(provider="p", model_id="m"),
        ToolSpec("f"),
        OneTool("f"),
        AgentConfig(model=ModelConfig("m")),
        RuntimeConfig(),
        ToolsConfig(),
        ContextConfig(),
        LoopConfig(),
        ObservabilityConfig(),
        Prices(1, 2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_setting_cannot_be_changed(value: Any) -> None:
    for name in value.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(value, name, None)


def test_a_refusal_says_nothing_of_long_text() -> None:
    description = "what the tool does, in the words of whoever wrote it, at length"
    with pytest.raises(InvalidValue) as raised:
        ToolSpec("f", parameter_schema={"type": description})
    assert "words" not in str(raised.value)
