from pathlib import Path

import pytest

from attnbench.errors import UnknownMechanism, UsageError
from attnbench.mechanisms import local
from attnbench.mechanisms.catalogue import registry
from attnbench.mechanisms.catalogue.presets import PRESETS, expand, group, preset
from attnbench.mechanisms.catalogue.registry import card, names
from attnbench.records import Causality
from attnbench.running.request.requests import request


@pytest.mark.parametrize("column", PRESETS)
def test_every_option_of_a_preset_is_one_of_the_mechanism(column):
    offered = {name: options for name in names() if (options := preset(column).options(name))}
    assert len(offered) >= 10
    for name, options in offered.items():
        config = card(name).configure(options)
        assert options.items() <= vars(config).items(), name


def test_table_9_is_as_printed():
    mind = preset("mind-classification")
    assert (mind.layers, mind.width, mind.heads) == (2, 256, 16)
    assert mind.options("longformer") == {"window": 16, "global_tokens": 16}
    assert mind.options("bigbird") == {"block": 8, "global_tokens": 16, "random_tokens": 16}
    assert mind.options("poolingformer") == {"window": 16, "pool_window": 256}
    assert mind.options("linformer") == {"rank": 16}
    assert mind.options("fastformer") == {}


def test_models_of_today_have_their_widths():
    llama, qwen = preset("llama"), preset("qwen-next")
    assert (llama.width // llama.heads, qwen.width // qwen.heads) == (128, 128)
    assert llama.options("grouped_query") == llama.options("sliding_window") == {"kv_heads": 8}
    # as the published configuration: linear_num_value_heads, attn_output_gate
    assert qwen.options("gated_delta_net") == {"value_heads": 32}
    assert qwen.options("grouped_query") == {"kv_heads": 2, "gate": True}


def test_groups_are_registered_and_all_is_everything():
    for name in ("@fig2", "@table5", "@survey", "@modern", "@decode"):
        assert {member.partition(":")[0] for member in group(name)} <= set(names())
    assert group("@all") == names()
    assert [len(group(name)) for name in ("@fig2", "@survey", "@modern")] == [8, 17, 16]
    forms = {chosen.form for chosen in expand("@fig2") if chosen.name == "transformer"}
    assert forms == {None, "eager"}
    assert {chosen.form for chosen in expand("@fig2:eager")} == {"eager"}


def test_what_can_decode_is_read_from_the_cards():
    assert group("@decode") == tuple(
        name
        for name in names()
        if any(card(name).cannot_decode(form) is None for form in card(name).own_forms)
    )


def test_a_further_mechanism_is_in_the_groups_by_its_file(tmp_path, monkeypatch):
    """Its file is read and not run."""
    file, source = tmp_path / "mechanisms" / "nearby.py", Path(local.__file__).read_text()
    file.parent.mkdir()
    monkeypatch.setattr(registry, "PACKAGE", tmp_path)
    file.write_text(f"raise SystemExit\n{source}")
    assert group("@decode") == group("@all") == ("nearby",)
    file.write_text(source.replace("Card(", 'Card(no_decode_reason="it looks ahead", '))
    assert group("@decode") == ()
    assert group("@all") == ("nearby",)


def test_the_survey_ticks_the_mechanisms_that_can_decode():
    """Table 1, column Decode."""
    without = {"set_transformer", "linformer", "bigbird", "etc"}
    for name in group("@survey"):
        assert (card(name).causality is Causality.NEVER) == (name in without), name


def test_what_is_not_known_is_refused_with_its_neighbours():
    with pytest.raises(UnknownMechanism, match="did you mean linformer"):
        expand("linfromer")
    with pytest.raises(UsageError, match="unknown group '@fig3'; did you mean @fig2"):
        expand("@fig3")
    with pytest.raises(UsageError, match="mind-classification"):
        preset("mind")


def test_a_preset_may_choose_the_number_type_and_the_tokens_of_a_batch():
    asked = request({"preset": "gpu", "device": "cuda"}, elsewhere=True)
    assert (asked.width, asked.heads, asked.dtype, asked.tokens) == (2048, 16, "bfloat16", 1 << 14)
    narrow = request({"preset": "gpu", "device": "cuda", "dtype": ("float16",)}, elsewhere=True)
    assert narrow.dtype == "float16"
    assert request({"device": "cpu"}).dtype == "float32"
