"""The command line. Each command imports what it needs when it runs, so that help is fast."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter
from cyclopts.validators import Number

from ..errors import Note, NotFinite, Stopped, UserError, missing_package_message, truncate
from ..limits import MAX_JOBS, MAX_THREADS
from ..terminal import escape_controls, escape_output

USER_MISTAKE, FAILED, INTERRUPTED = 2, 1, 130
STDIN = "/dev/stdin"
Threads = Annotated[int | None, Parameter(validator=Number(gte=1, lte=MAX_THREADS))]
Jobs = Annotated[int | None, Parameter(validator=Number(gte=1, lte=MAX_JOBS))]
REJECT = 0.05  # the rate of `--reject` without a number

app = App(
    name="ssdg",
    help="Semi-supervised domain generalization: train on one labeled domain and unlabeled images from others, "
    "classify images of an unseen domain.",
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,
    # A file may be named `[]`; an empty list has no use on a command line.
    default_parameter=Parameter(json_list=False, json_dict=False, negative_iterable=()),
)
COMMANDS = {
    "demo": ("ssdg.cli.demo:demo", "Train source-only and EID on embedded digits and compare them, in minutes."),
    "train": ("ssdg.cli.train:train", "Train a method, or resume an interrupted run."),
    "resume": ("ssdg.cli.train:resume", "Resume the run in a folder."),
    "evaluate": (
        "ssdg.cli.evaluate:evaluate",
        "Evaluate a trained run or an exported model on a folder with class subfolders.",
    ),
    "predict": ("ssdg.cli.predict:predict", "Classify images with a trained run or an exported model."),
    "features": ("ssdg.cli.features:features", "Extract features of images with a backbone or a trained run."),
    "export": ("ssdg.cli.export:export", "Export a trained model to an ONNX or .pt2 file for other programs."),
    "bench": ("ssdg.cli.bench:app", "Run a benchmark: a table of the paper or a custom grid."),
    "methods": ("ssdg.cli.methods:methods", "List the available methods."),
    "table": (
        "ssdg.cli.table:table",
        "Build the table of a benchmark: mean ± deviation, best values, paired tests.",
    ),
    "figure": ("ssdg.cli.table:figure", "Draw a figure of a benchmark, or the t-SNE of a run."),
    "select": (
        "ssdg.cli.select:select",
        "Select the best run without target labels, and measure how well that works.",
    ),
    "report": ("ssdg.cli.report:report", "Write an HTML report of runs: curves, pseudo-labels, discarded images."),
    "discover": (
        "ssdg.cli.discover_domains:discover",
        "Split mixed-domain images by style into domains; write a table and a contact sheet.",
    ),
    "web": ("ssdg.cli.web:app", "Build web data: crawl images or ingest an existing crawl, then audit it."),
    "data": ("ssdg.cli.data:app", "List, download, describe and verify image data."),
}
for name, (import_path, help_text) in COMMANDS.items():
    app.command(import_path, name=name, help=help_text)


def main(args: list[str] | None = None) -> None:
    """Run a command and exit; an invalid input is reported in one sentence on stderr, with exit code 2."""
    sys.exit(call(sys.argv[1:] if args is None else args))


def show_notes() -> None:
    """Print notes of a run on one line each; leave other warnings to Python."""
    show_warning = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
        if issubclass(category, Note):
            print(f"note: {message}", file=sys.stderr)
        else:
            show_warning(message, category, filename, lineno, *rest)

    warnings.showwarning = show  # type: ignore[assignment]


def call(args: list[str]) -> int:
    """Run a command and return its exit code."""
    with warnings.catch_warnings(), escape_output(), interrupt_on_signals() as interrupted:
        show_notes()
        try:
            return _call(args)
        except Exception:
            if not interrupted:
                raise
            return _report_interrupt()  # an import can turn the interrupt into another exception


@contextmanager
def interrupt_on_signals() -> Iterator[set[int]]:
    """Turn SIGTERM into the `KeyboardInterrupt` that Ctrl-C is; yield the signals that arrived.

    While a run trains, its own handlers let it write a checkpoint first.
    """
    received: set[int] = set()
    if current_thread() is not main_thread():
        yield received
        return

    def handle(number: int, frame: object) -> None:
        received.add(number)
        raise KeyboardInterrupt

    defaults = (signal.default_int_handler, signal.SIG_DFL)
    numbers = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) in defaults]
    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _report_interrupt() -> int:
    print("interrupted", file=sys.stderr)
    return INTERRUPTED


def _call(args: list[str]) -> int:
    try:
        code = app(
            replace_stdin_dash(add_reject_default(args)),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except UserError as error:
        return print_error(str(error), USER_MISTAKE)
    except CycloptsError as error:
        words = (truncate(word) for word in str(error).split())
        return print_error(" ".join(words), USER_MISTAKE)
    except NotFinite as error:
        return print_error(str(error), FAILED)
    except Stopped as stop:
        if str(stop):  # only one of several processes prints
            print(stop, file=sys.stderr)
        return INTERRUPTED
    except KeyboardInterrupt:
        return _report_interrupt()
    except ModuleNotFoundError as error:
        return print_error(missing_package_message(error), USER_MISTAKE)
    except BrokenPipeError:  # the reader of our output has exited, as in `ssdg ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        return print_error(describe_os_error(error), USER_MISTAKE)
    return code if isinstance(code, int) else 0


def add_reject_default(args: list[str]) -> list[str]:
    """Add the default rate to a `--reject` without a number, which may be followed by a path."""
    if args[:1] not in (["predict"], ["evaluate"]):
        return args
    following = [*args[1:], ""]
    return [
        f"--reject={REJECT}" if arg == "--reject" and not is_number(after) else arg
        for arg, after in zip(args, following, strict=True)
    ]


def replace_stdin_dash(args: list[str]) -> list[str]:
    """Replace the `-` among the images of a command by a file name; alone it parses as an option without a name."""
    if args[:1] not in (["predict"], ["features"]):
        return args
    preceding = ["", *args[:-1]]
    return [
        STDIN if arg == "-" and before not in ("-o", "--out") else arg
        for before, arg in zip(preceding, args, strict=True)
    ]


def is_number(text: str) -> bool:
    """Return whether a text parses as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def print_error(message: str, code: int) -> int:
    """Print an error on stderr and return the exit code."""
    from rich.text import Text

    from ..terminal import Console

    line = escape_controls(message).replace("\n", "\\n").replace("\t", "\\t")  # a file name may have these
    Console(stderr=True, soft_wrap=True).print(Text.assemble(("error: ", "bold red"), line))
    return code


def describe_os_error(error: OSError) -> str:
    """Return the message for a full disk, a read-only folder and similar errors."""
    path = f" '{error.filename}'" if error.filename else ""
    return f"cannot read or write{path}: {error.strerror}; free space, change permissions, or use another folder"
