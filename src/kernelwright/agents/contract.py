"""What every proposer and template must keep, as test classes to inherit from.

A package that offers a proposer tests it so (any test runner that collects classes and methods by name will do):

    from kernelwright.agents.contract import ProposerContract

    class TestMine(ProposerContract):
        operators = ("draft",)

        def make_proposer(self):
            return Mine()

        def make_context(self):
            return Context(task=..., graph=..., device=...)
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kernelwright.agents.proposing import Context, Proposer, Template
from kernelwright.platforms.candidates import Candidate, ParameterValue


class ProposerContract:
    """Inherit from it, and say how to make the proposer and a context in which it has something to propose."""

    operators: tuple[str, ...] = ()
    """Those that propose something in `make_context()`."""
    deterministic: bool = True
    """Whether equal (context, rng) give equal candidates; False for a live model."""

    def make_proposer(self) -> Proposer:
        """A fresh proposer."""
        raise NotImplementedError

    def make_context(self) -> Context:
        """A context; equal ones at every call."""
        raise NotImplementedError

    def _propose(
        self, operator: str, count: int, *, context: Context | None = None, seed: int = 0
    ) -> Sequence[Candidate]:
        context = self.make_context() if context is None else context
        return self.make_proposer().propose(context, operator=operator, count=count, rng=Random(seed))

    def test_has_a_name(self) -> None:
        """The name is stable and not empty."""
        assert self.make_proposer().name
        assert self.make_proposer().name == self.make_proposer().name

    def test_proposes_for_each_of_its_operators(self) -> None:
        """It names operators, and has something to say for each."""
        assert self.operators
        for operator in self.operators:
            assert self._propose(operator, 4), operator

    def test_an_unknown_operator_gets_nothing(self) -> None:
        """Not an error: presets ask beside what a proposer knows."""
        assert not self._propose("no-such-operator", 4)

    def test_never_more_than_asked(self) -> None:
        """`count` is an upper limit."""
        for operator in self.operators:
            for count in (1, 2, 3):
                assert len(self._propose(operator, count)) <= count

    def test_candidates_differ_and_survive_storage(self) -> None:
        """Distinct by content hash, and equal to themselves after JSON."""
        for operator in self.operators:
            made = self._propose(operator, 4)
            assert len({candidate.id for candidate in made}) == len(made)
            for candidate in made:
                assert Candidate.from_json(candidate.to_json()) == candidate

    def test_origin_says_who_and_how(self) -> None:
        """Proposer and operator are filled in, and parents are among those shown."""
        context = self.make_context()
        shown = {a.candidate.id for a in (*context.parents, *context.history)}
        shown |= {context.best.candidate.id} if context.best is not None else set()
        for operator in self.operators:
            for candidate in self._propose(operator, 4, context=context):
                assert candidate.origin.proposer
                assert candidate.origin.operator
                assert set(candidate.origin.parents) <= shown

    def test_equal_questions_have_equal_answers(self) -> None:
        """With the same context and generator, also in another instance."""
        if not self.deterministic:
            return
        for operator in self.operators:
            assert list(self._propose(operator, 4, seed=3)) == list(self._propose(operator, 4, seed=3))


class TemplateContract:
    """Inherit from it, and say how to make the template."""

    def make_template(self) -> Template:
        """A fresh template."""
        raise NotImplementedError

    def test_the_defaults_render(self) -> None:
        """The own choice is legal, and is found again in the candidate."""
        template = self.make_template()
        values = template.space.defaults()
        candidate = template.render(values)
        assert candidate.parameters == values
        assert candidate.origin.template == template.space.template

    def test_defaults_are_among_the_values(self) -> None:
        """And names are unique."""
        parameters = self.make_template().space.parameters
        assert len({p.name for p in parameters}) == len(parameters)
        for parameter in parameters:
            assert parameter.default in parameter.values
            assert len(set(parameter.values)) == len(parameter.values)

    def test_rendering_is_a_function_of_the_values(self) -> None:
        """Equal values give an equal candidate; 20 random points, of which some must be legal."""
        space, rng = self.make_template().space, Random(0)
        rendered = 0
        for _ in range(20):
            values: dict[str, ParameterValue] = {p.name: rng.choice(p.values) for p in space.parameters}
            try:
                first = self.make_template().render(values)
            except ValueError:
                continue
            rendered += 1
            assert self.make_template().render(dict(values)) == first
        assert rendered

    def test_an_illegal_value_is_a_value_error(self) -> None:
        """So that a search can go on to the next point."""
        template = self.make_template()
        for parameter in template.space.parameters:
            try:
                template.render({**template.space.defaults(), parameter.name: "no such value"})
            except ValueError:
                continue
            raise AssertionError(f"{parameter.name} took a value that is not legal")
