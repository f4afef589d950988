"""What a prompt template can and cannot do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from handoffd.errors import InvalidFile, Problem
from handoffd.protocol.prompt_sandbox import PromptEnvironment, TooMuchOutput, render

VALUES = {
    "name": "shop",
    "items": tuple(f"item {number}" for number in range(200)),
    "text": "x" * 60_000,
    "n": 3,
}


def _render(template: str, others: Mapping[str, str] | None = None, limit: int = 10_000) -> str:
    environment = PromptEnvironment(
        {"main.j2": template, **(others or {})}, {"main.j2": ".ai/prompts/main.j2"}
    )
    return render(environment, "main.j2", VALUES, limit=limit)


def _problem(template: str, others: Mapping[str, str] | None = None) -> Problem:
    with pytest.raises(InvalidFile) as caught:
        _render(template, others)
    return caught.value.problems[0]


def test_the_accepted_part_of_the_language_is_enough_for_prompts() -> None:
    """Output, conditions, loops, assignments, includes, tests, filters and comparisons work."""
    template = """\
{% set greeting = name | upper %}
{# a comment #}
{% for item in items[:2] if item != "item 0" %}
{{ loop.index }} {{ item }}
{% else %}
nothing
{% endfor %}
{% if n in [1, 3] and missing is not defined %}
{{ greeting }} {{ missing | default("-") }} {{ items[:2] | join(", ") }} {{ items | length }}
{% endif %}
{% include "part" %}
"""

    assert "1 item 1\nSHOP - item 0, item 1 200\npart of shop\n" == _render(
        template, {"part": "part of {{ name }}\n"}
    )


def test_a_template_may_extend_another() -> None:
    """A block replaces the block of its name."""
    base = "a {% block middle %}b{% endblock %} c"
    own = "{% extends 'base' %}{% block middle %}{{ name }}{% endblock %}"

    assert "a shop c" == _render(own, {"base": base})


def test_values_are_never_templates() -> None:
    """What looks like a template inside a value is printed as it is."""
    environment = PromptEnvironment({"main.j2": "{{ name }}"}, {})

    assert "{{ 7 }}{% if %}" == render(environment, "main.j2", {"name": "{{ 7 }}{% if %}"}, limit=100)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 1000000000 }}",
        "{{ n ** n }}",
        "{{ n + n }}",
        "{{ '%1000000000d' % n }}",
        "{% set name = name ~ name %}",
        "{% for i in range(1000000000) %}{% endfor %}",
        "{{ name.ljust(1000000000) }}",
        "{{ name.format(n) }}",
        "{{ name.__class__.__mro__ }}",
        "{{ name | center(1000000000) }}",
        "{{ name | attr('__class__') }}",
        "{% macro a() %}{{ a() }}{% endmacro %}",
        "{% call a() %}{% endcall %}",
        "{% set a %}{{ name }}{% endset %}",
        "{% filter upper %}{{ name }}{% endfilter %}",
        "{% import 'main.j2' as m %}",
        "{% from 'main.j2' import m %}",
        "{% with a = name %}{% endwith %}",
        "{% set a = [items, items] %}",
        "{% set a = {'b': items} %}",
        "{% for item in items recursive %}{{ loop(items) }}{% endfor %}",
        "{% for item in items %}{% block b %}{% endblock %}{% endfor %}",
        "{{ _meter }}",
        "{% set _meter = 1 %}",
        "{{ items | _each(0) }}",
        "{{ self.b() }}",
        "{{ cycler }}",
        "{% include 'main.j2' without context %}",
        "{{ name is callable }}",
    ],
)
def test_whatever_could_grow_or_reach_out_is_refused(template: str) -> None:
    """Refused with file and line, before or while it would happen."""
    problem = _problem("\n\n" + template)

    assert (".ai/prompts/main.j2", 3) == (problem.file, problem.line)


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in items %}{% for b in items %}{% for c in items %}{% endfor %}{% endfor %}{% endfor %}",
        "{% for a in text %}{% for b in text %}{% endfor %}{% endfor %}",
        "{% for a in text if a == 'y' %}{{ a }}{% endfor %}",
        "{% for a in items %}" + "{{ (text | upper)[:0] }}" * 1000 + "{% endfor %}",
        "{% include 'main.j2' %}",
        "{% include 'main.j2' %}{% include 'main.j2' %}",
        "{% for a in items %}{% include 'large' %}{% endfor %}",
    ],
)
def test_repetition_ends_when_the_allowance_is_spent(template: str) -> None:
    """Loops and includes pay for what they repeat, printed or not."""
    assert "repeat too much" in _problem(template, {"large": "{{ name[:0] }}" * 2000}).message


def test_templates_that_use_each_other_for_ever_are_an_error() -> None:
    """The error is about the templates, not about Python."""
    assert "without end" in _problem("{% extends 'main.j2' %}").message


@pytest.mark.parametrize(
    "template",
    [
        "{% if name %}" * 1000 + "{% endif %}" * 1000,
        "{{ " + "(" * 10_000 + "1" + ")" * 10_000 + " }}",
        "{{ " + "not " * 7000 + "1 }}",
        "{% for a in items %}" * 60 + "{% endfor %}" * 60,
        "{{ " + "9" * 30_000 + " }}",
        "x" * 32_769,
    ],
)
def test_a_template_that_breaks_the_compiler_is_a_problem_of_that_template(template: str) -> None:
    """Depth, size and huge numbers end in an ordinary error."""
    assert ".ai/prompts/main.j2" == _problem(template).file


def test_output_stops_at_its_limit() -> None:
    """Nothing is collected beyond it."""
    with pytest.raises(TooMuchOutput):
        _render("{{ text }}" * 1000, limit=100_000)


def test_the_limit_counts_bytes() -> None:
    """A Chinese character has three."""
    assert "專" * 4 == _render("專專專專", limit=12)
    with pytest.raises(TooMuchOutput):
        _render("專專專專", limit=11)


@pytest.mark.parametrize(
    ("template", "line", "message"),
    [
        ("a\n{{ nope }}", 2, "'nope' is undefined"),
        ("a\n\n{% if nope %}{% endif %}", 3, "'nope' is undefined"),
        ("a\n{{ items.nope }}", 2, "no attribute 'nope'"),
        ("{% if name %}\n{% endfor %}", 2, "endfor"),
        ("a\n{% if %}", 2, "Expected an expression"),
        ("a\n{% include 'gone' %}", 2, "no template 'gone'"),
        ("a\n{{ n | length }}", 2, "no len()"),
        ("a\n{{ text | join(',') }}", 2, "join needs a list"),
        ("a\n{{ name | tojson }}", 2, "no filter 'tojson'"),
    ],
)
def test_an_error_names_file_line_and_problem(template: str, line: int, message: str) -> None:
    """A person finds the place without knowing how templates work inside."""
    problem = _problem(template)

    assert (".ai/prompts/main.j2", line) == (problem.file, problem.line)
    assert message in problem.message


def test_an_error_in_an_included_template_names_that_one() -> None:
    """The place is where the mistake is, not where it is used."""
    problem = _problem("{% include 'part' %}", {"part": "\n\n{{ nope }}"})

    assert ("part", 3) == (problem.file, problem.line)


def test_all_forbidden_things_of_a_template_are_listed() -> None:
    """One reading finds them all, up to a bound."""
    with pytest.raises(InvalidFile) as caught:
        _render("{{ a() }}\n{{ b() }}\n")
    assert [1, 2] == [problem.line for problem in caught.value.problems]

    with pytest.raises(InvalidFile) as caught:
        _render("{{ a() }}" * 1000)
    assert 50 == len(caught.value.problems)


def test_templates_can_be_examined_without_rendering() -> None:
    """An edit can be reported when it is made, not when a prompt is due."""
    environment = PromptEnvironment({"good": "{{ name }}", "bad": "{% if %}", "worse": "{{ f() }}"}, {})

    assert ["bad", "worse"] == [problem.file for problem in environment.problems()]
