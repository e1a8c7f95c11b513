"""Arithmetic that a model may ask for: an expression in, a number out. Nothing is ever evaluated as Python.

The text may hold numbers, operators, brackets and the names below, nothing else; what is not in the tables is refused,
and no step may make a number that is too large to be cheap.
"""

import ast
import math
import re
from collections.abc import Callable
from typing import TypeAlias

from ...errors import ErrorCode, ToolError

__all__ = ["calculate"]

LONGEST = 500  # characters
MOST_NODES = 250
MOST_BITS = 4_096  # of a whole number
LARGEST_FACTORIAL = 500
MOST_DIGITS = 300

Number: TypeAlias = int | float

# ---------------------------------------------------------------- steps that could become expensive


def _small(number: object) -> Number:
    """Return the number; raise ToolError if it is too large, or no real number."""
    if isinstance(number, int) and number.bit_length() > MOST_BITS:
        raise OverflowError("the result is too large")
    if not isinstance(number, (int, float)):
        raise ValueError("the result is no real number")  # noqa: TRY004  # a root of a negative number
    return number


def _multiplied(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MOST_BITS + 1:
        raise OverflowError("the result is too large")
    return left * right


def _raised(base: Number, exponent: Number) -> Number:
    is_whole = isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1
    if is_whole and (int(abs(base)).bit_length() - 1) * abs(exponent) > MOST_BITS:
        raise OverflowError("the result is too large")
    return _small(base**exponent)


def _rounded(number: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > MOST_DIGITS:  # Python would make ten to that power
        raise ValueError(f"round takes whole numbers of digits up to {MOST_DIGITS}")
    return round(number, digits) if digits else round(number)


def _factorial(number: Number) -> int:
    if not isinstance(number, int) or number > LARGEST_FACTORIAL:
        raise ValueError(f"factorial takes whole numbers up to {LARGEST_FACTORIAL}")
    return math.factorial(number)


# ---------------------------------------------------------------- what there is

_CONSTANTS: dict[str, Number] = {"pi": math.pi, "e": math.e, "tau": math.tau}
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "abs": abs,
    "acos": math.acos,
    "asin": math.asin,
    "atan": math.atan,
    "atan2": math.atan2,
    "ceil": math.ceil,
    "cos": math.cos,
    "degrees": math.degrees,
    "exp": math.exp,
    "factorial": _factorial,
    "floor": math.floor,
    "gcd": math.gcd,
    "hypot": math.hypot,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "max": lambda *numbers: max(numbers),
    "min": lambda *numbers: min(numbers),
    "radians": math.radians,
    "round": _rounded,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tan": math.tan,
}
_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: _multiplied,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: _raised,
}
_SIGNS: dict[type[ast.unaryop], Callable[[Number], Number]] = {ast.UAdd: lambda a: a, ast.USub: lambda a: -a}

# What people write for the operators.
_SPELLINGS = str.maketrans(
    {"\N{MULTIPLICATION SIGN}": "*", "·": "*", "÷": "/", "\N{MINUS SIGN}": "-", "^": "**"}  # as calculators have them
)
_TOKEN = re.compile(
    r"\s+|(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?|[A-Za-z_]\w*|\*\*|//|[-+*/%(),]", re.ASCII
)


def calculate(expression: str) -> Number:
    """Return what an expression comes to; raise ToolError for what is none, or would take too long."""
    if len(expression) > LONGEST:
        raise _refused(f"it is longer than {LONGEST} characters")
    text = expression.translate(_SPELLINGS).strip()
    _require_tokens(text)
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _refused("it is no arithmetic expression") from None
    if sum(1 for _ in ast.walk(tree)) > MOST_NODES:
        raise _refused("it has too many parts")
    try:
        result = _value(tree.body)
    except ZeroDivisionError:
        raise _refused("it divides by zero") from None
    except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
        raise _refused(f"{error.args[-1] if error.args else 'it fails'}") from None
    if isinstance(result, float) and not math.isfinite(result):
        raise _refused("the result is no finite number")
    return result


def _require_tokens(text: str) -> None:
    """Refuse what no arithmetic has before Python's own parser sees it."""
    offset = 0
    while offset < len(text):
        found = _TOKEN.match(text, offset)
        if found is None:
            raise _refused(f"{text[offset]!r} has no offset in it")
        word = found[0]
        is_name = word[0].isalpha() or word[0] == "_"
        if is_name and word not in _FUNCTIONS and word not in _CONSTANTS:
            known = ", ".join((*_CONSTANTS, *_FUNCTIONS))
            raise _refused(f"{word[:40]!r} is not known; known are {known}")
        offset = found.end()


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _small(number)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_value(operand))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _small(_OPERATORS[type(operator)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _small(_FUNCTIONS[name](*(_value(argument) for argument in arguments)))
    raise _refused("it is no arithmetic expression")


def _refused(why: str) -> ToolError:
    return ToolError(f"The expression cannot be computed: {why}.", code=ErrorCode.TOOL_FAILED)
