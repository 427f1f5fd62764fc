"""What is requested of a sweep: the sizes that are crossed, and where settings are used."""

from dataclasses import fields, replace

from attnbench.records import Clock, Request, Settings, Sizes
from tests.sweeps import sweep

ASKED = sweep(("fastformer",), lengths=(128,)).request


def test_without_variants_the_sizes_are_those_of_the_request():
    assert ASKED.sizes == (Sizes(width=256, heads=16, dtype="float32"),)
    crossed = tuple(Sizes(width=width, heads=2, dtype="float32") for width in (16, 32))
    assert replace(ASKED, variants=crossed).sizes == crossed


def test_times_are_scaled_to_the_tokens_of_a_batch_unless_its_sequences_are_given():
    assert ASKED.batch_tokens == ASKED.tokens
    assert replace(ASKED, batch=4).batch_tokens is None


def test_measuring_processes_are_sent_the_settings_that_say_so():
    settings = Settings(cold=True, clock=Clock.CPU, seed=7, sample_s=9.0)
    sent = settings.worker_settings
    assert (sent["cold"], sent["clock"]) == (True, Clock.CPU)
    assert {*sent} == {"cold", "cuda_graphs", "energy", "clock", "warmup_s", "faulting_s"}


def test_a_use_of_settings_gives_name_value_and_what_the_field_says():
    settings = Settings(energy=True)
    assert [*settings.fields_with("described")] == [
        ("cuda_graphs", False, "CUDA graphs"),
        ("energy", True, "energy"),
    ]
    assert {name for name, *_ in settings.fields_with("compared")} == {
        *("cold", "cuda_graphs", "clock"),
    }


def test_only_limits_may_change_when_a_sweep_is_resumed():
    limits = {each.name for each in fields(Request) if each.metadata.get("limit")}
    assert limits == {"budget_s", "precision", "rounds", "case_timeout_s"}
