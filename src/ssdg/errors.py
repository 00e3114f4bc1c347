"""Ends of a command that are told in a sentence, without a traceback."""


class UserError(ValueError):
    """Something the user gave cannot be used.

    The message is one sentence: what was given, what is allowed, what to do.
    The command line prints it without a traceback and exits with code 2.
    """


class Stopped(Exception):
    """The user asked to stop and the checkpoint is written; the message says how to go on."""


class NotFinite(Exception):
    """A loss or a weight is NaN or infinite; the last good checkpoint is kept."""


def without_torch(error: ModuleNotFoundError) -> str:
    """The sentence for what needs the packages of the extra `train`; any other missing module is raised again.

    They are imported in many places, and only the outermost one tells of it.
    """
    name = (error.name or "").split(".")[0]
    if name not in ("torch", "accelerate", "safetensors"):
        raise error
    return f"this needs the package {name}, which is not installed; run pip install 'ssdg[train]'"


def suggest(word: str, choices: list[str] | tuple[str, ...]) -> str:
    """A ` (did you mean 'x'?)` for the nearest of `choices`, or nothing when none is near."""
    from difflib import get_close_matches

    near = get_close_matches(word.lower(), [c.lower() for c in choices], n=1, cutoff=0.6)
    if not near:
        return ""
    return f" (did you mean '{next(c for c in choices if c.lower() == near[0])}'?)"


def unknown(what: str, given: str, choices: list[str] | tuple[str, ...]) -> UserError:
    """The error for a name that is not among `choices`."""
    return UserError(f"unknown {what} '{given}'{suggest(given, choices)}; choose from {', '.join(choices)}")
