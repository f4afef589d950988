"""What a program of the kit gets: the board of a flow, parameters, answers; and how it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.kit.boards import board, given, row

from handoffd.errors import InvalidFile, NotFound, Refused
from handoffd.kit.given import Answer, as_json, objects, parsed, path_of, read_board, text_of, texts_of


def test_a_task_and_its_item_are_read_from_the_name_of_a_node(tmp_path: Path) -> None:
    """The names of the groups stay, the items go."""
    found = board(tmp_path, [row("issue[GH-12]/solve", "solution.json")], {}).entries[0]

    assert ("issue/solve", "GH-12", ("issue[GH-12]/solve/solution.json",)) == (
        found.task, found.item, found.files,
    )  # fmt: skip


def test_a_file_is_looked_for_on_the_board_before_the_workspace(tmp_path: Path) -> None:
    """A project may have a `manifest.json` that has nothing to do with it."""
    one = board(tmp_path / "board", [row("scan", "manifest.json")], {"scan/manifest.json": {"a": 1}})
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "manifest.json").write_text('{"a": 2}')

    assert ("scan/manifest.json", {"a": 1}) == given(tmp_path / "work", board=one).find("manifest.json")
    assert ("manifest.json", {"a": 2}) == given(tmp_path / "work").find("manifest.json")


def test_a_file_that_is_nowhere_is_not_found(tmp_path: Path) -> None:
    """The message says where it was looked for."""
    with pytest.raises(NotFound, match=r"neither on the board nor in"):
        given(tmp_path).find("manifest.json")


def test_the_board_of_another_flow_is_read_by_its_name(tmp_path: Path) -> None:
    """A name that leads elsewhere is refused before it is looked for."""
    board(tmp_path / "flows" / "review-cycle-1a2b", [row("aggregate")], {})
    one = given(tmp_path / "work", flows=tmp_path / "flows")

    assert "aggregate" == one.of_flow("review-cycle-1a2b").entries[0].node
    with pytest.raises(NotFound, match="no flow 'other'"):
        one.of_flow("other")
    with pytest.raises(Refused, match="cannot name a flow"):
        one.of_flow("../other")


def test_a_file_of_the_board_cannot_lead_out_of_it(tmp_path: Path) -> None:
    """Neither by its name nor by a link."""
    (tmp_path / "secret").write_text("{}")
    one = board(tmp_path / "board", [row("a")], {})
    (tmp_path / "board" / "link.json").symlink_to(tmp_path / "secret")

    for name in ("../secret", "link.json"):
        with pytest.raises(Exception, match="refusing"):
            one.read(name)


def test_a_parameter_that_is_missing_is_named(tmp_path: Path) -> None:
    """With the variable to set."""
    with pytest.raises(Refused, match="the parameter 'name' is missing") as refused:
        given(tmp_path).param("name")
    assert "export HANDOFFD_PARAM_NAME=…" == refused.value.hint


def test_a_list_is_json_of_texts(tmp_path: Path) -> None:
    """Anything else is refused."""
    assert ("a", "b") == given(tmp_path, params={"paths": '["a", "b"]'}).param_list("paths")
    for text in ("[1]", "{}", "a,b"):
        with pytest.raises(InvalidFile, match="HANDOFFD_PARAM_PATHS"):
            given(tmp_path, params={"paths": text}).param_list("paths")


def test_an_answer_names_several_by_commas_spaces_or_json() -> None:
    """As people type them, also in Chinese."""
    assert ("E1", "E2") == Answer("chosen", "E1, E2").words == Answer("chosen", "E1、E2\n").words
    assert ("E1", "E2") == Answer("chosen", '["E1", "E2"]').words
    assert () == Answer("chosen").words


def test_what_is_no_json_is_refused_with_its_line() -> None:
    """And numbers that JSON does not have."""
    with pytest.raises(InvalidFile, match=r"a\.json:2: not JSON"):
        parsed(b'{\n"a": }', "a.json")
    with pytest.raises(InvalidFile, match="NaN does not count as a number"):
        parsed(b'{"a": NaN}', "a.json")


def test_a_value_of_another_form_is_refused_with_its_key() -> None:
    """And the values that are allowed."""
    with pytest.raises(InvalidFile, match=r"f\.json: tasks: must be a list"):
        objects({"tasks": {}}, "f.json", "tasks")
    with pytest.raises(InvalidFile, match=r"tasks\[0\]: must be an object"):
        objects({"tasks": [1]}, "f.json", "tasks")
    with pytest.raises(InvalidFile, match=r"unknown value 'grave' \(allowed: low, high\)"):
        text_of({"severity": "grave"}, "severity", "f.json", "x", ("low", "high"))
    with pytest.raises(InvalidFile, match="must be a list of texts"):
        texts_of({"files": [1]}, "files", "f.json", "x")


@pytest.mark.parametrize("path", ["/etc/passwd", "~/x", "a/../../b", "", ".", "a\nb"])
def test_a_path_stays_below_the_projects_folder(path: str) -> None:
    """Also one that would come back to it."""
    with pytest.raises(InvalidFile, match="must be a path below"):
        path_of(path, "f.json", "target")


def test_a_path_is_brought_to_its_shortest_form() -> None:
    """So that one file has one name."""
    assert "a/b" == path_of("./a//b/", "f.json", "target")


def test_an_index_that_is_no_list_is_refused(tmp_path: Path) -> None:
    """And a row without a node."""
    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(InvalidFile, match="must be a list"):
        read_board(tmp_path)
    (tmp_path / "index.json").write_text('[{"visit": 1}]')
    with pytest.raises(InvalidFile, match=r"\[0\]: must be an object"):
        read_board(tmp_path)


def test_the_same_value_is_always_the_same_text() -> None:
    """In the order of its keys as they were made."""
    assert '{\n "b": 1,\n "a": "é"\n}\n' == as_json({"b": 1, "a": "é"}).decode()
