"""Global flags may stand before and after the verb; here they are taken out of the arguments, wherever they stand."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from lakehouse_maintenance.model.errors import InputError

_VERBOSE = re.compile(r"-v+")


@dataclass(slots=True)
class Arguments:
    """`rest`: everything that is not global, in its order. `verbosity`: how often `-v` was given."""

    config: str | None = None
    as_json: bool = False
    verbosity: int = 0
    rest: list[str] = field(default_factory=list)
    problem: InputError | None = None


def split_arguments(argv: Sequence[str], value_options: Collection[str]) -> Arguments:
    """`value_options`: options that take the next argument as their value, which is then never taken for a flag.

    Nothing after a bare `--` is global. What is wrong with a global flag is the result's `problem`, so that a `--json`
    that follows it still counts.
    """
    found = Arguments()
    pending = list(argv)
    while pending:
        argument = pending.pop(0)
        if argument == "--":
            found.rest += [argument, *pending]
            break
        if argument == "--config":
            if pending:
                found.config = pending.pop(0)
            else:
                found.problem = InputError("--config needs a value", field="--config", hint="write --config FILE")
        elif argument.startswith("--config="):
            found.config = argument.partition("=")[2]
        elif argument == "--json":
            found.as_json = True
        elif argument == "--verbose":
            found.verbosity += 1
        elif _VERBOSE.fullmatch(argument):
            found.verbosity += len(argument) - 1
        else:
            found.rest.append(argument)
            if argument in value_options and pending:
                found.rest.append(pending.pop(0))
    if found.config == "" and found.problem is None:
        found.problem = InputError("--config is empty", field="--config", hint="write --config FILE")
    return found
