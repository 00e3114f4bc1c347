"""The command line. Each command imports what it needs when it runs, so that help is quick."""

from __future__ import annotations

import os
import sys

from cyclopts import App, CycloptsError

from ..errors import NotFinite, Stopped, UserError, without_torch

USER_MISTAKE, FAILED, INTERRUPTED = 2, 1, 130
STDIN = "/dev/stdin"
REJECT = 0.05  # the share of known images that `--reject` alone may lose

app = App(
    name="ssdg",
    help="Semi-supervised domain generalization: one labeled domain, unlabeled images from others, "
    "a classifier for a domain it has never seen.",
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,
)
COMMANDS = {
    "demo": ("ssdg.cli.demo:demo", "See it work: source-only and the method on embedded digits, in minutes."),
    "train": ("ssdg.cli.train:train", "Train a method, or go on with a run that was stopped."),
    "resume": ("ssdg.cli.train:resume", "Go on with the run in a folder."),
    "evaluate": (
        "ssdg.cli.evaluate:evaluate",
        "Score a trained run or an exported model on a folder with class sub-folders.",
    ),
    "predict": ("ssdg.cli.predict:predict", "Classify images with a trained run or an exported model."),
    "export": ("ssdg.cli.export:export", "Write a trained model as an ONNX or .pt2 file for other programs."),
    "bench": ("ssdg.cli.bench:app", "Run all cells of a table of the paper, or of a grid of your own."),
    "methods": ("ssdg.cli.methods:methods", "List the methods that can be trained."),
    "table": ("ssdg.cli.table:table", "Make the table of a benchmark: mean ± deviation, best, paired tests."),
    "figure": ("ssdg.cli.table:figure", "Draw a figure of a benchmark, or the t-SNE of a run."),
    "select": (
        "ssdg.cli.select:select",
        "Choose among runs without labels of the target, and judge how well that works.",
    ),
    "report": ("ssdg.cli.report:report", "Write a page that shows what a run learned, believed and threw away."),
    "web": ("ssdg.cli.web:app", "Make web data: crawl it, or take over a crawl that you have."),
    "data": ("ssdg.cli.data:app", "List, describe and verify image data."),
}
for name, (where, told) in COMMANDS.items():
    app.command(where, name=name, help=told)


def main(words: list[str] | None = None) -> None:
    """Run a command; a user's mistake is one sentence on stderr and exit code 2."""
    sys.exit(call(sys.argv[1:] if words is None else words))


def call(words: list[str]) -> int:
    """Run a command and return its exit code."""
    try:
        code = app(
            with_stdin(with_shares(words)), exit_on_error=False, print_error=False, result_action="return_value"
        )
    except UserError as error:
        return complain(str(error), USER_MISTAKE)
    except CycloptsError as error:
        return complain(" ".join(str(error).split()), USER_MISTAKE)
    except NotFinite as error:
        return complain(str(error), FAILED)
    except Stopped as end:
        if str(end):  # of several processes one speaks
            print(end, file=sys.stderr)
        return INTERRUPTED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except ModuleNotFoundError as error:
        return complain(without_torch(error), USER_MISTAKE)
    except BrokenPipeError:  # the reader of our output has gone, as `ssdg ... | head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        return complain(disk_sentence(error), USER_MISTAKE)
    return code if isinstance(code, int) else 0


def with_shares(words: list[str]) -> list[str]:
    """Give `--reject` its usual share where no number follows: the share may be left out, and a path may be next."""
    told = list(words)
    if told[:1] in (["predict"], ["evaluate"]):
        for at in [place for place, word in enumerate(words) if word == "--reject"]:
            if not is_number(*words[at + 1 : at + 2]):
                told[at] = f"--reject={REJECT}"
    return told


def with_stdin(words: list[str]) -> list[str]:
    """Give the `-` of `ssdg predict` the name of a file: alone it reads as an option without a name."""
    if words[:1] != ["predict"]:
        return words
    told = zip(["", *words], words, strict=False)
    return [STDIN if word == "-" and before not in ("-o", "--out") else word for before, word in told]


def is_number(word: str = "") -> bool:
    """Whether a word reads as a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def complain(sentence: str, code: int) -> int:
    """Say what is wrong on stderr."""
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, soft_wrap=True).print(Text.assemble(("error: ", "bold red"), sentence))
    return code


def disk_sentence(error: OSError) -> str:
    """A full disk, a read-only folder and the like."""
    where = f" '{error.filename}'" if error.filename else ""
    return f"cannot read or write{where}: {error.strerror}; free space, change its permissions or give another folder"
