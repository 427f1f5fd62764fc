"""From the options of a sweep to its request, in which nothing is left open, and back."""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import product

from attnbench.devices.cgroups import cores
from attnbench.devices.finding import AUTO, choose, find, kinds
from attnbench.devices.protocol import Device
from attnbench.errors import UsageError
from attnbench.records import LEAST_ROUNDS, Level, Mode, Request, Settings, Shell, Variant
from attnbench.units import many
from attnbench.workloads.asked import Asked, flag
from attnbench.workloads.presets import preset

PRECISION = 0.02  # smaller differences seldom matter, and few machines show them
OF_MODEL = ("layers", "dropout", "share_layers", "reversible")  # options of level `model` alone


def request(asked: Asked, *, divided: bool = False, elsewhere: bool = False) -> Request:
    """The request of these options, with what the program chooses for those left out.

    A `divided` sweep gets no budget of its own; the device of one measured `elsewhere` need not be
    here, and must be named. Raises `UsageError`, `CannotRun`.
    """
    named = asked.read("device")
    if elsewhere and named == AUTO:
        devices = " or ".join(f"--device {kind}" for kind in kinds())
        raise UsageError(
            f"--on with --device auto: the nodes may have other devices than this machine; write"
            f" {devices}"
        )
    device = find(named) if elsewhere else choose(named)
    modes, column = asked.read("mode"), preset(asked.preset)
    decode = Mode.DECODE in modes
    level = asked.read("level") or (Level.ATTENTION if decode else Level.MODEL)
    if decode and level is not Level.ATTENTION:
        raise UsageError(
            f"--mode decode has no level {level}: a step is measured with its projections and"
            " without a classifier; leave out --level"
        )
    for name in OF_MODEL:
        if getattr(asked, name) is not None and level is not Level.MODEL:
            raise UsageError(
                f"{flag(name)} has no effect at level {level}; it is for --level model"
            )
    if asked.batch is not None and asked.tokens is not None:
        raise UsageError("--batch fixes the batch, so --tokens has no effect; give one of them")
    crossed = variants(asked)
    chosen_s = None if divided else device.budget_s
    budget_s = chosen_s if asked.budget is None else asked.read("budget")
    precision = asked.read("precision")
    # more than three rounds fit into some budgets, and precision ends them
    usual_rounds = 1 if asked.quick else 3 if budget_s is precision is None else 12
    rounds = asked.read("rounds") or usual_rounds
    if precision and rounds < LEAST_ROUNDS:
        raise UsageError(
            f"--precision has no effect in {many(rounds, 'round')}: it ends a block after"
            f" {LEAST_ROUNDS} or more; leave out --quick, or raise --rounds"
        )
    dropout = asked.read("dropout")
    return Request(
        models=asked.read("models"),
        lengths=asked.read("lengths"),
        tokens=asked.read("tokens") or device.usual_tokens(max(one.width for one in crossed)),
        **asdict(crossed[0]),
        variants=crossed if len(crossed) > 1 else (),
        preset=asked.preset,
        level=level,
        modes=modes,
        device=device.name,
        layers=asked.read("layers") or column.layers,
        padding=asked.read("padding"),
        causal=asked.causal,
        rounds=rounds,
        budget_s=budget_s,
        case_timeout_s=asked.read("case_timeout"),
        settings=settings(asked, device, budget_s),
        dropout=Shell().dropout if dropout is None else dropout,
        share_layers=asked.share_layers,
        reversible=asked.reversible,
        precision=precision or PRECISION,
    )


def variants(asked: Asked) -> tuple[Variant, ...]:
    """Every combination of widths, heads, number types and batches. Raises `UsageError`."""
    column = preset(asked.preset)
    combinations = product(
        asked.read("width") or (column.width,),
        asked.read("heads") or (column.heads,),
        asked.read("dtype"),
        asked.read("batch") or (None,),
    )
    return tuple(Variant(width=w, heads=h, dtype=t, batch=b) for w, h, t, b in combinations)


def settings(asked: Asked, device: Device, budget_s: float | None) -> Settings:
    """How to measure: short runs under a budget, long ones without. Raises `UsageError`."""
    if asked.cold and not device.flushes_cache:
        raise UsageError(f"--cold flushes a GPU's cache; it has no effect on {device.title()}")
    if asked.cuda_graphs and not device.captures:
        raise UsageError(f"--cuda-graphs needs a GPU; it has no effect on {device.title()}")
    threads = asked.read("threads") or device.threads or cores()
    return Settings(
        seed=asked.read("seed"),
        cold=asked.cold,
        cuda_graphs=asked.cuda_graphs,
        threads=threads,
        clock=device.host_clock(threads),
        **device.sampling(asked.quick, bounded=asked.quick or budget_s is not None),
    )


def written(request: Request) -> Mapping[str, str | bool]:
    """Options that ask for this request whatever machine reads them: none is left open.

    `request` of them is the same request, but for the memory limit, which is the machine's.
    """
    settings = request.settings
    texts: dict[str, str | bool] = {
        "models": ",".join(request.models),
        "lengths": ",".join(map(str, request.lengths)),
        "mode": ",".join(request.modes),
        "level": str(request.level),
        "causal": request.causal,
        "padding": str(request.padding),
        "preset": request.preset,
        "device": request.device,
        "threads": str(settings.threads),
        "cold": settings.cold,
        "cuda_graphs": settings.cuda_graphs,
        "budget": _time(request.budget_s),
        "rounds": str(request.rounds),
        "quick": _is_quick(request),
        "case_timeout": _time(request.case_timeout_s),
        "seed": str(settings.seed),
    }
    if request.precision is not None and request.rounds >= LEAST_ROUNDS:
        texts["precision"] = f"{100 * request.precision:.9g}%"
    for name in ("width", "heads", "dtype", "batch"):
        values = dict.fromkeys(getattr(single, name) for single in request.each)
        texts |= {name: ",".join(map(str, values))} if None not in values else {}
    if request.batch is None:
        texts["tokens"] = str(request.tokens)
    if request.level is Level.MODEL:
        texts |= {"layers": str(request.layers), "dropout": str(request.dropout)}
        chosen = {name: getattr(request, name) for name in ("share_layers", "reversible")}
        texts |= {name: value for name, value in chosen.items() if value is not None}
    return texts


def _time(seconds: float | None) -> str:
    """A time limit as users write it: `300s`."""
    return "none" if seconds is None else f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def _is_quick(request: Request) -> bool:
    """Whether the settings are those of a quick sweep and not of another one."""
    device, bounded = find(request.device), request.budget_s is not None

    def fits(quick: bool) -> bool:
        usual = device.sampling(quick, bounded=quick or bounded)
        names = ("sample_s", "warmup_s", "interval_s")
        return all(getattr(request.settings, n) == usual[n] for n in names if n in usual)

    return fits(True) and not fits(False)
