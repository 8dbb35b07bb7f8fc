"""Runs one command line: streams, logs, signals, and every way to end as an exit code.

0: done. 1: something failed, or what was asked for is blocked or unknown. 2: bad input or configuration: nothing was
read or written. 130 and 143: stopped by Ctrl-C or SIGTERM, after what was begun was told to the journal.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.exceptions import TyperException

from lakehouse_maintenance.cli.app import app
from lakehouse_maintenance.cli.arguments import Arguments, split_arguments
from lakehouse_maintenance.cli.session import Session
from lakehouse_maintenance.model.errors import InputError, LakehouseError

if TYPE_CHECKING:
    from lakehouse_maintenance.config.secrets import Masker

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line, the process's own by default, and returns the exit code."""
    command: Any = typer.main.get_command(app)
    given = list(sys.argv[1:] if argv is None else argv)
    arguments = split_arguments(given, _value_options(command))
    _make_encodable()
    session = Session(arguments.config, as_json=arguments.as_json, verbosity=arguments.verbosity)
    with _stoppable(), _logs(session):
        try:
            return _run(command, arguments, session)
        except LakehouseError as error:
            session.fail(error)
            return BAD_INPUT if isinstance(error, InputError) else FAILED
        except TyperException as error:
            session.hide(_masker_of(given))
            session.fail(_usage_error(error))
            return BAD_INPUT
        except SystemExit as stopped:
            return stopped.code if isinstance(stopped.code, int) else FAILED
        except BrokenPipeError:
            # Who read the result has enough of it. Python flushes at exit, which must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return FAILED
        except Exception as error:  # noqa: BLE001  # told to the user, with its traceback where that is asked for
            if session.verbosity:
                session.say("".join(traceback.format_exception(error)))
            session.fail(_internal(error, told=bool(session.verbosity)))
            return FAILED


def _run(command: Any, arguments: Arguments, session: Session) -> int:
    if arguments.problem is not None:
        raise arguments.problem
    rest = arguments.rest
    if not rest and not session.as_json:
        rest = ["--help"]
    asks_for_text = {"--help", "-h", "--version"} & set(rest)
    # What a library prints must not get into the result.
    with nullcontext() if asks_for_text else redirect_stdout(session.err):
        code = command.main(args=rest, prog_name="lakehouse-maintenance", standalone_mode=False, obj=session)
    if code == INTERRUPTED:
        session.say("stopped")
    return int(code or 0)


def _value_options(command: Any) -> set[str]:
    """Names of all verbs' options that take a value, those of their own verbs included."""
    found: set[str] = set()
    for verb in command.commands.values():
        for parameter in verb.params:
            if parameter.param_type_name == "option" and not parameter.is_flag and not parameter.count:
                found.update(parameter.opts)
        if hasattr(verb, "commands"):
            found |= _value_options(verb)
    return found


def _usage_error(error: TyperException) -> InputError:
    parameter = getattr(error, "param", None)
    field = getattr(error, "option_name", None) or (parameter.opts[0] if parameter is not None else None)
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "lakehouse-maintenance"
    message = " ".join(error.format_message().split())
    return InputError(message, field=field, hint=f"see: {path} --help")


class InternalError(LakehouseError):
    """A fault of ours."""

    code = "internal_error"


def _internal(error: Exception, *, told: bool) -> InternalError:
    text = " ".join(str(error).split())
    return InternalError(
        f"internal error: {type(error).__name__}: {text}",
        hint="the traceback is above; please report it" if told else "run it again with -v for the traceback",
    )


def _masker_of(argv: Sequence[str]) -> Masker:
    """Knows the secrets among `name=value` arguments, which a usage error may repeat."""
    from lakehouse_maintenance.config.secrets import Masker, property_secrets

    pairs = [argument.partition("=") for argument in argv]
    return Masker(secret for name, _, value in pairs for secret in property_secrets({name.lstrip("-"): value}))


def _make_encodable() -> None:
    """A terminal that cannot show a character gets its escape instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            with suppress(ValueError, OSError):
                reconfigure(errors="backslashreplace")


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends the call like Ctrl-C does: outcomes are journaled and leases given back on the way out."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(TERMINATED)


@contextmanager
def _logs(session: Session) -> Iterator[None]:
    """Our warnings on standard error; with -v what we do and others' warnings, with -vv everything."""
    import logging
    import warnings

    class Masked(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return session.mask(super().format(record))

    ours = logging.WARNING if not session.verbosity else logging.INFO if session.verbosity == 1 else logging.DEBUG
    others = logging.CRITICAL if not session.verbosity else logging.WARNING if session.verbosity == 1 else logging.DEBUG
    handler = logging.StreamHandler(session.err)
    handler.setFormatter(Masked("%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(
        lambda record: record.levelno >= (ours if record.name.startswith("lakehouse_maintenance") else others)
    )
    root, own = logging.getLogger(), logging.getLogger("lakehouse_maintenance")
    before = root.level, own.level
    root.addHandler(handler)
    own.setLevel(ours)
    if session.verbosity > 1:
        root.setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings():
            if not session.verbosity:
                warnings.simplefilter("ignore")
            yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        own.setLevel(before[1])
