"""`ssdg train` and `ssdg resume`."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from ..errors import Stopped, UserError
from ..files import scratch_folder
from . import Threads
from .early_checks import check_training, check_training_packages

if TYPE_CHECKING:
    from ..config import RunConfig
    from ..data.hidden import Problem
    from ..engine.timing.speed import Speed
    from ..machine import Machine
    from ..profiling import Profile
    from ..schema import RunOptions

RESULT = "result.json"
SETTING = re.compile(r"[A-Za-z_.]*=|.*\.ya?ml$")  # and not a folder such as ./a=b
Seconds = Annotated[float, Parameter(validator=Number(gte=0))]
Several = Annotated[list[str] | None, Parameter(consume_multiple=True)]


def train(
    *words: str,
    data: str | None = None,
    labeled: str | None = None,
    unlabeled: Several = None,
    discover_domains: str | None = None,
    web: Several = None,
    web_label: str | None = None,
    target: str | None = None,
    method: str | None = None,
    preset: str | None = None,
    minutes: float | None = None,
    setting: str | None = None,
    plugin: str | None = None,
    seed: int | None = None,
    out: Path | None = None,
    dry_run: bool = False,
    device: str = "auto",
    threads: Threads = None,
    cache: Path | None = None,
    save_seconds: Seconds = 30.0,
    tensorboard: bool = False,
    wandb: str | None = None,
    profile: bool = False,
    probe: bool = True,
) -> int:
    """Train a method; the same command resumes a run that was stopped.

    Parameters
    ----------
    words
        A YAML file of settings and any number of key=value settings, such as cycles=2 labeler.epochs=5.
    data
        A benchmark's folder or zip, or an embedded one: digits, web-digits. Omit it to use your own folders.
    labeled
        The labeled domain of --data, or a folder with one subfolder per class.
    unlabeled
        Unlabeled domains of --data (default: all others), or folders of images in any structure.
    discover_domains
        Split the unlabeled images by style: auto, or the number of domains. Folders separately, --data as a whole.
    web
        Crawls: folders with one subfolder per search keyword, or domains of --data.
    web_label
        Keywords are ignored, retained (as labels) or refined (as labels of the first cycle).  [default: ignored]
    target
        The unseen domain of --data, or a folder: scored if it has class subfolders, predicted if it is flat.
    method
        The method to train; `ssdg methods` lists them.  [default: eid]
    preset
        best, paper, release, fast or quick.  [default: best]
    minutes
        Choose steps and stored views so that the run takes about this long on this machine.
    setting
        ssdg: the target is unseen; uda: it is the unlabeled domain (domain adaptation).  [default: ssdg]
    plugin
        A Python file that registers custom methods.
    seed
        Seed of all randomness.  [default: 0]
    out
        The run folder.  [default: runs/METHOD-LABELED-TARGET-SEED]
    dry_run
        Run every phase on two small batches in a temporary folder; then show steps, time, memory, disk and outputs.
    device
        auto, cpu, cuda or mps.
    threads
        CPU threads; results are bit-identical for the same number.  [default: all cores]
    cache
        Folder for decoded images.  [default: $SSDG_CACHE or ~/.cache/ssdg]
    save_seconds
        Minimum seconds between two checkpoints.
    tensorboard
        Write curves for TensorBoard into the run folder.
    wandb
        Send the curves to this Weights & Biases project.
    profile
        Report the time per phase at the end and in result.json.
    probe
        With pretrained weights, also score a linear classifier on their features, as a reference.
    """
    options = make_options(
        device=device,
        threads=threads,
        cache=str(cache) if cache else None,
        save_seconds=save_seconds,
        tensorboard=tensorboard,
        wandb=wandb,
        profile=profile,
        probe=probe,
        minutes=minutes,
    )
    flags: dict[str, Any] = {"data": data, "labeled": labeled, "target": target, "web_label": web_label}
    flags |= {"method": method, "preset": preset, "discover_domains": discover_domains, "setting": setting}
    flags |= {"plugin": plugin, "seed": seed}
    settings, chosen = collect_settings(words, unlabeled or [], web or [], flags)
    settings = {"preset": "best", **settings}
    check_training(settings, options)
    from ..engine.setup import confirm_plugin

    confirm_plugin(chosen, remember=True)  # not one that only a YAML file names
    return start(settings, out, dry_run, options)


def collect_settings(
    args: tuple[str, ...], unlabeled: list[str], web: list[str], flags: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Merge YAML files, then flags, then key=value arguments; also return what files do not set.

    `--unlabeled a b key=value file.yaml` arrives as four domains, so settings and files are separated here.
    """
    from ..bounded_yaml import load_mapping
    from ..overrides import merge, parse_overrides

    args += tuple(arg for arg in [*unlabeled, *web] if SETTING.match(arg))
    domains, crawls = ([name for name in names if not SETTING.match(name)] for names in (unlabeled, web))
    settings: dict[str, Any] = {}
    for arg in args:
        if "=" not in arg:
            settings = merge(settings, load_mapping(Path(arg)))
    flags = {**flags, "unlabeled": domains or None, "web": crawls or None}
    flags = {name: value for name, value in flags.items() if value is not None}
    chosen = merge(flags, parse_overrides(arg for arg in args if "=" in arg))
    return merge(settings, chosen), chosen


def resume(
    run: Path,
    *,
    device: str | None = None,
    threads: Threads = None,
    cache: Path | None = None,
    save_seconds: Annotated[float | None, Parameter(validator=Number(gte=0))] = None,
    tensorboard: bool | None = None,
    wandb: str | None = None,
    plugin: Path | None = None,
) -> int:
    """Resume the run in a folder, with the settings and options it was started with.

    Parameters
    ----------
    run
        The run folder.
    device
        auto, cpu, cuda or mps.  [default: as in the original run]
    threads
        CPU threads.  [default: as in the original run]
    cache
        Folder for decoded images.  [default: as in the original run]
    save_seconds
        Minimum seconds between two checkpoints.  [default: as in the original run]
    tensorboard
        Write curves for TensorBoard into the run folder.  [default: as in the original run]
    wandb
        Send the curves to this Weights & Biases project.  [default: as in the original run]
    plugin
        The Python file of the run's custom method.  [default: as in the original run, if you have named it before]
    """
    from ..schema import read_run_file

    check_training_packages()
    run_file = read_run_file(run)
    flags = {"device": device, "threads": threads, "cache": cache and str(cache), "save_seconds": save_seconds}
    flags |= {"tensorboard": tensorboard, "wandb": wandb}
    options = run_file.options.model_copy(update={k: v for k, v in flags.items() if v is not None})
    check_training(run_file.config, options)
    from ..engine.setup import name_plugin

    return start(name_plugin(run_file.config, plugin), run, False, options)


def make_options(**values: Any) -> RunOptions:
    """Return the options of a command, or raise an error that names the first invalid one."""
    from pydantic import ValidationError

    from ..schema import RunOptions, first_problem

    try:
        return RunOptions.model_validate(values)
    except ValidationError as error:
        raise UserError(f"invalid option --{first_problem(error).replace('_', '-', 1)}") from None


def recorded_options(options: RunOptions) -> dict[str, Any]:
    """Return the options for `run.json`, so that `ssdg resume` uses the same ones."""
    from ..engine.setup import default_cache

    return options.model_dump() | {"cache": str(Path(options.cache or default_cache()).absolute())}


def start(settings: dict[str, Any], out: Path | None, dry_run: bool, options: RunOptions) -> int:
    """Open the data, train, show the progress; return the exit code."""
    from ..profiling import use_profile

    with use_profile(new_profile(options.device) if options.profile else None):
        return train_or_dry_run(settings, out, dry_run, options)


def new_profile(device: str) -> Profile:
    """Return a profile that waits for the accelerator."""
    import torch

    from ..profiling import Profile

    on_gpu = device != "cpu" and torch.cuda.is_available()
    return Profile(torch.cuda.synchronize) if on_gpu else Profile()


def train_or_dry_run(settings: dict[str, Any], out: Path | None, dry_run: bool, options: RunOptions) -> int:
    """Train, or run all phases on a few images."""
    from ..display import is_watched
    from ..engine.budget import open_timed_run
    from ..engine.setup import default_cache

    config, problem, machine = prepare(settings, options)
    folder = out or default_folder(config)
    cache = Path(options.cache) if options.cache else default_cache()
    speed = None
    if options.minutes is not None:
        timed = open_timed_run(settings, config, problem, machine, folder, cache, options.minutes, options.device)
        config, problem, speed = timed.config, timed.problem, timed.speed
        options.chosen.update(timed.chosen)
        if timed.note and machine.is_main:
            # On a terminal, a forecast of the whole run follows, with its end.
            print(timed.note if not timed.end or is_watched() else f"{timed.note}; expected end {timed.end}")
    if dry_run:
        return run_dry(config, problem, machine, folder, cache, options, speed)
    execute(config, problem, machine, folder, options, speed=speed)
    return 0


def run_dry(
    config: RunConfig,
    problem: Problem,
    machine: Machine,
    folder: Path,
    cache: Path,
    options: RunOptions,
    speed: Speed | None,
) -> int:
    """Run every phase on a few images in a temporary folder, then say what the whole run takes; save nothing."""
    from ..engine.plan import shorten_run
    from ..engine.timing.dry_run import dry_run_lines
    from ..engine.timing.forecast import forecast_run

    unlogged = options.model_copy(update={"tensorboard": False, "wandb": None})
    with scratch_folder() as temporary:
        scratch = Path(machine.same(str(temporary)))
        execute(*shorten_run(config, problem), machine, scratch, unlogged, dry_run=True)
        forecast = forecast_run(config, problem, machine, cache, speed)
        if machine.is_main:
            print("dry run passed: every phase ran; nothing was saved. The whole run:")
            for line in dry_run_lines(config, problem, machine, forecast, scratch, folder, cache, options.probe):
                print(line)
    return 0


def prepare(settings: dict[str, Any], options: RunOptions) -> tuple[RunConfig, Problem, Machine]:
    """Return the configuration, images and machine of a run."""
    import torch

    from ..engine.setup import default_cache, open_settings, with_full_paths
    from ..engine.sinks import check_sinks
    from ..machine import check_device, start_machine

    check_device(options.device)  # before images are decoded
    check_sinks(options.tensorboard, options.wandb)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    settings = with_full_paths(settings)
    cache = Path(options.cache) if options.cache else default_cache()
    config, problem = open_settings(settings, cache, device=options.device)
    return config, problem, start_machine(options.device, config.precision)


def execute(
    config: RunConfig,
    problem: Problem,
    machine: Machine,
    folder: Path,
    options: RunOptions,
    *,
    dry_run: bool = False,
    stage_cache: Path | None = None,
    speed: Speed | None = None,
) -> dict[str, Any]:
    """Train in the folder with a display on this terminal; `Stopped` carries the command that resumes."""
    from ..display import Display, is_watched
    from ..engine.run import run
    from ..engine.setup import default_cache
    from ..engine.sinks import open_sinks
    from ..engine.timing.forecast import forecast_run

    try:
        with (
            Display(None if dry_run else folder, quiet=not machine.is_main) as display,
            open_sinks(folder, options.tensorboard, options.wandb, display.warn) as sinks,
        ):
            display.announce(config, problem)
            if not dry_run and machine.same("watched" if is_watched() else "") and not (folder / RESULT).exists():
                cache = Path(options.cache) if options.cache else default_cache()
                display.expect(forecast_run(config, problem, machine, cache, speed))
            result = run(
                config,
                problem,
                folder,
                machine,
                listeners=(display.hear, *sinks),
                save_seconds=options.save_seconds,
                stage_cache=stage_cache,
                cache=Path(options.cache) if options.cache else None,
                probe=options.probe,
                provenance={"command": shlex.join(["ssdg", *sys.argv[1:]]), "options": recorded_options(options)},
            )
            display.conclude(result)
    except Stopped:
        command = f"ssdg resume {shlex.quote(str(folder))}"
        resume_hint = f"stopped; to resume, run the same command again, or: {command}"
        message = "stopped; the dry run saved nothing" if dry_run else resume_hint
        raise Stopped(message if machine.is_main else "") from None
    return result


def default_folder(config: RunConfig) -> Path:
    """Return runs/METHOD-LABELED-TARGET-SEED, so that the same command finds its run again."""
    parts = [
        config.method,
        Path(config.labeled).name,
        Path(config.target or "none").name,
        f"seed{config.seed}",
    ]
    return Path("runs") / "-".join(parts)
