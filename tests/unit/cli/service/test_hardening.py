"""What of the daemon's hardening systemd can do, and what is left out of its unit."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.cli.service.plan import Fitted, fitted, hardening_lines, kernel_obstacle
from handoffd.cli.service.scope import Machine, Scope
from handoffd.doctor.service import refusal
from handoffd.settings.paths import shared


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("kernel/unprivileged_userns_clone", "0\n", "kernel.unprivileged_userns_clone=0"),
        ("kernel/unprivileged_userns_clone", "1\n", None),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=1",
        ),
        ("kernel/apparmor_restrict_unprivileged_userns", "0", None),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=0"),
        ("user/max_user_namespaces", "96365", None),
        ("user/max_user_namespaces", "\xff", None),
    ],
)
def test_a_kernel_that_forbids_user_namespaces_is_recognised(
    tmp_path: Path, name: str, value: str, why: str | None
) -> None:
    """In the words of sysctl, which a person can search for."""
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_bytes(value.encode("latin-1"))

    assert why == kernel_obstacle(tmp_path)


_RUN = """#!/bin/sh
# Refuses units as systemd does: FILE has words that a unit must not ask for, each with the exit code.
# CapabilityBoundingSet= works only in a user namespace.
echo "$*" >> "$LOGGED"
for word in "$@"; do
    code=$(sed -n -e "s/ <- $word\\$//p" -e 's/ <- .*=ANY$//p' "$REFUSED")
    [ -z "$code" ] || exit "$code"
done
case "$*" in
    *User=*) ;;
    *CapabilityBoundingSet=*) case "$*" in *PrivateUsers=*) ;; *) exit 218 ;; esac ;;
esac
"""


class Bench:
    """A machine in a folder, whose systemd refuses some lines; None: no systemd runs."""

    def __init__(self, root: Path, refused: dict[str, int] | None = None) -> None:
        self.log = root / "log"
        (root / "bin").mkdir()
        if refused is not None:
            (root / "systemd").mkdir()
            lines = (f"{code} <- --property={line}\n" for line, code in refused.items())
            (root / "refused").write_text("".join(lines), encoding="utf-8")
            (root / "bin/systemd-run").write_text(_RUN, encoding="utf-8")
            (root / "bin/systemd-run").chmod(0o755)
        environment = {
            "PATH": f"{root / 'bin'}:/usr/bin:/bin", "XDG_RUNTIME_DIR": str(root),
            "LOGGED": str(self.log), "REFUSED": str(root / "refused"),
        }  # fmt: skip
        self.kernel = root / "kernel"
        self.machine = Machine(environment=environment, systemd=root / "systemd", kernel=self.kernel)

    def fitted(self, name: str = "handoffd.service") -> Fitted:
        """Return a shipped unit, fitted to this machine."""
        account = "build" if "@" in name else None
        return fitted(Scope(account=account, machine=self.machine), _shipped(name))

    def trials(self) -> list[str]:
        """Return the calls of systemd-run, each on one line."""
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []


def _shipped(name: str) -> str:
    return shared("systemd", name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["handoffd.service", "handoffd@.service"])
def test_all_lines_are_tried_together_by_a_unit_that_does_nothing(tmp_path: Path, name: str) -> None:
    """What is tried is what the unit asks for; where systemd can do it, the unit stays as it is."""
    bench = Bench(tmp_path, {})

    found = bench.fitted(name)

    lines = hardening_lines(_shipped(name))
    assert (_shipped(name), None, {}) == (found.text, found.obstacle, found.left_out)
    assert 20 < len(lines)
    assert all(f"--property={line}" in bench.trials()[-1] for line in lines)
    assert bench.trials()[-1].endswith(" true")


@pytest.mark.parametrize(
    "refused",
    [
        {"ProtectKernelLogs=yes": 226},
        {"LockPersonality=yes": 228, "ProtectSystem=full": 226},
        {"ProtectHostname=yes": 226, "SystemCallFilter=~@privileged @resources": 228},
    ],
)
@pytest.mark.parametrize("name", ["handoffd.service", "handoffd@.service"])
def test_only_the_lines_that_systemd_refuses_are_left_out(
    tmp_path: Path, name: str, refused: dict[str, int]
) -> None:
    """The unit names the reason of each; the lines that are left have been tried together."""
    bench = Bench(tmp_path, refused)

    found = bench.fitted(name)

    assert (refused, None) == (found.left_out, found.obstacle)
    kept = hardening_lines(found.text)
    assert [line for line in hardening_lines(_shipped(name)) if line not in refused] == kept
    for line, code in refused.items():
        assert f"\n# systemd cannot do this here ({refusal(code)}): {line}\n" in found.text
    passed = [trial for trial in bench.trials() if not any(line in trial for line in refused)]
    assert all(f"--property={line}" in max(passed, key=len) for line in kept)


def test_the_account_is_part_of_the_trial(tmp_path: Path) -> None:
    """What its unit may do depends on it; the machine's own systemd tries it."""
    bench = Bench(tmp_path, {})
    bench.fitted("handoffd@.service")
    bench.fitted()

    assert "--property=User=build" in bench.trials()[0]
    assert "--user" not in bench.trials()[0]
    assert "--user" in bench.trials()[1]


@pytest.mark.parametrize("forbidden", [True, False])
def test_without_a_user_namespace_all_lines_that_need_one_are_left_out(
    tmp_path: Path, forbidden: bool
) -> None:
    """The kernel forbids one, or the manager cannot make one; the rest is tried all the same."""
    bench = Bench(tmp_path, {"RestrictRealtime=yes": 228, **({} if forbidden else {"PrivateUsers=yes": 217})})
    if forbidden:
        (bench.kernel / "user").mkdir(parents=True)
        (bench.kernel / "user/max_user_namespaces").write_text("0", encoding="ascii")

    found = bench.fitted()

    why = (
        "user.max_user_namespaces=0"
        if forbidden
        else "your systemd could not make one (exit status 217/USER)"
    )
    assert (why, {"RestrictRealtime=yes": 228}) == (found.obstacle, found.left_out)
    kept = hardening_lines(found.text)
    assert "NoNewPrivileges=yes" in kept
    assert not [line for line in kept if line.startswith(("Private", "Protect", "Capability"))]


@pytest.mark.parametrize("refused", [None, {"LockPersonality=yes": 1}, {"ANY": 203}])
def test_without_an_answer_nothing_is_left_out(tmp_path: Path, refused: dict[str, int] | None) -> None:
    """No systemd runs, as in an image that is built; its manager does not answer; or every unit fails."""
    assert _shipped("handoffd.service") == Bench(tmp_path, refused).fitted().text


def test_a_launcher_is_not_hardened() -> None:
    """So nothing of its unit is tried."""
    assert [] == hardening_lines(_shipped("handoffd-launcher.service"))
