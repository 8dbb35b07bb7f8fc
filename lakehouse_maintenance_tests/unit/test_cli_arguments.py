"""Global flags are found before and after the verb, and never inside an option's value."""

from __future__ import annotations

import itertools

import pytest

from lakehouse_maintenance.cli.arguments import split_arguments

VALUES = {"--where", "--out", "--option"}


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("config", [["--config", "x.yaml"], ["--config=x.yaml"]])
def test_flags_may_stand_anywhere(position: int, config: list[str]) -> None:
    verb = ["plan", "db.t", "--dry-run"]
    found = split_arguments([*verb[:position], *config, "--json", "-v", *verb[position:]], VALUES)
    assert (found.config, found.as_json, found.verbosity, found.rest) == ("x.yaml", True, 1, verb)


def test_every_order_means_the_same() -> None:
    for order in itertools.permutations([["--json"], ["-v"], ["--config", "c"], ["health"]]):
        found = split_arguments([argument for part in order for argument in part], VALUES)
        assert (found.config, found.as_json, found.verbosity, found.rest) == ("c", True, 1, ["health"])


@pytest.mark.parametrize("value", ["--json", "-v", "--config", "--config=x"])
def test_values_of_options_are_no_flags(value: str) -> None:
    found = split_arguments(["plan", "--where", value], VALUES)
    assert found.rest == ["plan", "--where", value]
    assert (found.config, found.as_json, found.verbosity, found.problem) == (None, False, 0, None)


def test_nothing_after_a_bare_double_dash_is_global() -> None:
    found = split_arguments(["health", "--", "--json", "-v"], VALUES)
    assert found.rest == ["health", "--", "--json", "-v"]
    assert not found.as_json


@pytest.mark.parametrize("argv", [["health", "--config"], ["--config=", "health", "--json"]])
def test_a_config_without_a_value_is_a_problem(argv: list[str]) -> None:
    found = split_arguments(argv, VALUES)
    assert found.problem is not None
    assert found.problem.field == "--config"


def test_verbosity_adds_up() -> None:
    assert split_arguments(["-vv", "health", "--verbose"], VALUES).verbosity == 3


def test_an_attached_value_takes_no_next_argument() -> None:
    found = split_arguments(["plan", "--where=x > 1", "--json"], VALUES)
    assert found.as_json
    assert found.rest == ["plan", "--where=x > 1"]
