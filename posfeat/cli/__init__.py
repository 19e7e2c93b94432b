"""The command line: one file for each verb. Whatever is heavy is imported inside the verbs, so that help is instant."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated, Any

import typer

from posfeat import __version__
from posfeat.cli import (
    adapt,
    convert,
    data,
    demo,
    evaluate,
    export,
    extract,
    inspect,
    localize,
    map,
    match,
    merge,
    pairs,
    picture,
    reconstruct,
    serve,
    train,
    triangulate,
    verify,
)

app = typer.Typer(
    name="posfeat",
    help="Local features learnt from camera poses alone: match photos, reconstruct scenes, look into files.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("demo", epilog=demo.EXAMPLES)(demo.demo)
app.command("match", epilog=match.EXAMPLES)(match.match)
app.command("extract", epilog=extract.EXAMPLES)(extract.extract)
app.command("merge", epilog=merge.EXAMPLES)(merge.merge)
app.command("reconstruct", epilog=reconstruct.EXAMPLES)(reconstruct.reconstruct)
app.command("pairs", epilog=pairs.EXAMPLES)(pairs.pairs)
app.command("verify", epilog=verify.EXAMPLES)(verify.verify)
app.command("map", epilog=map.EXAMPLES)(map.map_)
app.command("triangulate", epilog=triangulate.EXAMPLES)(triangulate.triangulate)
app.command("localize", epilog=localize.EXAMPLES)(localize.localize)
app.command("inspect", epilog=inspect.EXAMPLES)(inspect.inspect)
app.command("convert", epilog=convert.EXAMPLES)(convert.convert)
app.command("serve", epilog=serve.EXAMPLES)(serve.serve)
app.command("train", epilog=train.EPILOG)(train.train)
app.command("adapt", epilog=adapt.EXAMPLES)(adapt.adapt)
app.add_typer(data.app, name="data")
app.add_typer(export.app, name="export")
app.add_typer(evaluate.app, name="evaluate")
app.add_typer(picture.app, name="picture", epilog=picture.EXAMPLES)


def main() -> None:
    """Run the command line. What a person can put right is one line on stderr and exit code 2."""
    warnings.showwarning = _show_warning
    try:
        app(prog_name="posfeat")
    except Exception as error:
        message = _message(error)
        if message is None or os.environ.get("POSFEAT_DEBUG") == "1":
            raise
        print(f"posfeat: error: {message}", file=sys.stderr)
        sys.exit(2)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options before the verb."""


def _message(error: Exception) -> str | None:
    """The line to print, or None where the mistake is ours and a traceback helps."""
    from posfeat.types import PosfeatError

    if isinstance(error, PosfeatError):
        return " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return None


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):  # the others are for developers
        print(f"posfeat: warning: {message}", file=sys.stderr)
