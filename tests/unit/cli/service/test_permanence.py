"""Whether a service will find its program tomorrow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import handoffd
from handoffd.cli.service.unit_files import Installation, cautions, editable_source, require_permanent
from handoffd.errors import Refused


def _at(program: Path) -> Installation:
    return Installation(program=program, python=Path("/bin/sh"), package=program.parents[1] / "handoffd")


def test_a_program_in_a_cache_is_refused(tmp_path: Path) -> None:
    """`uvx` and `pipx run` sweep theirs away, wherever they were told to have them."""
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv/CACHEDIR.TAG").touch()

    for program in (tmp_path / ".cache/pipx/x/bin/handoffd", tmp_path / "uv/archive-v0/x/bin/handoffd"):
        with pytest.raises(Refused, match="swept") as caught:
            require_permanent(_at(program))
        assert "uv tool install" in (caught.value.hint or "")


def test_an_environment_that_uv_has_tagged_is_no_cache(tmp_path: Path) -> None:
    """It tags those of `uv tool install` and of pipx, too."""
    (tmp_path / "tools/handoffd").mkdir(parents=True)
    (tmp_path / "tools/handoffd/CACHEDIR.TAG").touch()

    require_permanent(_at(tmp_path / "tools/handoffd/bin/handoffd"))


def test_a_folder_that_is_emptied_is_said() -> None:
    """It works until then."""
    (caution,) = [line for line in cautions(_at(Path("/tmp/venv/bin/handoffd"))) if "emptied" in line]

    assert "/tmp/venv/bin/handoffd is in /tmp" in caution
    assert not [line for line in cautions(_at(Path("/opt/venv/bin/handoffd"))) if "emptied" in line]


def test_a_checkout_that_is_run_as_it_is_is_said(tmp_path: Path) -> None:
    """As this one is; a wheel's package has no such source."""
    package = Path(handoffd.__file__).resolve().parent

    assert str(package.parents[1]) == editable_source(package)
    assert editable_source(tmp_path / "site-packages/handoffd") is None


def test_a_distribution_that_says_nothing_is_no_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not the form of it is not read as one."""
    info = tmp_path / "handoffd-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: handoffd\nVersion: 9\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    assert editable_source(tmp_path) is None
    for text in ("no json", "[]", json.dumps({"url": "file:///x", "dir_info": {}})):
        (info / "direct_url.json").write_text(text, encoding="utf-8")
        assert editable_source(tmp_path) is None
