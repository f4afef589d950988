"""Expressions of pipelines: what is refused when they are loaded, and what they are worth."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.protocol.expression_values import MOST_STEPS
from handoffd.protocol.expressions import (
    RESERVED,
    Broken,
    Expression,
    Fault,
    Kind,
    Unsound,
    compiled,
    evaluate,
)

NAMES: Mapping[str, Kind] = {
    "mode": "text", "mode.score": "number", "rounds": "number", "rounds.revise": "number",
    "params.rounds": "number", "params.list": "list", "flag": "boolean", "item": "any", "items": "list",
    "impl.items": "list", "fields.critical": "number", "fields.high": "number", "fields.kind": "text",
    "score": "number", "total": "number", "scope.last.retro.velocity": "number", "out.plan": "any",
}  # fmt: skip
ELEMENTS: Mapping[str, Collection[str]] = {
    "items": ("id", "outcome", "missing"),
    "impl.items": ("id", "outcome", "files"),
}
VALUES: Mapping[str, object] = {
    "mode": "quick", "rounds": 3, "rounds.revise": 2, "params.rounds": 5, "params.list": ["a", "b"],
    "flag": True, "item": {"id": "x", "size": 2, "files": ["a.py"], "one": 1, "list": [1], "map": {"a": 1},
             "none": None},
    "fields.critical": 0, "fields.high": 4,
    "items": [{"id": "a", "outcome": "ok", "missing": 0}, {"id": "b", "outcome": "ok", "missing": 3}],
    "score": 80, "total": 0, "out.plan": {"tasks": [{"id": "t1"}]},
}  # fmt: skip


def faults(text: str, result: Kind = "any") -> tuple[Fault, ...]:
    """Return what is wrong with a text; nothing where it is sound."""
    try:
        compiled(text, result, NAMES, elements=ELEMENTS)
    except Unsound as error:
        return error.faults
    return ()


def value(text: str, result: Kind = "any", **changed: object) -> object:
    """Return the value of a text, for the usual values with some changed (`__` is a dot)."""
    expression = compiled(text, result, NAMES, elements=ELEMENTS)
    return evaluate(expression, {**VALUES, **{key.replace("__", "."): v for key, v in changed.items()}})


def broken(text: str, result: Kind = "any", **changed: object) -> str:
    """Return the message for a text that is sound and has no value."""
    with pytest.raises(Broken) as caught:
        value(text, result, **changed)
    return str(caught.value)


# --- values -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "worth"),
    [
        ("score >= 60 && fields.critical == 0", True),
        ("fields.high + fields.critical > 0 && mode != 'quick'", False),
        ("0.5 * fields.high + 0.5 * fields.critical", 2.0),
        ("rounds < params.rounds || mode in ['full', 'quick']", True),
        ("items.size() + mode.size() == 7 && {'a': 1}.size() == 1", True),
        ("size(params.list) <= 2 && size('é😀') == 2 && size(item) == 7", True),
        ("items.exists(i, i.missing > 0 || i.outcome == 'x')", True),
        ("items.all(i, i.missing < 3)", False),
        ("items.exists_one(i, i.missing == 3)", True),
        ("items.filter(i, i.missing > 0).map(i, i.id)", ["b"]),
        ("flag ? params.list : [params.list[0]]", ["a", "b"]),
        ("params.list[1] + mode", "bquick"),
        ("item.files[0]", "a.py"),
        ("has(item.files) && !has(item.nothing)", True),
        ("out.plan.tasks[0].id == 't1'", True),
        ("mode.startsWith('q') && mode.endsWith('k') && mode.contains('ui') && mode.matches('^q.*k$')", True),
        ("-score + 0x10 - .5 + 1e1", -54.5),
        ("rounds + rounds.revise", 5.0),
        ("{'a': [1, null, true, 'x']}", {"a": [1.0, None, True, "x"]}),
        ("items.exists(mode, mode.missing == 3)", True),
        ("items.map(i, items.map(k, i.missing + k.missing))", [[0.0, 3.0], [3.0, 6.0]]),
        ("score / (rounds - 1) == 40", True),
        ("7.5 % 2 == 1.5 && -7 % 2 == -1", True),
        ("int(-2.7) == -2 && int('3') == 3 && double('-1.5e1') == -15", True),
        ("string(3) + string(2.5) + string('v1.0')", "32.5v1.0"),
        ("{'a': [1,], 'b': 2,}.all(k, k != 'c')", True),
        ("null == item.none && item.one != null", True),
        ("item == 1 || item.id != 'x' || item.id == 2 || item in [1]", False),
        ("item.one == true || item.one in [true, {'a': 1}] || item.list == [true] || 'b' in item", False),
        ("item.map == {'a': 1} && item.list == [1] && 'one' in item && 1 in item.list", True),
        ("item.list[item.one - 1] + item['list'][0]", 2.0),
        ("flag // a remark\n&& true", True),
    ],
)
def test_an_expression_is_worth_what_cel_says(text: str, worth: object) -> None:
    """Whole numbers beside doubles, dotted names, macros, indexes."""
    assert worth == value(text)
    assert type(worth) is type(value(text))


def test_an_expression_keeps_the_names_that_it_reads() -> None:
    """With their kinds, so that it can be evaluated without the pipeline."""
    expression = compiled("score > 1", "boolean", NAMES, elements=ELEMENTS)

    assert Expression("score > 1", "boolean", (("score", "number"),)) == expression
    assert evaluate(expression, {"score": 2}) is True


# --- trap 1: errors are values of CEL -------------------------------------------------------------------
def test_an_error_of_cel_is_never_a_value() -> None:
    """The message has the text, what was read, and CEL's words."""
    said = broken("item.nothing == 1", item={"id": "x"})

    assert "item.nothing == 1" in said
    assert "item = {'id': 'x'}" in said
    assert "nothing" in said.partition("has no value")[2]


@pytest.mark.parametrize("result", ["boolean", "any", "text"])
def test_an_error_does_not_count_as_true_or_as_text(result: Kind) -> None:
    """Whatever kind was declared."""
    assert "has no value" in broken("item.nothing", result)


@pytest.mark.parametrize(
    ("result", "item"), [("number", "80"), ("boolean", 1), ("text", 1), ("list", {}), ("boolean", None)]
)
def test_a_value_of_another_kind_is_an_error(result: Kind, item: object) -> None:
    """Where the kind is known only when it is evaluated."""
    assert f"a {result} is needed here" in broken("item", result, item=item)


def test_what_only_looks_like_a_boolean_is_an_error() -> None:
    """A text is not a truth value, on either side of an operator."""
    assert broken("item && true", "boolean", item="x")
    assert broken("true && item", "boolean", item="x")
    assert broken("item ? 1 : 2", "number", item="x")


@pytest.mark.parametrize("text", ["1e308 * 10", "-1e308 * 10", "1e308 * 10 - 1e308 * 10", "[1e308 * 10]"])
def test_a_result_that_is_no_number_is_an_error(text: str) -> None:
    """Infinities, and NaN, inside lists as well."""
    assert "cannot be used as a number" in broken(text)


@pytest.mark.parametrize(
    "text",
    [
        "score / total > 0.5",
        "score / (total * 2) < 1",
        "1 / -item.size > 0",
        "1 / items[0].missing > 0",
        "score % total > 1",
    ],
)
def test_a_division_by_zero_is_an_error_and_not_more_than_everything(text: str) -> None:
    """CEL says infinity, which is more than any threshold."""
    assert "division by zero" in broken(text, item={"size": 0})


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 10**400])
def test_a_number_that_is_none_is_not_taken(number: float) -> None:
    """It compares as false with everything, or as true."""
    assert "cannot be used as a number" in broken("score < 1", score=number)
    assert "cannot be used as a number" in broken("item.a == 1", item={"a": [number]})


# --- trap 2: time ---------------------------------------------------------------------------------------
def test_looking_at_too_many_elements_is_an_error() -> None:
    """All comprehensions together, and soon."""
    list_ = [0] * 120

    said = broken("items.all(a, items.all(b, items.all(c, true)))", items=list_)

    assert f"{MOST_STEPS:,}" in said
    assert value("items.all(a, items.all(b, b == 0))", items=[0] * 90) is True


def test_each_evaluation_has_the_whole_budget() -> None:
    """What one has used is not missing in the next."""
    list_ = [0] * 5_000

    assert [True] * 3 == [value("items.all(a, a == 0)", items=list_) for _ in range(3)]


def test_a_long_text_is_refused() -> None:
    """Before anything reads it."""
    assert () == faults("flag" + " " * 1_996)
    assert "longer than 2,000 characters" in faults("flag" + " " * 1_997)[0].message


@pytest.mark.parametrize(
    "text",
    [
        "params.list.map(a, mode + mode)" + ".map(a, a + a)" * 25,
        "params.list" + ".map(a, [a, a])" * 20,
        "params.list" + ".map(a, [a, a])" * 20 + " == params.list" + ".map(a, [a, a])" * 20,
        "params.list" + ".map(a, {'x': a, 'y': a})" * 20,
        "[params.list"
        + ".map(a, {'x': a, 'y': a})" * 20
        + "].exists(a, a == params.list"
        + ".map(a, {'x': a, 'y': a})" * 20
        + ")",
        "[params.list].map(a, a + a)" + ".map(a, a + a)" * 20,
        "items.map(i, item.long + item.long)",
        "items.map(i, item.long + 'x')[0] + item.long + item.long",
        "items.all(i, item.many == item.many)",
        "items.all(i, !(-1 in item.many))",
        "items.all(i, item.long.matches('(a|aa)+$'))",
        "items.all(i, kit.sum(item.many, 'n') == 0)",
        "items.all(i, kit.disjoint([{'n': item.many}], 'n'))",
        "items.all(i, kit.signals(item.long, ['a', 'b']) == 1)",
        "item.long + 'x' + item.long",
        "size(item.long + item.long) > 0",
        "size(item.many + item.many) > 0",
        "size(items.map(i, item.long + 'x')) > 0",
        "items.all(i, item.long.contains('a'))",
        "items.all(i, kit.covers([{'id': 0}], item.zeros))",
        "[item.long, item.long, item.long]",
        "item.many.map(n, [n])",
    ],
)
def test_an_evaluation_that_grows_ends_soon(text: str) -> None:
    """Texts, lists and maps that double, and functions of long values in a comprehension."""
    item = {"long": "a" * 40_000, "many": list(range(9_000)), "zeros": [0] * 9_000}

    words = broken(text, items=[1] * 5_000, item=item)

    assert "more than" in words


def test_a_result_may_be_as_large_as_its_bounds() -> None:
    """Such as the text of a file."""
    assert value("item", item="a" * 65_536) == "a" * 65_536
    assert value("item", item=[0] * 10_000) == [0.0] * 10_000
    assert "more than" in broken("item", item="a" * 65_537)
    assert "more than" in broken("item", item=[0] * 10_001)


def test_no_error_is_absorbed_that_says_it_is_too_much() -> None:
    """Or the value would depend on the bounds."""
    assert "steps" in broken("items.all(a, items.all(b, true)) || true", "boolean", items=[0] * 200)


# --- trap 3: depth ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        "(" * 2_000,
        "(" * 900 + "1" + ")" * 900,
        "[" * 33 + "]" * 33,
        "{'a':" * 40 + "1" + "}" * 40,
        "+".join(["score"] * 33),
        "score" + "+1" * 990,
        "item" + "[item" * 33 + "]" * 33,
    ],
)
def test_deep_nesting_is_refused_in_plain_words(text: str) -> None:
    """The message says what helps."""
    assert [True] == ["nested deeper than 32 levels" in fault.message for fault in faults(text)]


def test_long_chains_of_conditions_are_not_deep() -> None:
    """Nor is a sum of some length."""
    assert value(" && ".join(["flag"] * 240)) is True
    assert value(" || ".join(["!flag"] * 200)) is False
    assert value("+".join(["score"] * 30)) == 2_400.0


def test_a_value_of_many_levels_is_an_error() -> None:
    """It never reaches the stack of either implementation."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]

    assert "more than 100 levels" in broken("size(item) > 0", item=deep)


# --- trap 4: numbers ----------------------------------------------------------------------------------
def test_whole_numbers_are_doubles_wherever_they_are() -> None:
    """In values, nested ones too, but not booleans."""
    assert value("item.a[0].b + 1 == 3 && item.c == true", item={"a": [{"b": 2}], "c": True}) is True
    assert value("[1, 2].map(x, x * 2.5)") == [2.5, 5.0]
    assert [True, 1.0] == value("item", item=(True, 1))


def test_digits_in_a_text_are_left_alone() -> None:
    """Also in raw texts and in remarks."""
    assert value("'a 1' + \"2\" + r'3\\4' + '''5''' // 6") == "a 123\\45"


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("score >= 1 && mode > 2", 20),
        ("1 + 1 + 1 == 3 && score > 'a'", 25),
        ("'1 2 3' == mode && mode * 2 == 4", 25),
        ("  size(items) > 1 &&\n  mode == 1", 29),
        ("'😀' == mode && mode > 1", 21),
        ("fields.critical > 1 || fields.kind > 1", 36),
        ("mode.score/2 > 'a'", 14),
    ],
)
def test_cel_points_at_the_place_in_the_persons_text(text: str, column: int) -> None:
    """Though it reads another one."""
    assert [column] == [fault.column for fault in faults(text)]


def test_messages_speak_of_kinds_and_of_the_persons_names() -> None:
    """And not of CEL's types."""
    assert [Fault("'>' takes no text and number", 6)] == list(faults("mode > 1"))
    assert [Fault("'&&' takes no number and boolean", 7)] == list(faults("score && flag"))


@pytest.mark.parametrize(
    "text", ["mode > 1", "score > 'a'", "score + mode == mode", "!score", "-mode == 'a'"]
)
def test_a_wrong_type_is_found_when_a_pipeline_is_loaded(text: str) -> None:
    """By the types, or by a trial."""
    assert 1 == len(faults(text))


@pytest.mark.parametrize(("text", "result"), [("score", "boolean"), ("mode", "number"), ("flag", "text")])
def test_a_result_of_another_kind_is_found_when_a_pipeline_is_loaded(text: str, result: Kind) -> None:
    """Where it is known."""
    assert [f"a {result} is needed here"] == [f.message.partition(",")[0] for f in faults(text, result)]
    assert () == faults("item", result)


@pytest.mark.parametrize("text", ["1u == 1", "b'a' == mode", "1e999 > 1", "9" * 400 + " > 1"])
def test_numbers_and_texts_that_are_not_ours_are_refused(text: str) -> None:
    """Unsigned numbers, bytes, and what no double can be."""
    assert 1 == faults(text)[0].column


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("flag ? 1 : 'a'", 6),
        ("score ? 1 : 2", 1),
        ("flag && items.all(i, 1)", 22),
        ("flag && mode.all(i, true)", 14),
        ("1 < weighted(fields, {'high': 'a'})", 31),
        ("kit.avg(mode, 'x') > 1", 1),
        ("size(mode == 'a') > 1", 1),
        ("mode.startsWith(1)", 6),
        ("mode[0] == 'q'", 5),
        ("flag && score.id == 1", 9),
        ("{1: 2} == item", 2),
        ("score in mode", 7),
        ("null < item", 6),
        ("score == null", 7),
    ],
)
def test_no_kind_is_taken_for_another(text: str, column: int) -> None:
    """In macros, choices, calls, indexes, weights and maps; each of them is one fault."""
    assert [column] == [fault.column for fault in faults(text)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("item.files[0.5]", "no element [0.5] in a list of 1"),
        ("item.files[-1]", "no element [-1] in a list of 1"),
        ("item.files[1]", "no element [1] in a list of 1"),
        ("{'a': 1, 'a': 2}", "each of them once"),
        ("{item.one: 2}", "the keys of a map are texts"),
        ("kit.sum([{'n': 1e308}, {'n': 1e308}], 'n')", "cannot be used as a number"),
        ("double('1_0')", "'1_0' is not a number"),
        ("double('inf')", "'inf' is not a number"),
        ("mode.matches('(')", "pattern"),
    ],
)
def test_what_has_no_value_is_broken(text: str, says: str) -> None:
    """With the reason."""
    assert says in broken(text)


# --- trap 5: misspelt names -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("flag && fields.critcal > 0", Fault("there is no 'fields.critcal' here", 9, "fields.critical")),
        ("mode.scroe > 1", Fault("there is no 'mode.scroe' here", 1, "mode.score")),
        ("flga", Fault("there is no 'flga' here", 1, "flag")),
        ("(mod == 'x')", Fault("there is no 'mod' here", 2, "mode")),
        ("score.high > 1", Fault("there is no 'score.high' here", 1)),
        ("params.list.first", Fault("there is no 'params.list.first' here", 1, "params.list")),
        ("flag and flag", Fault("there is no 'and' here", 6, "&&")),
        ("scope.last.retro.velocty > 1", Fault("there is no 'scope.last.retro.velocty' here", 1,
                                                "scope.last.retro.velocity")),
        ("_n0 > 1", Fault("there is no '_n0' here", 1)),
        ("_fields == _fields", Fault("there is no '_fields' here", 1)),
        ("kit", Fault("there is no 'kit' here", 1)),
    ],
)  # fmt: skip
def test_a_misspelt_name_is_refused_at_its_column(text: str, fault: Fault) -> None:
    """With the name as it was written, and the one that was meant."""
    first = faults(text)[0]

    assert fault == Fault(first.message, first.column, first.meant if fault.meant else None)


def test_what_is_allowed_is_said() -> None:
    """The names beside the wrong one, else all."""
    assert ("fields.critical", "fields.high", "fields.kind") == faults("fields.x > 1")[0].allowed
    assert tuple(sorted(NAMES)) == faults("x > 1")[0].allowed


def test_all_faults_are_found_at_once() -> None:
    """In the order of the text."""
    found = faults("foo > 1 || fields.x == 2 || items.exists(i, i.mising > rounds.revize)")

    assert [1, 12, 45, 56] == [fault.column for fault in found]


def test_faults_of_types_are_found_beside_misspelt_names() -> None:
    """The rest of the text is read as if the name were there."""
    assert [1, 17] == [fault.column for fault in faults("foo > 1 || mode > 2")]


@pytest.mark.parametrize(
    ("text", "column", "list_", "meant"),
    [
        ("items.exists(i, i.misssing > 0)", 17, "items", "missing"),
        ("items.filter(i, i.missing > 0).all(k, k.outcom == 'x')", 39, "items", "outcome"),
        ("items.exists(i, impl.items.exists(k, k.file == i.id))", 38, "impl.items", "files"),
        ("items[0].outcom == 'x'", 10, "items", "outcome"),
        ("kit.avg(items, 'mising') > 0", 16, "items", "missing"),
        ("kit.disjoint(impl.items, 'file')", 26, "impl.items", "files"),
    ],
)
def test_a_misspelt_key_of_an_element_is_refused(text: str, column: int, list_: str, meant: str) -> None:
    """Where the keys are known."""
    (fault,) = faults(text)

    assert (column, meant, tuple(sorted(ELEMENTS[list_]))) == (fault.column, fault.meant, fault.allowed)
    assert f"elements of '{list_}' have no" in fault.message


def test_keys_of_other_elements_are_not_checked() -> None:
    """An inner variable hides an outer one, and ends with its comprehension."""
    assert () == faults("out.plan.list.exists(i, i.anything > 0)")
    assert () == faults("items.exists(i, out.plan.list.exists(i, i.anything > 0))")
    assert [41] == [f.column for f in faults("out.plan.exists(i, i.x) && items.all(i, i.x)")]
    assert ["there is no 'i.id' here"] == [f.message for f in faults("items.all(i, true) && i.id == 'a'")]


def test_the_longest_name_wins() -> None:
    """`mode.score` is one name, not a selection from `mode`; what is below `any` is free."""
    expression = compiled("rounds.revise > rounds && item.a.b == mode", "boolean", NAMES)

    assert ("rounds.revise", "rounds", "item", "mode") == tuple(name for name, _ in expression.names)


def test_nothing_but_the_functions_of_the_language_is_there() -> None:
    """Each is refused, and the message names the nearest one."""
    assert Fault("there is no function 'kit.avgg'", 1, "kit.avg") == _bare(faults("kit.avgg(items, 'id')")[0])
    assert Fault("there is no function 'type'", 1) == _bare(faults("type(mode)")[0])
    assert Fault("there is no function 'rounds'", 1) == _bare(faults("rounds(1)")[0])
    assert Fault("nothing here has a function '.startWith()'", 6, "startsWith") == _bare(
        faults("mode.startWith('a')")[0]
    )


def _bare(fault: Fault) -> Fault:
    return Fault(fault.message, fault.column, fault.meant)


@pytest.mark.parametrize(
    "text",
    [
        "kit.avg(items)", "size()", "size(items, items)", "has(mode.score)", "items.map(i, true, i)",
        "items.exists(i.id, true)", "items.exists(i)", "items.exists()", "Foo{a: 1}", "item{}",
        ".mode == 'a'", "1.size()", "mode.", "mode..score", "flag flag", "flag &&", "&& flag", "items[",
        "items]", "(flag", "flag)", "[1}", "flag ? 1", "", "  ", "// nothing", "items[0",
        "a ? b ? 1 : 2 : 3", "items.exists(i,)", "1/", "-", "score = 1", "flag & flag", "weighted",
        "kit.avg", "has(items)", "`mode`", "items.'a'", "{1: 2}", "{'a': 1, true: 2}", "in", "flag in",
        "score; score",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(text: str) -> None:
    """With a column inside the text."""
    found = faults(text)

    assert found
    assert all(1 <= fault.column <= max(len(text), 1) for fault in found)


# --- trap 6: words of CEL -----------------------------------------------------------------------------
@pytest.mark.parametrize("word", sorted(RESERVED - {"true", "false", "null"}))
def test_a_word_of_cel_is_no_name(word: str) -> None:
    """A name that is one cannot be read, so the loader refuses it."""
    assert faults(f"{word} == 'a'")


# --- trap 7: values -----------------------------------------------------------------------------------
class _Record(msgspec.Struct, frozen=True):
    id: str
    files: tuple[str, ...] = ()
    size: int = 1


def test_frozen_values_are_taken() -> None:
    """Tuples, read-only mappings and structs, in each other."""
    frozen = MappingProxyType({"a": (1, MappingProxyType({"b": _Record("x", ("f",), 3)}))})

    assert {"a": [1.0, {"b": {"id": "x", "files": ["f"], "size": 3.0}}]} == value("item", item=frozen)
    assert value("items[0].id == 'x' && items[0].outcome == 'ok'", items=({"id": "x", "outcome": "ok"},))
    assert value("impl.items.exists(i, 'f' in i.files)", impl__items=(_Record("x", ("f",)),)) is True


@pytest.mark.parametrize("item", [b"x", {1}, object(), {1: 2}, 1j, "\ud800", {"\ud800": 1}])
def test_a_value_that_is_no_json_is_an_error(item: object) -> None:
    """Before CEL sees it."""
    assert "item" in broken("item == 1", item=item)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("score", "80"), ("score", True), ("mode", 1), ("flag", 1), ("items", {"a": 1}), ("flag", None)],
)
def test_a_value_that_is_not_of_the_names_kind_is_an_error(name: str, wrong: object) -> None:
    """With the name and the value."""
    text = f"{name} == {name}"
    expression = compiled(text, "any", NAMES)
    with pytest.raises(Broken) as caught:
        evaluate(expression, {name: wrong})
    said = str(caught.value)

    assert f"'{name}' is a" in said
    assert repr(wrong) in said


def test_keys_of_a_result_are_in_order() -> None:
    """Whatever order a value, or an implementation, has."""
    item = dict.fromkeys("zebra", 1)

    assert sorted(item) == list(msgspec.convert(value("item", item=item), dict[str, float]))


def test_nothing_that_was_given_is_changed_or_shared() -> None:
    """A result is a copy."""
    given_ = {"list": [1, 2]}
    result = msgspec.convert(value("item", item=given_), dict[str, list[float]])

    result["list"].append(3.0)

    assert {"list": [1, 2]} == given_


# --- trap 8: what is kept -----------------------------------------------------------------------------
def test_an_expression_is_a_value_that_can_be_written_down() -> None:
    """As JSON and by pickle; what comes back is equal and worth the same."""
    expression = compiled("weighted(fields, {'high': 1}) > 1 && mode == 'quick'", "boolean", NAMES)
    back = msgspec.json.decode(msgspec.json.encode(expression), type=Expression)

    assert expression == back == pickle.loads(pickle.dumps(expression))
    assert evaluate(back, VALUES) is True


def test_an_expression_that_was_never_sound_is_an_error_and_no_value() -> None:
    """Such as one from a file that was edited by hand."""
    for text in ("nothing > 1", "((", "score >"):
        with pytest.raises(Broken):
            evaluate(Expression(text, "boolean", (("score", "number"),)), VALUES)


def test_threads_may_evaluate_the_same_expression() -> None:
    """Each gets the value for what it gave."""
    expression = compiled("items.filter(i, i > score).map(i, i * 2)", "list", NAMES)

    with ThreadPoolExecutor(4) as threads:
        values = threads.map(
            lambda n: evaluate(expression, {"items": list(range(20)), "score": n}), range(20), chunksize=5
        )

    assert [[i * 2.0 for i in range(n + 1, 20)] for n in range(20)] == list(values)


# --- trap 9: functions of ours ------------------------------------------------------------------------
LIST = [
    {"id": "a", "n": 1, "needs": [], "files": ["x"]},
    {"id": "b", "n": 4, "needs": ["a"], "files": ["y", "y"]},
    {"id": "c", "needs": ["b", "elsewhere"]},
    "no map",
    {"id": "d", "n": "text", "needs": "c", "files": "z"},
    {"id": "e", "n": True},
]


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        ("kit.avg(items, 'n')", 2.5),
        ("kit.sum(items, 'n')", 5.0),
        ("kit.min(items, 'n')", 1.0),
        ("kit.max(items, 'n')", 4.0),
        ("kit.spread(items, 'n')", 3.0),
        *((f"kit.{name}([], 'n')", 0.0) for name in ("avg", "sum", "min", "max", "spread")),
        *((f"kit.{name}(items, 'nothing')", 0.0) for name in ("avg", "sum", "min", "max", "spread")),
        ("kit.acyclic(items, 'needs')", True),
        ("kit.acyclic(items + [{'id': 'a', 'needs': ['d']}], 'needs')", False),
        ("kit.acyclic([{'id': 'a', 'needs': ['a']}], 'needs')", False),
        ("kit.acyclic([], 'needs')", True),
        ("kit.covers(items, ['a', 'e'])", True),
        ("kit.covers(items, ['a', 'f'])", False),
        ("kit.covers(items, [])", True),
        ("kit.covers(items, [[]])", False),
        ("kit.disjoint(items, 'files')", True),
        ("kit.disjoint(items + [{'files': ['q', 'y']}], 'files')", False),
        ("kit.disjoint([], 'files')", True),
        ("kit.signals('Fix the BUG, 修復', ['bug', 'FIX', 'fix', '修', 'no', '', 1])", 3.0),
        ("kit.signals('', [])", 0.0),
        ("kit.avg(items.filter(i, i != 'no map'), 'n') * 2 == 5", True),
        ("size([]) + size('') + size({})", 0.0),
    ],
)
def test_functions_of_the_kit(text: str, worth: object) -> None:
    """Elements without the key, or without a number under it, are left out."""
    expression = compiled(text, "any", NAMES)

    assert worth == evaluate(expression, {"items": LIST})


def test_a_function_given_the_wrong_kind_is_an_error() -> None:
    """By the name that a person knows."""
    assert "'kit.avg' takes no text and text" in broken("kit.avg(item, 'n') > 1", item="x")
    assert "'size' takes no number" in broken("size(item) > 1", item=1)


def test_only_the_last_key_is_asked_for() -> None:
    """What it is selected from has to be there."""
    assert "there is no key 'gone'" in broken("has(item.gone.x)")
    assert "'has' takes no text" in broken("has(item.id.x)")
    assert "there is no 'x' in a text" in broken("item.id.x")


@pytest.mark.parametrize(
    ("weights", "there", "worth"),
    [
        ("{'critical': 0.25, 'high': 0.75}", {"fields.critical": 4, "fields.high": 8}, 7.0),
        ("{'critical': 0.25, 'high': 0.75}", {"fields.high": 8}, 8.0),
        ("{'critical': 1, 'high': 3}", {"fields.critical": 4, "fields.high": 8}, 7.0),
        ("{'critical': 1, 'high': 3}", {}, 0.0),
        ("{'critical': 0, 'high': -3}", {"fields.critical": 4, "fields.high": 8}, 0.0),
        ("{}", {"fields.critical": 4}, 0.0),
        ("{'high': score / 4}", {"fields.high": 8, "score": 4}, 8.0),
    ],
)
def test_a_weighted_mean_is_of_the_fields_that_are_there(
    weights: str, there: Mapping[str, object], worth: float
) -> None:
    """The others' weights are shared among them."""
    expression = compiled(f"weighted(fields, {weights})", "number", NAMES)

    assert worth == evaluate(expression, there)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "weighted(fields, {'critcal': 1})",
            Fault("there is no field 'critcal' that is a number", 19, "critical"),
        ),
        ("weighted(fields, {'kind': 1})", Fault("there is no field 'kind' that is a number", 19)),
        ("weighted(fields, {mode: 1})", Fault("a weight has the name of a field: {'name': 0.4}", 19)),
        ("fields == item", Fault("'fields' alone is only the first argument of weighted(fields, {…})", 1)),
        (
            "weighted(item, {'high': 1})",
            Fault("the fields and weights are written out: weighted(fields, {'name': 0.4})", 1),
        ),
        (
            "weighted(fields, item)",
            Fault("the fields and weights are written out: weighted(fields, {'name': 0.4})", 1),
        ),
    ],
)
def test_weights_have_the_names_of_declared_fields(text: str, fault: Fault) -> None:
    """That are numbers, and are written out."""
    assert fault == _bare(faults(text)[0])


# --- names without a value ------------------------------------------------------------------------------
def test_a_name_without_a_value_may_stand_where_none_is_needed() -> None:
    """`mode.score` has none where `mode` is something else."""
    assert value("mode == 'full' && mode.score > 1") is False
    assert value("mode.score > 1 && mode == 'full'") is False
    assert value("mode == 'quick' || mode.score > 1") is True
    assert value("mode == 'full' ? mode.score : 0") == 0.0


def test_reading_a_name_without_a_value_is_an_error() -> None:
    """Which says the name."""
    assert "'mode.score' has no value" in broken("mode == 'quick' && mode.score > 1")
    assert "'scope.last.retro.velocity' has no value" in broken("scope.last.retro.velocity >= 1")


# --- hostile texts --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (r"'a\'b'", "a'b"), (r'"a\"b"', 'a"b'), (r"r'a\d'", r"a\d"), (r'R"a\"', "a\\"), ("''", ""),
        ("''''''", ""), ("'''a'b''c'''", "a'b''c"), ('"""a"b"""', 'a"b'), ("'''a\r\nb\rc'''", "a\nb\nc"),
        ("r'''a\nb'''", "a\nb"), (r"'\a\b\f\n\r\t\v\\\?\`'", "\a\b\f\n\r\t\v\\?`"),
        (r"'\x41\X42\103\u0044\U00000045\U0001F600'", "ABCDE😀"), ("'a\x00\x01\x7fb'", "a\x00\x01\x7fb"),
        ("'\u2028\x85'", "\u2028\x85"), ("'// no remark'", "// no remark"), ("'a' // ' \n + 'b'", "ab"),
        (r"'\\' + '\''", "\\'"), (r"'''\''''", "'"), ("'é😀' + \"修\"", "é😀修"), (r"r'\u0041'", r"\u0041"),
        ("'{' + '(' + '['", "{(["), (r"'\\u0041'", r"\u0041"),
    ],
)  # fmt: skip
def test_a_text_ends_where_cel_ends_it(text: str, says: str) -> None:
    """Escapes, raw and long texts, quotes and remarks in each other."""
    assert says == value(text)


@pytest.mark.parametrize(
    "text",
    [
        "'a", "'a\nb'", "'a\rb'", r"'\'", r"r'\''", "'''a''", "'a''b'", '"""a""""', r"'\q'", r"'\400'",
        r"'\x4'", r"'\ud800'", r"'\U00110000'", "rb'a'", "br'a'", "B'''a'''", "'a\\\nb'", "r'a\nb'",
        "a\x00b", "a\u00a0b", "\ufeffflag", "flag\x0b", "fl\u00e4g", "'\ud800'", "\ud800", "f'a'",
        "'a' 'b'", "'a'b", "1a", "0x", "1_000", "@in", "$x", "#x", "'\\",
    ],
)  # fmt: skip
def test_a_text_that_cel_does_not_read_is_refused(text: str) -> None:
    """Half of one, escapes that do not exist, bytes, signs from elsewhere."""
    assert faults(text)


@given(st.text(max_size=30), st.sampled_from(["'", '"', "'''", '"""']))
def test_any_text_can_be_written_and_is_read_as_it_was(text: str, quotes: str) -> None:
    """In each kind of quotes."""
    escapes = {"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    literal = quotes + "".join(escapes.get(sign, sign) for sign in text) + quotes

    assert text == value(literal)


PIECES = [
    *"()[]{}.,:?!-+*/%<>='\"\\ \n", "&&", "||", "==", "in", "r'", "'''", "//", "0", "1", "0x1", "1.5",
    "1e9", "x", "i", "item", "items", "mode", "mode.score", "fields", "fields.high", "flag", "score",
    "has(", "size(", "kit.avg(", "weighted(fields, {", "'high': 1", ".exists(i, ", ".map(", ".filter(x, ",
    "[0]", "true", "null", "_n0", "_b_i", "\x00", "é",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_any_text_is_sound_or_refused_and_has_a_value_or_none(text: str) -> None:
    """Nothing else is ever raised; a result is what was declared."""
    kinds: dict[Kind, type] = {"any": object, "boolean": bool, "number": float}
    assert all(1 <= fault.column <= len(text) + 1 for fault in faults(text))
    for result, type_ in kinds.items():
        with contextlib.suppress(Unsound, Broken):
            assert isinstance(value(text, result), type_)
