"""The table of questions fits the methods that answer them."""

from __future__ import annotations

from inspect import Parameter, signature

import pytest
from msgspec import Struct

from handoffd.api.http.application import ENDPOINTS
from handoffd.api.past import Narrowed
from handoffd.api.questions import QUESTIONS


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_method_takes_the_parameters_and_answers_with_a_struct(name: str) -> None:
    """By name; exactly the required ones have no default, and the others have the same one."""
    question = QUESTIONS[name]
    _, *own = signature(question.ask).parameters.values()
    taken = {one.name: one.default for one in own if one.kind is not Parameter.VAR_KEYWORD}
    if len(taken) < len(own):  # a part of the history, by names of its own
        taken |= dict.fromkeys(Narrowed.__optional_keys__)

    assert taken.keys() == {one.name for one in question.parameters}
    for parameter in question.parameters:
        default = Parameter.empty if parameter.required else parameter.default
        assert default == taken[parameter.name]
    assert issubclass(question.shape, Struct)


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_question_is_an_endpoint(name: str) -> None:
    """With the same parameters, and sometimes more."""
    (endpoint,) = (one for one in ENDPOINTS if one.name == name)

    assert ("GET", f"/v1/{name.replace('_', '-')}") == (endpoint.method, endpoint.path)
    assert set(QUESTIONS[name].parameters) <= set(endpoint.url)
