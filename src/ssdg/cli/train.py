"""`ssdg train` and `ssdg resume`."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from ..errors import Stopped

if TYPE_CHECKING:
    from ..config import RunConfig
    from ..data.hidden import Problem
    from ..machine import Machine
    from ..profiling import Profile

SETTING = re.compile(r"[A-Za-z_.]*=|.*\.ya?ml$")  # and not a folder such as ./a=b
Threads = Annotated[int | None, Parameter(validator=Number(gte=1))]
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
) -> int:
    """Train a method, or go on with a run that was stopped: the same command continues.

    Parameters
    ----------
    words
        A YAML file of settings and any number of key=value settings, such as cycles=2 labeler.epochs=5.
    data
        A benchmark's folder or zip, or an embedded one: digits, web-digits. Leave out to use folders of your own.
    labeled
        The labeled domain of --data, or a folder with one sub-folder per class.
    unlabeled
        Unlabeled domains of --data (default: all the others), or folders of images in any shape.
    discover_domains
        Split the unlabeled images by style: auto, or how many domains. Folders one by one, those of --data as one.
    web
        Crawls: folders whose sub-folders are the keywords that found the images, or domains of --data.
    web_label
        Keywords are ignored, retained (as labels) or refined (labels of the first cycle).  [default: ignored]
    target
        The unseen domain of --data, or a folder: with class sub-folders it is scored, flat it is predicted.
    method
        What to train; `ssdg methods` lists them.  [default: eid]
    preset
        paper, release, fast or quick.  [default: paper]
    setting
        ssdg: the target is never seen; uda: it is the unlabeled domain (domain adaptation).  [default: ssdg]
    plugin
        A Python file that registers methods of your own.
    seed
        Of everything random.  [default: 0]
    out
        The run's folder.  [default: runs/METHOD-LABELED-TARGET-SEED]
    dry_run
        Touch every phase with two small batches in a temporary folder, then stop.
    device
        auto, cpu or cuda.
    threads
        CPU threads; results repeat bit for bit for the same number.  [default: all cores]
    cache
        Where decoded images are kept.  [default: $SSDG_CACHE or ~/.cache/ssdg]
    save_seconds
        Least time between two checkpoints.
    tensorboard
        Write curves for TensorBoard into the run's folder.
    wandb
        A project of Weights & Biases that gets the curves.
    profile
        Tell where the time went, phase by phase, in the end and in result.json.
    """
    from ..config import merge, parse_overrides, read_yaml

    # `--unlabeled a b key=value file.yaml` reaches us as four domains: settings and files are told from names here.
    domains, crawls = ([word for word in given or [] if not SETTING.match(word)] for given in (unlabeled, web))
    words += tuple(word for word in [*(unlabeled or []), *(web or [])] if SETTING.match(word))
    given: dict[str, Any] = {}
    for word in words:
        if "=" not in word:
            given = merge(given, read_yaml(Path(word)))
    named: dict[str, Any] = {"data": data, "labeled": labeled, "unlabeled": domains or None, "target": target}
    named |= {"web": crawls or None, "web_label": web_label, "method": method, "preset": preset}
    named["discover_domains"] = discover_domains
    named |= {"setting": setting, "plugin": plugin, "seed": seed}
    given = merge(given, {name: value for name, value in named.items() if value is not None})
    given = merge(given, parse_overrides(word for word in words if "=" in word))
    return start(given, out, dry_run, Options(device, threads, cache, save_seconds, tensorboard, wandb, profile))


def resume(
    run: Path,
    *,
    device: str | None = None,
    threads: Threads = None,
    cache: Path | None = None,
    save_seconds: Annotated[float | None, Parameter(validator=Number(gte=0))] = None,
    tensorboard: bool | None = None,
    wandb: str | None = None,
) -> int:
    """Go on with the run in a folder, with the settings and options it was started with.

    Parameters
    ----------
    run
        The run's folder.
    device
        auto, cpu or cuda.  [default: as it was started]
    threads
        CPU threads.  [default: as it was started]
    cache
        Where decoded images are kept.  [default: as it was started]
    save_seconds
        Least time between two checkpoints.  [default: as it was started]
    tensorboard
        Write curves for TensorBoard into the run's folder.  [default: as it was started]
    wandb
        A project of Weights & Biases that gets the curves.  [default: as it was started]
    """
    from ..engine.run import read_claim

    told = read_claim(run)
    given = {"device": device, "threads": threads, "cache": cache, "save_seconds": save_seconds}
    given |= {"tensorboard": tensorboard, "wandb": wandb}
    options: dict[str, Any] = {**told.get("options", {}), **{k: v for k, v in given.items() if v is not None}}
    return start(told["config"], run, False, Options(**options))


@dataclass(frozen=True)
class Options:
    """What changes where and when things are computed and who is told, but not what."""

    device: str = "auto"
    threads: int | None = None
    cache: Path | str | None = None
    save_seconds: float = 30.0
    tensorboard: bool = False
    wandb: str | None = None
    profile: bool = False

    def as_json(self) -> dict[str, Any]:
        """For `run.json`, so that `ssdg resume` computes as the run began."""
        from ..engine.setup import default_cache

        return {**vars(self), "cache": str(Path(self.cache or default_cache()).absolute())}


def start(given: dict[str, Any], out: Path | None, dry_run: bool, options: Options) -> int:
    """Open the data, train, show; returns the exit code."""
    from ..profiling import measuring

    with measuring(new_profile(options.device) if options.profile else None):
        return train_or_rehearse(given, out, dry_run, options)


def new_profile(device: str) -> Profile:
    """One that waits for an accelerator."""
    import torch

    from ..profiling import Profile

    on_gpu = device != "cpu" and torch.cuda.is_available()
    return Profile(torch.cuda.synchronize) if on_gpu else Profile()


def train_or_rehearse(given: dict[str, Any], out: Path | None, dry_run: bool, options: Options) -> int:
    """The run, or all of its phases in small."""
    config, problem, machine = prepare(given, options, dry_run)
    if not dry_run:
        execute(config, problem, machine, out or default_folder(config), options)
        return 0
    untold = replace(options, tensorboard=False, wandb=None)
    with TemporaryDirectory() as temporary:
        execute(config, problem, machine, Path(machine.same(temporary)), untold, dry_run=True)
    if machine.is_main:
        print("dry run passed: every phase ran; nothing was kept")
    return 0


def prepare(given: dict[str, Any], options: Options, dry_run: bool) -> tuple[RunConfig, Problem, Machine]:
    """Settings, images and machine of a run."""
    import torch

    from ..engine.dry_run import rehearse
    from ..engine.setup import default_cache, open_run, with_full_paths
    from ..engine.sinks import check_sinks
    from ..machine import check_device, start_machine

    check_device(options.device)  # before images are decoded
    check_sinks(options.tensorboard, options.wandb)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    given = with_full_paths(given)
    cache = Path(options.cache) if options.cache else default_cache()
    config, problem = open_run(given, cache, device=options.device)
    if dry_run:
        config, problem = rehearse(config, problem)
    return config, problem, start_machine(options.device, config.precision)


def execute(
    config: RunConfig,
    problem: Problem,
    machine: Machine,
    folder: Path,
    options: Options,
    *,
    dry_run: bool = False,
    shelf: Path | None = None,
) -> dict[str, Any]:
    """Train in the folder with a display on this terminal; `Stopped` tells the command that continues."""
    from ..display import Display
    from ..engine.run import run
    from ..engine.sinks import open_sinks

    try:
        with (
            Display(None if dry_run else folder, quiet=not machine.is_main) as display,
            open_sinks(folder, options.tensorboard, options.wandb, lambda told: display.say(told, "yellow")) as sinks,
        ):
            display.announce(config, problem)
            result = run(
                config,
                problem,
                folder,
                machine,
                listeners=(display.hear, *sinks),
                save_seconds=options.save_seconds,
                shelf=shelf,
                about={"command": shlex.join(["ssdg", *sys.argv[1:]]), "options": options.as_json()},
            )
            display.conclude(result)
    except Stopped:
        again = f"give the same command again, or: ssdg resume {shlex.quote(str(folder))}"
        told = "stopped; the dry run kept nothing" if dry_run else f"stopped; to go on, {again}"
        raise Stopped(told if machine.is_main else "") from None
    return result


def default_folder(config: RunConfig) -> Path:
    """runs/METHOD-LABELED-TARGET-SEED: the same command finds its run again."""
    parts = [
        config.method,
        Path(config.labeled).name,
        Path(config.target or "none").name,
        f"seed{config.seed}",
    ]
    return Path("runs") / "-".join(parts)
