"""Entry point of the command `ssdg` and of `python -m ssdg`, also for torchrun."""

import os
import signal

INTERRUPTED = 130
_AT_START = (signal.default_int_handler, signal.SIG_DFL)


def main() -> None:
    """Run a command. A signal while its modules are imported ends it with one word instead of a traceback."""
    numbers = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) in _AT_START]
    previous = {number: signal.signal(number, _quit) for number in numbers}
    from .cli import main as run_command

    for number, handler in previous.items():
        signal.signal(number, handler)
    run_command()


def _quit(number: int, frame: object) -> None:
    """End at once: nothing is open yet, and an exception inside an import may be swallowed or turned into another."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
