"""Integer index expressions: polynomials over loop variables and sizes, with floor division and remainder.

Views of a tensor (permute, expand, slice, reshape) are maps between such expressions, so no data moves. The simplifier
knows the range of each loop variable, which turns most `//` and `%` that reshapes bring along into plain sums.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from kernelwright.core.dimensions import Dim

AtomKind = Literal["size", "var", "floordiv", "mod", "max", "min", "dim", "element", "wrap"]


@dataclass(frozen=True, eq=False)
class Atom:
    """What a polynomial is made of.

    `size`: a named axis (at least 1). `var`: a loop variable in `[0, extent)`. `dim`: a size that is a sum, kept whole.
    `element`: an integer read from a tensor (`source` at `args`). `wrap`: `args[0]`, plus `args[1]` where negative.
    """

    kind: AtomKind
    name: str = ""
    args: tuple[Expr, ...] = ()
    source: object = None
    key: str = field(init=False)

    def __post_init__(self) -> None:
        inner = ",".join(a.key for a in self.args)
        origin = getattr(self.source, "name", "")
        object.__setattr__(self, "key", f"{self.kind[0:3]}:{self.name}{origin}({inner})")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def extent(self) -> Expr:
        """One more than the largest value of a loop variable."""
        return self.args[0]


Monomial = tuple[Atom, ...]


def _ordered(atoms: Iterable[Atom]) -> Monomial:
    return tuple(sorted(atoms, key=lambda a: a.key))


class Expr:
    """A polynomial with integer coefficients; immutable, compared by value."""

    __slots__ = ("key", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: dict[Monomial, int] = {
            m: terms[m] for m in sorted(terms, key=lambda m: (-len(m), [a.key for a in m])) if terms[m]
        }
        self.key = "+".join(f"{c}*{'*'.join(a.key for a in m)}" for m, c in self.terms.items()) or "0"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Expr({to_dim(self)})"

    def __add__(self, other: Expr | int) -> Expr:
        other = as_expr(other)
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return Expr(terms)

    def __sub__(self, other: Expr | int) -> Expr:
        return self + as_expr(other) * -1

    def __mul__(self, other: Expr | int) -> Expr:
        other = as_expr(other)
        terms: dict[Monomial, int] = {}
        for m1, c1 in self.terms.items():
            for m2, c2 in other.terms.items():
                m = _ordered((*m1, *m2))
                terms[m] = terms.get(m, 0) + c1 * c2
        return Expr(terms)

    @property
    def constant(self) -> int | None:
        """The value, if it is a plain integer."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 and () in self.terms else None

    @property
    def single(self) -> Atom | None:
        """The atom, if the expression is one atom."""
        if len(self.terms) == 1:
            ((monomial, coefficient),) = self.terms.items()
            if coefficient == 1 and len(monomial) == 1:
                return monomial[0]
        return None

    def atoms(self) -> set[Atom]:
        """All atoms, also those inside `//`, `%` and element reads."""
        found: set[Atom] = set()
        for monomial in self.terms:
            for atom in monomial:
                found.add(atom)
                if atom.kind != "var":
                    for arg in atom.args:
                        found |= arg.atoms()
        return found

    def variables(self) -> set[Atom]:
        """The loop variables it depends on."""
        return {a for a in self.atoms() if a.kind == "var"}


ZERO = Expr({})
ONE = Expr({(): 1})
BACK = Expr({(): -1})
"""The step of an address that walks backwards."""


def as_expr(value: Expr | int) -> Expr:
    """`value` as an expression."""
    return value if isinstance(value, Expr) else Expr({(): value})


def of_atom(atom: Atom) -> Expr:
    """The expression that is one atom."""
    return Expr({(atom,): 1})


def variable(name: str, extent: Expr) -> Expr:
    """A loop variable in `[0, extent)`."""
    return of_atom(Atom("var", name, (extent,)))


def product(factors: Iterable[Expr]) -> Expr:
    """The product of all factors."""
    result = ONE
    for factor in factors:
        result = result * factor
    return result


def coefficient(expression: Expr, atom: Atom) -> Expr | None:
    """The factor of `atom` where the expression is linear in it; None where it is not."""
    terms: dict[Monomial, int] = {}
    for monomial, value in expression.terms.items():
        count = monomial.count(atom)
        inner = any(atom in arg.atoms() for a in monomial if a.kind != "var" for arg in a.args)
        if count > 1 or inner:
            return None
        if count == 1:
            terms[tuple(a for a in monomial if a != atom)] = value
    return Expr(terms)


def _largest(expression: Expr) -> Expr | None:
    """An upper bound of a sum of non-negative terms; None where a term may be negative or has no bound."""
    total = ZERO
    for monomial, value in expression.terms.items():
        if value < 0:
            return None
        bound = as_expr(value)
        for atom in monomial:
            top = _atom_largest(atom)
            if top is None:
                return None
            bound = bound * top
        total = total + bound
    return total


def _atom_largest(atom: Atom) -> Expr | None:
    if atom.kind in ("size", "dim"):
        return of_atom(atom)
    if atom.kind == "var":
        return atom.extent - 1
    if atom.kind == "mod":
        return atom.args[1] - 1
    if atom.kind == "floordiv":
        top = _largest(atom.args[0])
        whole = None if top is None else _exact_quotient(top + 1, atom.args[1])
        return None if whole is None else whole - 1
    return None


def _nonnegative(expression: Expr) -> bool:
    """Whether it is provably at least zero when every size is at least one."""
    shifted = ZERO
    for monomial, value in expression.terms.items():
        term = as_expr(value)
        for atom in monomial:
            term = term * (of_atom(atom) + 1 if atom.kind in ("size", "dim") else of_atom(atom))
        shifted = shifted + term
    return all(value >= 0 for value in shifted.terms.values())


def _divided_term(monomial: Monomial, value: int, divisor: Expr) -> tuple[Monomial, int] | None:
    ((by, factor),) = divisor.terms.items()
    if value % factor:
        return None
    rest = list(monomial)
    for atom in by:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest), value // factor


def _exact_quotient(expression: Expr, divisor: Expr) -> Expr | None:
    if len(divisor.terms) != 1:
        return None
    terms: dict[Monomial, int] = {}
    for monomial, value in expression.terms.items():
        part = _divided_term(monomial, value, divisor)
        if part is None:
            return None
        terms[part[0]] = part[1]
    return Expr(terms)


def _split(expression: Expr, divisor: Expr) -> tuple[Expr, Expr]:
    """`(q, rest)` with expression = q * divisor + rest, `q` as large as term-wise division allows."""
    if len(divisor.terms) != 1:
        return ZERO, expression
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, value in expression.terms.items():
        part = _divided_term(monomial, value, divisor)
        if part is None:
            rest[monomial] = value
        else:
            quotient[part[0]] = part[1]
    return Expr(quotient), Expr(rest)


def _within(expression: Expr, limit: Expr) -> bool:
    top = _largest(expression)
    return top is not None and _nonnegative(limit - 1 - top)


def _surely_below(expression: Expr, limit: Expr) -> bool:
    """Whether 0 <= expression < limit for all sizes of at least one, as of `B - 1` and `B`."""
    return _nonnegative(expression) and _nonnegative(limit - 1 - expression)


def floordiv(expression: Expr, divisor: Expr | int) -> Expr:
    """`expression // divisor` for a positive divisor, simplified."""
    divisor = as_expr(divisor)
    if divisor == ONE:
        return expression
    if expression.constant is not None and divisor.constant is not None:
        return as_expr(expression.constant // divisor.constant)
    if _surely_below(expression, divisor):
        return ZERO
    quotient, rest = _split(expression, divisor)
    if rest == ZERO or _within(rest, divisor):
        return quotient
    return quotient + of_atom(Atom("floordiv", args=(rest, divisor)))


def modulo(expression: Expr, divisor: Expr | int) -> Expr:
    """`expression % divisor` for a positive divisor, simplified."""
    divisor = as_expr(divisor)
    if divisor == ONE:
        return ZERO
    if expression.constant is not None and divisor.constant is not None:
        return as_expr(expression.constant % divisor.constant)
    if _surely_below(expression, divisor):
        return expression
    _, rest = _split(expression, divisor)
    if rest == ZERO or _within(rest, divisor):
        return rest
    return of_atom(Atom("mod", args=(rest, divisor)))


def recombined(expression: Expr) -> Expr:
    """`(x // d) * d + x % d` replaced by `x`, wherever it stands."""
    for monomial, value in expression.terms.items():
        for atom in monomial:
            if atom.kind != "mod":
                continue
            inner, divisor = atom.args
            others = [a for a in monomial if a != atom]
            outer = Expr({_ordered(others): value})
            partner = outer * divisor * of_atom(Atom("floordiv", args=(inner, divisor)))
            if all(expression.terms.get(m) == c for m, c in partner.terms.items()):
                return recombined(expression - partner - outer * of_atom(atom) + outer * inner)
    return expression


def substitute(expression: Expr, mapping: Mapping[Atom, Expr]) -> Expr:
    """The expression with atoms replaced, simplified again."""
    total = ZERO
    for monomial, value in expression.terms.items():
        term = as_expr(value)
        for atom in monomial:
            term = term * _replaced(atom, mapping)
        total = total + term
    return recombined(total)


def _replaced(atom: Atom, mapping: Mapping[Atom, Expr]) -> Expr:
    if atom in mapping:
        return mapping[atom]
    if atom.kind in ("size", "var", "dim"):
        return of_atom(atom)
    args = tuple(substitute(a, mapping) for a in atom.args)
    if atom.kind == "floordiv":
        return floordiv(args[0], args[1])
    if atom.kind == "mod":
        return modulo(args[0], args[1])
    return of_atom(Atom(atom.kind, atom.name, args, atom.source))


def flatten(index: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The row-major offset of `index` in a tensor of `shape`."""
    total = ZERO
    for position, size in zip(index, shape, strict=True):
        total = total * size + position
    return recombined(total)


def unflatten(offset: Expr, shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """The index in `shape` whose row-major offset is `offset`."""
    positions: list[Expr] = []
    for axis in range(len(shape) - 1, -1, -1):
        positions.insert(0, offset if axis == 0 else modulo(offset, shape[axis]))
        offset = floordiv(offset, shape[axis])
    return tuple(ZERO if size == ONE else p for p, size in zip(positions, shape, strict=True))


def size(dim: Dim) -> Expr:
    """A `Dim` of a record as an expression; sums become one atom, so that products of sizes stay monomials."""
    if isinstance(dim, int):
        return as_expr(dim)
    value = _parsed(dim)
    return value if len(value.terms) <= 1 else of_atom(Atom("dim", args=(value,)))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Expr:
    return _from_syntax(ast.parse(text, mode="eval").body)


_OPERATORS: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv,
    ast.Mod: modulo,
}


def _from_syntax(node: ast.expr) -> Expr:
    match node:
        case ast.Constant(value=int(value)):
            return as_expr(value)
        case ast.Name(id=name):
            return of_atom(Atom("size", name))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _from_syntax(operand) * -1
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))) if power >= 0:
            return product([_from_syntax(left)] * power)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_from_syntax(left), _from_syntax(right))
        case ast.Call(func=ast.Name(id="max"), args=[a, b]):
            return of_atom(Atom("max", args=(_from_syntax(a), _from_syntax(b))))
        case ast.Call(func=ast.Name(id="min"), args=[a, b]):
            return of_atom(Atom("min", args=(_from_syntax(a), _from_syntax(b))))
    raise ValueError(f"not a dimension expression: {ast.unparse(node)}")


def to_dim(expression: Expr) -> Dim:
    """Back to a `Dim` of a record (only sizes in it)."""
    if expression.constant is not None:
        return expression.constant
    return render(expression, lambda a: a.name or str(to_dim(a.args[0])), floor="//")


def render(expression: Expr, leaf: Callable[[Atom], str], *, floor: str = "/") -> str:
    """The expression as text; `leaf` names sizes, variables, elements. C++ by default, Python with `floor="//"`."""
    if not expression.terms:
        return "0"
    parts: list[str] = []
    for monomial, value in expression.terms.items():
        factors = [_atom_text(a, leaf, floor) for a in monomial]
        if abs(value) != 1 or not factors:
            factors.insert(0, str(abs(value)))
        text = " * ".join(factors)
        if parts:
            parts.append(f"- {text}" if value < 0 else f"+ {text}")
        else:
            parts.append(f"-{text}" if value < 0 else text)
    return " ".join(parts)


def _atom_text(atom: Atom, leaf: Callable[[Atom], str], floor: str) -> str:
    if atom.kind in ("size", "var", "element", "wrap"):
        return leaf(atom)
    if atom.kind == "dim":
        return f"({render(atom.args[0], leaf, floor=floor)})"
    first, second = (render(a, leaf, floor=floor) for a in atom.args)
    if floor == "/" and atom.kind in ("floordiv", "mod") and not _nonnegative(atom.args[0]):
        # C rounds quotients towards zero.
        name = "floor_divide" if atom.kind == "floordiv" else "remainder_int"
        return f"{name}<int64_t>({first}, {second})"
    if atom.kind == "floordiv":
        return f"(({first}) {floor} ({second}))"
    if atom.kind == "mod":
        return f"(({first}) % ({second}))"
    name = {"max": "larger", "min": "smaller"}[atom.kind] if floor == "/" else atom.kind
    return f"{name}({first}, {second})"
