"""`attnbench sweep`: the main job."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from attnbench.cli import console, options
from attnbench.cli.stopping import stoppable
from attnbench.device import AUTO, choose, find
from attnbench.errors import UsageError
from attnbench.fleet.engine import Kind
from attnbench.records import Level, Planned, Request
from attnbench.render.sizes import Size
from attnbench.units import many, seconds, size


def sweep(
    context: typer.Context,
    models: Annotated[
        str,
        typer.Option(
            help="Names, patterns (synth*), forms (transformer:eager), options"
            " (linformer[rank=64]), groups (@fig2, @table5, @survey, @modern, @all),"
            " path/to/file.py:NAME."
        ),
    ] = "@fig2",
    lengths: Annotated[
        str, typer.Option(help="Sequence lengths: 128..65536:x2, 512,1000,65535 or 100..500:+100.")
    ] = "128..65536:x2",
    tokens: Annotated[
        str | None,
        typer.Option(
            help="Tokens of a batch, c; B = max(1, c // N). Default: 8k on a CPU, 128k on a GPU."
        ),
    ] = None,
    mode: options.ModesOption = "both",
    level: options.LevelOption = Level.MODEL,
    preset: Annotated[
        str,
        typer.Option(help="Sizes of a column of Fastformer's Table 9, of llama or of qwen-next."),
    ] = "mind-classification",
    width: Annotated[
        int | None, typer.Option(min=1, max=options.LARGEST, help="Width D; default: the preset's.")
    ] = None,
    heads: Annotated[
        int | None, typer.Option(min=1, max=options.LARGEST, help="Heads H; default: the preset's.")
    ] = None,
    layers: Annotated[
        int | None, typer.Option(min=1, max=options.LARGEST, help="Layers; default: the preset's.")
    ] = None,
    dropout: Annotated[
        float | None,
        typer.Option(min=0, max=0.9, help="Dropout of hidden states in training; default: 0.2."),
    ] = None,
    share_layers: Annotated[
        bool | None,
        typer.Option(
            "--share-layers/--no-share-layers",
            help="Share attention parameters among layers; default: as each paper does.",
            show_default=False,
        ),
    ] = None,
    reversible: Annotated[
        bool | None,
        typer.Option(
            "--reversible/--no-reversible",
            help="Layers that keep no activations (Reformer); default: as each card says.",
            show_default=False,
        ),
    ] = None,
    padding: Annotated[
        float, typer.Option(min=0, max=0.95, help="Share of each sequence that is padding.")
    ] = 0.0,
    causal: Annotated[
        bool, typer.Option("--causal", help="Causal attention: no token sees later ones.")
    ] = False,
    dtype: Annotated[str, typer.Option(help=f"{options.DTYPES}.")] = "float32",
    device: options.DeviceOption = "auto",
    threads: options.ThreadsOption = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=options.LARGEST,
            help="Most rounds of fresh processes; default: 3, or up to 12 within a budget.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One round, fewer samples.")] = False,
    budget: Annotated[
        str | None,
        typer.Option(help="Time for the whole sweep: 90s, 10m, none. Default: 5m on a CPU."),
    ] = None,
    case_timeout: Annotated[
        str, typer.Option(help="Time limit for one process of one case.")
    ] = "20m",
    cold: Annotated[
        bool, typer.Option("--cold", help="On CUDA: flush the L2 cache before each iteration.")
    ] = False,
    cuda_graphs: Annotated[
        bool,
        typer.Option("--cuda-graphs", help="On CUDA: time replays of captured iterations."),
    ] = False,
    seed: options.SeedOption = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the sweep; default: reports/<date>.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the sweep in --out.")
    ] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Resume even if request or machine differ.")
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(help="Measure only shard I of N, as 2/6; attnbench merge joins them."),
    ] = None,
    on: Annotated[
        Kind | None, typer.Option(help="Measure all shards on a cluster, merge and report them.")
    ] = None,
    shards: Annotated[
        int | None, typer.Option(min=1, max=options.LARGEST, help="Number of shards, for --on.")
    ] = None,
    slurm: Annotated[
        str, typer.Option(help='Options for sbatch: "--gres=gpu:h100:1 --exclusive -t 60".')
    ] = "",
    address: Annotated[str | None, typer.Option(help="Address of the Ray cluster.")] = None,
    formats: options.FormatsOption = "png",
    size: options.SizeOption = Size.TEXT,
    json_: options.JsonOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan with predictions; run nothing.")
    ] = False,
) -> None:
    """Measure time and memory of mechanisms over sequence lengths, and draw the figure."""
    from attnbench.cli.report import publish
    from attnbench.workloads import axes
    from attnbench.workloads.presets import preset as column

    if resume and out is None:
        raise UsageError("--resume needs --out, the folder of the sweep to go on with")
    if anyway and not resume:
        raise UsageError("--anyway goes with --resume")
    refuse_useless(context.params)
    part = axes.shard(shard) if shard is not None else None
    divided = any(given is not None for given in (shard, shards, on))
    chosen, asked, sizes = column(preset), axes.parts(models, "--models"), axes.lengths(lengths)
    options.selections(models)
    console.begin("reading mechanisms")
    # the device of a cluster need not be here
    measured = find(device) if on and device != AUTO else choose(device)
    usual_s = None if divided else measured.budget_s
    budget_s = axes.seconds(budget, "--budget") if budget else usual_s
    request = Request(
        models=tuple(asked),
        lengths=sizes,
        tokens=axes.size(tokens, "--tokens") if tokens else measured.tokens,
        preset=preset,
        level=level,
        modes=options.modes(mode),
        dtype=options.dtype(dtype),
        device=measured.name,
        width=width or chosen.width,
        heads=heads or chosen.heads,
        layers=layers or chosen.layers,
        padding=padding,
        causal=causal,
        rounds=rounds or options.rounds(quick, budget_s),
        budget_s=budget_s,
        case_timeout_s=axes.seconds(case_timeout, "--case-timeout"),
        settings=options.settings(measured, threads, seed, quick, cold, budget_s, cuda_graphs),
        dropout=0.2 if dropout is None else dropout,
        share_layers=share_layers,
        reversible=reversible,
    )
    shell = {
        "layers": layers,
        "dropout": dropout,
        "share-layers": share_layers,
        "reversible": reversible,
    }
    for name, given in shell.items():
        if given is not None and level is not Level.MODEL:
            raise UsageError(f"--{name} has no effect at level {level}; it is for --level model")
    figure_formats = options.formats(formats)
    from attnbench.cli import cluster
    from attnbench.cli.measuring import kept, measure, refuse_begun, refuse_empty
    from attnbench.cli.starting import own_server
    from attnbench.workloads.reading import plan

    folder = out or Path("reports") / f"{datetime.now():%Y%m%d-%H%M%S}"
    if not resume and not dry_run:
        refuse_begun(folder)
    command = [sys.executable, "-m", "attnbench", *cluster.given(context, measured.name)]
    fleet = engine = None
    if on and not dry_run:
        fleet = cluster.started(folder, on, shards, resume)
        engine = cluster.engine(on, slurm, address, measured.gpus, request.settings.threads)
    with stoppable(lambda: kept(folder)):
        with own_server(request.settings.threads, seed) as server:
            planned = plan(request, server)
            if dry_run:
                of = part.of if part else shards
                show_plan(planned.cases, request, json_, of)
                if on and of and not json_:
                    print(cluster.script(folder, on, of, command))
                return
            if not on:
                measure(request, planned, server, folder, resume, anyway, part)
        if fleet and engine:
            cluster.conduct(folder, fleet, engine, request, planned.cases, command)
        if part is None:
            refuse_empty(folder)
            publish(folder, figure_formats, json_, size=size)


def refuse_useless(given: Mapping[str, Any]) -> None:
    """Raises `UsageError` if an option of shards has no effect together with the others."""
    on, shard, shards, dry_run = (given[name] for name in ("on", "shard", "shards", "dry_run"))
    numbered = ":" in given["device"]
    rules = (
        (on and shard, "--shard measures one shard here and --on all on a cluster; give one"),
        (shard and shards, "--shard I/N already has the number of shards; leave out --shards"),
        (shards and not (on or dry_run), "--shards goes with --on or --dry-run; see also --shard"),
        (given["slurm"] and on is not Kind.SLURM, "--slurm goes with --on slurm"),
        (given["address"] and on is not Kind.RAY, "--address goes with --on ray"),
        (given["anyway"] and on, "--anyway has no effect with --on"),
        (given["json_"] and shard and not dry_run, "--json has no effect with --shard"),
        (numbered and (on or shard), "a scheduler gives each shard its device: write no number"),
    )
    for useless, reason in rules:
        if useless:
            raise UsageError(reason)


def show_plan(
    plan: tuple[Planned, ...], request: Request, as_json: bool, shards: int | None
) -> None:
    """Print every case with its predictions, and how they are divided among shards."""
    from attnbench.cli.cluster import shards_table
    from attnbench.fleet import split
    from attnbench.render.grid import Cell, Table, words

    units = split.units(plan, request)
    parts = split.split(units, shards) if shards else ()
    if as_json:
        shard_of = {(u.block, u.round): i for i, part in enumerate(parts, 1) for u in part}
        rounds = range(request.rounds if parts else 0)
        console.data(
            [
                {
                    **asdict(planned),
                    "label": str(planned.case),
                    "shards": [shard_of[planned.block, round_] for round_ in rounds],
                }
                for planned in plan
            ]
        )
        return
    rows = tuple(
        (
            words(planned.case),
            Cell(seconds(planned.predicted_s), planned.predicted_s),
            Cell(size(planned.predicted_bytes), planned.predicted_bytes),
            words(planned.refusal or "runs"),
        )
        for planned in plan
    )
    note = (
        f"{many(len(plan), 'case')}, {many(request.rounds, 'round')}. Predicted for one iteration,"
        " before anything is measured; a sweep refines its predictions. Nothing was run."
    )
    columns = ("case", "time", "memory", "runs here")
    console.show(Table(name="plan", title="Plan", columns=columns, rows=rows, note=note))
    if parts:
        console.out().print()
        console.show(shards_table(units, parts))
