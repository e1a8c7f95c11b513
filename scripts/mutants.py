"""The mutants of one module: every small change of its source that a test should notice. Knows nothing of tests.

Not mutated: docstrings, annotations, imports, assertions, `__all__`, `__slots__`, type variables, and what stands in a
`raise` or an f-string, or names a field in a `require_…`: texts for people are read by people.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
REMOVABLE = (ast.Expr, ast.AugAssign, ast.Raise, ast.Delete, ast.Break, ast.Continue)
UNREAD = (ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr, ast.Global, ast.Nonlocal)
UNREAD_NAMES = {"__all__", "__slots__", "__hash__"}
UNREAD_KEYWORDS = {"kw_only", "repr_omit_defaults"}  # of a class: mypy sees the one, people the other
UNREAD_CALLS = {"TypeVar", "ParamSpec", "NewType", "cast", "overload", "getLogger"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Mutant:
    """One change of one module. `function` is empty for code that runs when the module is imported."""

    path: Path
    index: int  # among the mutants of its module
    place: str  # the class and function that hold it, or `<module>`
    function: str
    before: str
    after: str
    lines: frozenset[int]
    apply: Callable[[], None] = field(repr=False)
    ordinal: int = 1  # among the equal changes of its place

    @property
    def text(self) -> str:
        """The mutant as `tests/mutants.md` names it, without line numbers, which change too often."""
        number = f" (no. {self.ordinal})" if self.ordinal > 1 else ""
        return f"{self.place}: `{self.before}` → `{self.after}`{number}"

    @property
    def rank(self) -> str:
        """Where it comes in the order that samples are taken from; a change elsewhere in the code does not move it."""
        return hashlib.sha256(f"{self.path.name} {self.text}".encode()).hexdigest()


def find_mutants(path: Path) -> list[Mutant]:
    """Return every mutant of the module at this path, in the order of the source."""
    return _Finder(path).find()


def compile_mutant(path: Path, index: int) -> CodeType:
    """Return the code of the module at this path with its mutant of this index."""
    finder = _Finder(path)
    finder.find()[index].apply()
    return compile(ast.fix_missing_locations(finder.tree), str(path), "exec", dont_inherit=True)


class _Finder:
    """Walks one module. Each mutant changes the walked tree itself, so that only one of them may be applied."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.found: list[Mutant] = []
        self.scopes: list[str] = []
        self.function = ""
        self.statement: ast.stmt = self.tree.body[0]

    def find(self) -> list[Mutant]:
        self._visit_body(self.tree.body)
        counts: Counter[str] = Counter()
        numbered: list[Mutant] = []
        for mutant in self.found:
            counts[mutant.text] += 1
            numbered.append(replace(mutant, index=len(numbered), ordinal=counts[mutant.text]))
        return numbered

    def _visit_body(self, body: list[ast.stmt]) -> None:
        for index, statement in enumerate(body):
            is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not is_docstring and not _is_unread(statement):
                self.statement = statement
                self._remove_statement(body, index)
                if not isinstance(statement, ast.Raise):
                    self._visit(statement)

    def _visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            self._visit_definition(node)
            return
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "type_params"}:
                continue
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                self._visit_body(value)
            elif isinstance(value, list):
                for index, each in enumerate(value):
                    if isinstance(each, ast.AST):
                        self._visit_child(node, each, _setter_of_item(value, index))
            elif isinstance(value, ast.AST):
                self._visit_child(node, value, _setter_of_field(node, name))

    def _visit_child(self, parent: ast.AST, node: ast.AST, put: Callable[[ast.AST], None]) -> None:
        if isinstance(parent, ast.Call) and isinstance(node, ast.keyword) and node.arg == "strict":
            return  # of `zip`: an assertion
        if isinstance(node, UNREAD) or (isinstance(node, ast.Call) and _name_of(node.func) in UNREAD_CALLS):
            return
        for changed in _changes(parent, node):
            self._note(node, changed, put)
        self._visit(node)

    def _visit_definition(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if isinstance(node, FUNCTIONS):
            if any(_name_of(each) in {"overload", "abstractmethod"} for each in node.decorator_list):
                return
            self.scopes.append(node.name)
            self._visit(node.args)  # the defaults, which are values of the enclosing scope
            outer, self.function = self.function, self.function or ".".join(self.scopes)
            self._visit_body(node.body)
            self.function = outer
            self.scopes.pop()
            return
        self.scopes.append(node.name)
        for index, keyword in enumerate(node.keywords):
            if keyword.arg not in UNREAD_KEYWORDS:
                self.statement = node
                self._visit_child(node, keyword, _setter_of_item(node.keywords, index))
        self._visit_body(node.body)
        self.scopes.pop()

    def _remove_statement(self, body: list[ast.stmt], index: int) -> None:
        statement = body[index]
        sets_a_field = isinstance(statement, ast.Assign) and not isinstance(statement.targets[0], ast.Name | ast.Tuple)
        is_abstract = isinstance(statement, ast.Raise) and _source(statement) == "raise NotImplementedError"
        if sets_a_field or (isinstance(statement, REMOVABLE) and not is_abstract):
            self._note(statement, ast.Pass(), _setter_of_item(body, index))
        if isinstance(statement, ast.Break | ast.Continue):
            other = ast.Continue() if isinstance(statement, ast.Break) else ast.Break()
            self._note(statement, other, _setter_of_item(body, index))

    def _note(self, node: ast.AST, changed: ast.AST, put: Callable[[ast.AST], None]) -> None:
        first = getattr(node, "lineno", self.statement.lineno)
        last = getattr(node, "end_lineno", first)

        def apply() -> None:
            put(ast.copy_location(changed, node))

        mutant = Mutant(
            self.path,
            len(self.found),
            ".".join(self.scopes) or "<module>",
            self.function,
            _source(node),
            _source(changed),
            frozenset({*range(first, last + 1), self.statement.lineno}),
            apply,
        )
        self.found.append(mutant)


def _changes(parent: ast.AST, node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in place of this node."""
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                changed = deepcopy(node)
                changed.ops[index] = COMPARISONS[type(operator)]()
                yield changed
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.BinOp():
            yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
        case ast.Constant():
            yield from _changed_constants(parent, node)
        case ast.Call():
            for left_out in node.keywords:
                if left_out.arg != "strict":  # of `zip`: an assertion
                    kept = [keyword for keyword in node.keywords if keyword is not left_out]
                    yield ast.Call(node.func, node.args, kept)
    if isinstance(node, ast.expr) and _is_condition(parent, node):
        yield ast.UnaryOp(ast.Not(), node)
    if isinstance(parent, ast.Return) and not (isinstance(node, ast.Constant) and node.value is None):
        yield ast.Constant(None)
    if isinstance(parent, ast.AugAssign) and isinstance(node, ast.operator):
        yield OPERATORS[type(node)]()


def _changed_constants(parent: ast.AST, node: ast.Constant) -> Iterator[ast.Constant]:
    match node.value:
        case bool():
            yield ast.Constant(not node.value)
        case int() | float():
            yield ast.Constant(node.value + 1)
        case str() if not _names_a_field(parent):
            yield ast.Constant(f"{node.value}XX")
        case bytes():
            yield ast.Constant(node.value + b"XX")


def _names_a_field(parent: ast.AST) -> bool:
    """Whether a text in this call says in an error what was wrong."""
    name = _name_of(parent.func) if isinstance(parent, ast.Call) else ""
    return name.lstrip("_").startswith(("require", "refuse")) or name in {"as_word", "corrupt"}


def _is_condition(parent: ast.AST, node: ast.expr) -> bool:
    """Whether this is a condition that no other change of it negates."""
    if isinstance(node, ast.Compare | ast.UnaryOp | ast.Constant):
        return False
    match parent:
        case ast.If() | ast.While() | ast.IfExp():
            return node is parent.test
        case ast.comprehension():
            return node in parent.ifs
        case ast.match_case():
            return node is parent.guard
        case ast.BoolOp():
            return True
    return False


def _is_unread(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]):
            value = statement.value
            return name in UNREAD_NAMES or (isinstance(value, ast.Call) and _name_of(value.func) in UNREAD_CALLS)
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")) | ast.AnnAssign(target=ast.Name(id="RULES")):
            return True  # an alias, or the texts of errors
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Expr(value=ast.Constant()):
            return True
    return isinstance(statement, UNREAD)


def _name_of(node: ast.expr) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case ast.Call():
            return _name_of(node.func)
    return ""


def _source(node: ast.AST) -> str:
    if isinstance(node, ast.operator):
        return type(node).__name__
    return " ".join(ast.unparse(ast.fix_missing_locations(node)).split())


def _setter_of_item(items: list[ast.AST] | list[ast.stmt] | list[ast.keyword], index: int) -> Callable[[ast.AST], None]:
    def put(node: ast.AST) -> None:
        items[index] = node  # type: ignore[call-overload]  # a node of the kind that stood there

    return put


def _setter_of_field(parent: ast.AST, name: str) -> Callable[[ast.AST], None]:
    def put(node: ast.AST) -> None:
        setattr(parent, name, node)

    return put
