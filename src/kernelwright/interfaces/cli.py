"""The command line. Commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from kernelwright import __version__
from kernelwright.core.errors import ExitCode, UsageError
from kernelwright.interfaces.failures import report_failure
from kernelwright.interfaces.output import Output, ensure_standard_streams

app = typer.Typer(
    name="kernelwright",
    help="Turn an operation written in PyTorch into a verified, faster kernel for the machine at hand.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
archive_app = typer.Typer(
    help="What was ever tried: runs and kernels of all tasks.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(archive_app, name="archive")

TaskWords = Annotated[
    str | None,
    typer.Argument(metavar="TASK", help="file.py, file.py:name, or module.path:callable.", show_default=False),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=DTYPE[DIMS]", help="Declare an input, such as x=float32[4096,N]. Repeat."),
]
Workloads = Annotated[
    list[str] | None, typer.Option("--workload", metavar="AXIS=SIZE,…", help="Bind the axes, such as N=4096. Repeat.")
]
RuleOption = Annotated[
    str, typer.Option("--rule", help="own-kernel: its own kernel does the work; any-code: library calls are fine too.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="Where kernels run; only cpu in this version.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Exactly one JSON object on standard output.")]
ArchiveOption = Annotated[
    str | None,
    typer.Option("--archive", metavar="WHERE", help="SQLite file or postgresql:// address; else your own archive."),
]


def _version(shown: bool) -> None:
    if shown:
        _current.say(f"kernelwright {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del version


@app.command()
def optimize(  # noqa: PLR0917 - typer reads the options from the signature
    context: typer.Context,
    task: TaskWords = None,
    inputs: Inputs = None,
    workloads: Workloads = None,
    preset: Annotated[
        str, typer.Option(help="Search method: evolve, best-of-n, random, or a preset's file.")
    ] = "evolve",
    evaluations: Annotated[int, typer.Option(min=0, help="Candidates to judge at most; 0 is no limit.")] = 60,
    wall: Annotated[str, typer.Option(metavar="TIME", help="Longest search: seconds, 90s, 3m, or 'none'.")] = "150s",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search's own choices.")] = 0,
    rule: RuleOption = "own-kernel",
    model: Annotated[str | None, typer.Option(help="A language model proposes kernels too.")] = None,
    model_only: Annotated[
        bool, typer.Option("--model-only", help="The model instead of the built-in proposers.")
    ] = False,
    tokens: Annotated[int | None, typer.Option(min=1, help="Tokens that the model may use.")] = None,
    cost: Annotated[float | None, typer.Option(min=0.0, help="US dollars that the model may cost.")] = None,
    record: Annotated[Path | None, typer.Option(help="Keep the model's answers in this file.")] = None,
    replay: Annotated[Path | None, typer.Option(help="Take the answers from this file, not from a model.")] = None,
    serial: Annotated[bool, typer.Option("--serial", help="One candidate at a time: exactly repeatable.")] = False,
    finalists: Annotated[int, typer.Option(min=1, help="Candidates measured again at the end.")] = 3,
    run_dir: Annotated[
        Path | None, typer.Option(help="The run's folder; else kernelwright-runs/ and a time stamp.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --run-dir (else the latest).")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace an earlier run in --run-dir.")] = False,
    out: Annotated[Path | None, typer.Option(help="The exported folder; else RUN/best.")] = None,
    archive: ArchiveOption = None,
    no_archive: Annotated[bool, typer.Option("--no-archive", help="Keep this run out of your archive.")] = False,
    device: DeviceOption = "cpu",
    json: JsonFlag = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the summary.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours and no live table.")] = False,
) -> None:
    """Search for a kernel that is verified and faster than PyTorch; Ctrl-C keeps everything."""
    from kernelwright.interfaces.commands.optimize import OptimizeOptions, optimize

    options = OptimizeOptions(
        task=task,
        inputs=tuple(inputs or ()),
        workloads=tuple(workloads or ()),
        preset=preset,
        evaluations=evaluations,
        wall=wall,
        seed=seed,
        rule=rule,
        model=model,
        model_only=model_only,
        tokens=tokens,
        cost=cost,
        record=record,
        replay=replay,
        serial=serial,
        finalists=finalists,
        run_dir=run_dir,
        resume=resume,
        fresh=fresh,
        out=out,
        archive=archive,
        no_archive=no_archive,
        device=device,
        given=frozenset(name for name in context.params if _was_given(context, name)),
    )
    _finish(optimize(options, _output(json, quiet=quiet, color=not no_color)))


@app.command()
def evaluate(  # noqa: PLR0917 - as above
    candidate: Annotated[
        Path, typer.Argument(help="A .cpp or .py file, or a folder with candidate.json.", show_default=False)
    ],
    task: Annotated[str, typer.Option("--task", metavar="TASK", help="What it claims to do.", show_default=False)],
    inputs: Inputs = None,
    workloads: Workloads = None,
    rule: RuleOption = "own-kernel",
    device: DeviceOption = "cpu",
    no_timing: Annotated[bool, typer.Option("--no-timing", help="Only whether it is right.")] = False,
    json: JsonFlag = False,
) -> None:
    """Judge one kernel: is it right, and is it faster than PyTorch?"""
    from kernelwright.interfaces.commands.evaluate import evaluate

    words = (tuple(inputs or ()), tuple(workloads or ()))
    _finish(evaluate(candidate, task, *words, rule=rule, device=device, timed=not no_timing, output=_output(json)))


@app.command()
def report(
    run: Annotated[Path | None, typer.Argument(help="A run's folder; else the latest.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option(help="The page to write; else RUN/report.html.")] = None,
    json: JsonFlag = False,
) -> None:
    """Write a run's report as one HTML page."""
    from kernelwright.interfaces.commands.results import write_report

    _finish(write_report(run, out, _output(json)))


@app.command()
def export(
    run: Annotated[Path | None, typer.Argument(help="A run's folder; else the latest.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option(help="The folder to write; else RUN/best.")] = None,
    candidate: Annotated[
        str | None, typer.Option(help="Another candidate than the best: its id, or its beginning.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Write a kernel of a run as a package that needs torch alone."""
    from kernelwright.interfaces.commands.results import write_export

    _finish(write_export(run, out, candidate, _output(json)))


@app.command()
def doctor(
    measure: Annotated[bool, typer.Option("--measure", help="Measure the ceilings if they are not known yet.")] = False,
    json: JsonFlag = False,
) -> None:
    """What works on this machine, what does not, and how to get it."""
    from kernelwright.interfaces.commands.doctor import doctor

    _finish(doctor(_output(json), measure=measure))


@archive_app.command("list")
def archive_list(
    task: Annotated[str | None, typer.Option(help="Only runs of this task (name, or beginning of its id).")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Newest runs to show.")] = 20,
    archive: ArchiveOption = None,
    json: JsonFlag = False,
) -> None:
    """List the runs."""
    from kernelwright.interfaces.commands.archive import list_runs

    _finish(list_runs(archive, task, limit, _output(json)))


@archive_app.command("show")
def archive_show(
    identity: Annotated[str, typer.Argument(metavar="RUN|CANDIDATE", help="An id, or its beginning.")],
    archive: ArchiveOption = None,
    json: JsonFlag = False,
) -> None:
    """Show a run and its attempts, or a candidate with its source, verdicts and ancestors."""
    from kernelwright.interfaces.commands.archive import show

    _finish(show(archive, identity, _output(json)))


_current = Output()


def _output(as_json: bool, *, quiet: bool = False, color: bool = True) -> Output:
    _current.quiet, _current.color = quiet, color
    assert as_json == _current.as_json or not _current.as_json
    _current.as_json = as_json
    return _current


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _finish(code: ExitCode) -> None:
    raise typer.Exit(int(code))


def run(arguments: list[str]) -> int:
    """Run a command; returns the exit code. Errors are printed here and nowhere else."""
    global _current  # noqa: PLW0603 - the one place that knows whether the answer is JSON before the words are parsed
    _current = Output(as_json=any(word.partition("=")[0] == "--json" for word in arguments))
    with _current.guarded():
        try:
            with _termination_as_interrupt():
                return _about(arguments) if _current.as_json and _asks_about(arguments) else _invoke(arguments)
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else ExitCode.USAGE
        except BaseException as error:  # noqa: BLE001 - the boundary: nothing may leave as a bare traceback
            return report_failure(error, _current)


@contextlib.contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: with an answer, and with nothing of ours left running."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _asks_about(arguments: list[str]) -> bool:
    return bool({"--help", "-h", "--version"} & set(arguments))


def _about(arguments: list[str]) -> int:
    """Help or the version as one object."""
    words = [word for word in arguments if word != "--json"]
    if "--version" in words:
        _current.answer({"version": __version__})
        return ExitCode.OK
    with contextlib.redirect_stdout(io.StringIO()) as told:
        code = _invoke(words)
    _current.answer({"help": told.getvalue()})
    return code


def _invoke(arguments: list[str]) -> int:
    command: Any = typer.main.get_command(app)
    try:
        result = command.main(args=arguments, prog_name="kernelwright", standalone_mode=False)
    except Exception as error:
        message = _usage_message(error)
        if message is None:
            raise
        if message == "":
            return ExitCode.USAGE
        raise UsageError(message, hint=_usage_hint(error)) from error
    if result == ExitCode.INTERRUPTED:
        # The parser makes a mere exit code of Ctrl-C; the user is owed an answer.
        raise KeyboardInterrupt
    return result if isinstance(result, int) else ExitCode.OK


def _usage_message(error: Exception) -> str | None:
    """The parser's complaint; empty where it already showed help; None for anything else."""
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(getattr(error, "ctx").get_help(), err=True)  # noqa: B009
        return ""
    if type(error).__name__ == "Abort":
        raise KeyboardInterrupt from error
    described = getattr(error, "format_message", None)
    return str(described()) if callable(described) else None


def _usage_hint(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"see {context.command_path} --help" if context is not None else "see kernelwright --help"


def main() -> None:
    """Entry point of the `kernelwright` script."""
    ensure_standard_streams()
    sys.exit(int(run(sys.argv[1:])))
