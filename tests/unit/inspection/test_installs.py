"""Installations that lead back to a project's own folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handoffd.inspection.installs import leading_back


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with an environment and node packages in its folder."""
    root = tmp_path / "shop"
    (root / ".venv/bin").mkdir(parents=True)
    packages_of(root / ".venv")
    (root / "node_modules/@scope").mkdir(parents=True)
    (root / "packages/till").mkdir(parents=True)
    return root


def packages_of(environment: Path) -> Path:
    """Return the folder of an environment's packages."""
    packages = environment / "lib/python3.11/site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    return packages


def found(
    root: Path, *shared: str, program: str | None = None, installs: bool = False, **environment: str
) -> str | None:
    """Return what leads back."""
    command = None if program is None else (program, "-q")
    return leading_back(str(root), shared, command, environment, installs=installs)


@pytest.mark.parametrize("name", ["__editable__.shop-1.0.pth", "shop.egg-link.pth", "_shop.pth"])
def test_a_path_to_the_project_leads_back(root: Path, name: str) -> None:
    """As `pip install -e` writes one; only where the clone shares the environment."""
    file = packages_of(root / ".venv") / name
    file.write_text(f"import something\n{root}/src\n")

    assert str(file) == found(root, ".venv")
    assert found(root, "node_modules") is None


def test_a_finder_of_the_project_leads_back(root: Path) -> None:
    """As newer ones are made, where the layout is not a plain folder."""
    file = packages_of(root / ".venv") / "__editable___shop_1_0_finder.py"
    file.write_text(f"MAPPING: dict[str, str] = {{'shop': '{root}/src/shop'}}\n")

    assert str(file) == found(root, ".venv")


def test_other_paths_lead_elsewhere(root: Path) -> None:
    """To the environment itself, to another project of a name that begins alike, to code."""
    packages = packages_of(root / ".venv")
    (packages / "distutils-precedence.pth").write_text("import os; os.path.join('/', 'x')\n")
    (packages / "own.pth").write_text(f"{packages}/vendored\n{root}-two/src\n../relative\n")
    (packages / "__editable___other_finder.py").write_text(f"MAPPING = {{'other': '{root}-two/src'}}\n")

    assert found(root, ".venv") is None


@pytest.mark.parametrize("name", ["till", "@scope/till"])
def test_a_workspace_of_node_leads_back(root: Path, name: str) -> None:
    """Its package is a link into the project; one within `node_modules` is not."""
    (root / "node_modules/real").mkdir()
    (root / "node_modules/.bin").symlink_to("real")
    assert found(root, "node_modules") is None
    (root / "node_modules" / name).symlink_to(root / "packages/till")

    assert str(root / "node_modules" / name) == found(root, "node_modules")


def test_the_python_that_runs_the_tests_counts(tmp_path: Path, root: Path) -> None:
    """Wherever it is; also behind a link, and of a program beside it."""
    environment = tmp_path / "envs/shop"
    (environment / "bin").mkdir(parents=True)
    for name in ("python", "pytest"):
        (environment / "bin" / name).write_text("#!/bin/sh\n")
        (environment / "bin" / name).chmod(0o755)
    file = packages_of(environment) / "__editable__.shop.pth"
    file.write_text(f"{root}\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/py").symlink_to(environment / "bin/python")

    assert str(file) == found(root, program=str(environment / "bin/python"))
    assert str(file) == found(root, program="pytest", PATH=str(environment / "bin"))
    assert str(file) == found(root, program="py", PATH=str(tmp_path / "bin"))
    assert found(root, program="go", PATH=str(tmp_path / "bin")) is None
    assert found(root, program="./run-tests", PATH=str(environment / "bin")) is None


def test_a_file_that_cannot_be_read_leads_nowhere(root: Path) -> None:
    """Nor does a pipe in its place stop anything."""
    packages = packages_of(root / ".venv")
    (packages / "folder.pth").mkdir()
    (packages / "dangling.pth").symlink_to("/nowhere/at/all")
    os.mkfifo(packages / "pipe.pth")

    assert found(root, ".venv") is None


def test_what_an_installer_has_noted_leads_back(root: Path) -> None:
    """However the installation finds the code: `pip install -e` notes the same for all of its ways."""
    noted = packages_of(root / ".venv") / "shop-1.0.dist-info/direct_url.json"
    noted.parent.mkdir()
    for text, leads in (
        (f'{{"url": "file://{root}", "dir_info": {{"editable": true}}}}', True),
        (f'{{"url": "file://{root}", "dir_info": {{}}}}', False),
        (f'{{"url": "file://{root}-two", "dir_info": {{"editable": true}}}}', False),
        (f'{{"url": "file://{root}/.venv/src/x", "dir_info": {{"editable": true}}}}', False),
        ('{"url": "https://example.org/shop", "dir_info": {"editable": true}}', False),
        ("[", False),
        ("[]", False),
    ):
        noted.write_text(text)
        assert (str(noted) if leads else None) == found(root, ".venv"), text


def test_any_python_of_a_python_project_counts(tmp_path: Path, root: Path) -> None:
    """`make test` may use it; but not where the clone installs packages of its own."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").write_text("#!/bin/sh\n")
    (tmp_path / "bin/python3").chmod(0o755)
    file = packages_of(tmp_path) / "shop.pth"
    file.write_text(f"{root}\n")
    path = str(tmp_path / "bin")

    assert found(root, program="make", PATH=path) is None
    (root / "pyproject.toml").touch()
    assert str(file) == found(root, program="make", PATH=path)
    assert found(root, program="make", PATH=path, installs=True) is None
    assert found(root, program="tox", PATH=path) is None
    file.unlink()
    own = packages_of(tmp_path / "home/.local") / "shop.pth"
    own.write_text(f"{root}\n")
    assert str(own) == found(root, program="make", PATH=path, HOME=str(tmp_path / "home"))


def test_a_variable_of_the_tests_leads_back(root: Path) -> None:
    """Unless it names what the clone shares."""
    assert "PYTHONPATH" == found(root, PYTHONPATH=f"/usr/lib:{root}/src")
    assert "NODE_PATH" == found(root, "node_modules", NODE_PATH=f"{root}")
    assert found(root, "node_modules", NODE_PATH=f"{root}/node_modules:relative") is None
    assert found(root, PYTHONPATH=f"{root}-two") is None


def test_a_shared_file_that_names_the_project_leads_back(root: Path) -> None:
    """As an `.env` with whole paths does."""
    for text, leads in ((f"HOME={root}/src\n", True), (f"HOME={root}\n", True), (f"A={root}-two\n", False)):
        (root / ".env").write_text(text)
        assert (str(root / ".env") if leads else None) == found(root, ".env"), text
