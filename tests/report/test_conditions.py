"""The lines above every report: the request, the machine, and how it measured."""

from dataclasses import replace

import pytest

from attnbench.analysis.report import analyse
from attnbench.analysis.summary import summary
from attnbench.records import Level, Sample, Settings, Shard
from attnbench.report import conditions, cost_tables
from tests.sweeps import altered, environment, on_gpu, raced, seconds, sweep


def test_what_is_special_about_a_gpu_is_said_and_marked():
    sample = Sample(4, 1.0, 1.0, 0.2, 0.2, 0.0, 0.0, enqueue_s=0.4)
    whole = on_gpu(sample, clock="low", nvml="no such process", launches="not hidden")
    settings = Settings(cold=True, cuda_graphs=True)
    notes = {"NVIDIA_TF32_OVERRIDE": "1", "cuDNN TF32": "off"}
    whole = replace(
        whole,
        request=replace(whole.request, settings=settings),
        sessions=(environment(cuda="13.0", driver="580", notes=notes),),
    )
    lines = conditions.conditions(analyse(whole))
    hidden = "NVML does not show the memory of single processes (no such process)"
    assert any(line.startswith(hidden) for line in lines)
    assert "GPU settings: TF32 off; NVIDIA_TF32_OVERRIDE 1; cuDNN TF32 off." in lines
    assert any("cold L2, CUDA graphs" in line for line in lines)
    warm = replace(whole, request=replace(whole.request, settings=Settings()))
    assert any("warm L2" in line for line in conditions.conditions(analyse(warm)))
    assert any("Peaks and counts are those of iterations without graphs." in line for line in lines)
    assert summary(whole)["cpu_s"].isna().all(), "the process spins while it waits"
    table = cost_tables.latency(summary(whole), "inference", 8192)
    assert table.rows[0][1].text.endswith(" lL")
    assert "“l” marks cases whose launches" in table.note


def test_the_request_states_the_sizes_that_a_level_has():
    def line(level, **changes):
        asked = replace(whole.request, level=level, **changes)
        return conditions.conditions(analyse(replace(whole, request=asked)))[0]

    whole = sweep(("fastformer",), lengths=(128,))
    assert line(Level.MODEL).endswith("float32.")
    assert "heads 1; layers 2; float32" in line(Level.MODEL, heads=1)
    assert "heads 16; float32" in line(Level.ATTENTION), "one attention has no layers"


def test_the_rounds_of_a_sweep_are_those_of_its_cases():
    whole = sweep(("fastformer",), lengths=(128, 256))
    cases = summary(whole)
    assert conditions.rounds_text(cases) == f"{cases['rounds'].max()} rounds"
    mixed = cases.assign(rounds=[1, *cases["rounds"][1:]])
    assert conditions.rounds_text(mixed) == f"1 to {cases['rounds'].max()} rounds"
    assert conditions.rounds_text(cases.assign(time_s=float("nan"))) == "0 rounds"
    assert conditions.rounds_text(cases.assign(rounds=1)) == "1 round"


@pytest.mark.parametrize(("dtype", "said"), [("bfloat16", 1), ("float32", 0)])
def test_training_in_a_half_type_is_said_to_be_unusual(dtype, said):
    whole = sweep(("fastformer",), lengths=(128,))
    one = replace(whole, request=replace(whole.request, dtype=dtype))
    found = conditions.conditions(analyse(one))
    assert sum(line.startswith(f"Training in {dtype} keeps") for line in found) == said


def test_packages_dates_and_shards_are_told():
    whole = replace(sweep(("fastformer",), lengths=(128,)), begun="2026-03-01T10:00:00")
    noted = altered(whole, lambda run: replace(run, notes={"package": "xformers 0.0.30"}))
    lines = conditions.conditions(analyse(noted))
    assert "Measured on 2026-03-01." in lines
    assert "Packages: xformers 0.0.30." in lines
    assert sum("attnbench sweep --config sweep.toml" in line for line in lines) == 1
    divided = conditions.conditions(analyse(replace(noted, shards=(Shard(1, 3),))))
    assert "Divided into 3 shards." in divided
    assert not any("--config" in line for line in divided)


def test_each_machine_is_described_once():
    whole = sweep(("fastformer",), lengths=(128,))
    machines = (environment(), environment(load=5.0), environment(threads=1))
    lines = conditions.conditions(analyse(replace(whole, sessions=machines)))
    said = [line for line in lines if line.startswith("Machine: Imaginary CPU")]
    assert [("2 threads" in line, "1 thread," in line) for line in said] == [
        *((True, False), (False, True)),
    ]


def uneven(case, round_):
    """Seconds of laps of which one series takes 1 % longer from round to round."""
    more = 1 + 0.01 * round_ * (case.mechanism == "fastformer")
    return dict.fromkeys(range(4), seconds(case.mechanism, case.workload) * more)


@pytest.mark.parametrize(
    ("precision", "over", "said"),
    [
        (0.9, False, "Ended after its rounds: 4 of 4 blocks (a length in a mode) known to 90 %"),
        (1e-6, True, "Ended by --budget: 0 of 4 blocks"),
        (None, False, ""),
    ],
)
def test_what_ended_the_sweep_is_said_with_how_well_its_ratios_are_known(precision, over, said):
    whole = raced(sweep(("fastformer", "transformer"), lengths=(128, 256)), uneven)
    request = replace(whole.request, precision=precision)
    text = conditions.ended(analyse(replace(whole, request=request, over_budget=over)))
    assert text.startswith(said)
    assert bool(text) == bool(said)
