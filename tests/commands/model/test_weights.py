"""Parameters by part, to the number, beside the classes of transformers on the meta device."""

import json
import re
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.commands.model import weights
from attnbench.commands.model.configuration import fields
from attnbench.commands.model.families import FAMILIES, is_set
from attnbench.commands.model.parameters import parameters
from attnbench.commands.model.weights import copied, share
from attnbench.errors import UsageError
from tests.commands.model.test_layers import FAMILIES as SMALL_FAMILIES
from tests.commands.model.test_layers import SAME, SMALL, caches

# facts of published configurations, and the parameters that their publishers count
# fmt: off
LLAMA_8B = {
    "model_type": "llama", "dtype": "bfloat16", "vocab_size": 128256, "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
LLAMA_70B = LLAMA_8B | {
    "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64,
}
QWEN_7B = {
    "model_type": "qwen2", "dtype": "bfloat16", "vocab_size": 152064, "hidden_size": 3584,
    "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "tie_word_embeddings": False, "use_sliding_window": False,
}
MIXTRAL = {
    "model_type": "mixtral", "dtype": "bfloat16", "vocab_size": 32000, "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
}
GEMMA_9B = {
    "model_type": "gemma2", "vocab_size": 256000, "hidden_size": 3584, "intermediate_size": 14336,
    "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
    "sliding_window": 4096,
}
GPT_OSS = {
    "model_type": "gpt_oss", "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880,
    "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "sliding_window": 128, "num_local_experts": 128, "num_experts_per_tok": 4,
    "quantization_config": {"quant_method": "mxfp4"},
}
# fmt: on
# of the types whose caches are compared, those whose parameters are counted
COUNTED = [kind for kind in SMALL_FAMILIES if kind in FAMILIES]


def counted(tmp_path, values):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(values))
    return parameters(fields(file))


def by_part(found):
    parts = Counter()
    for one in found:
        parts[one.part] += one.numbers
    return +parts


@pytest.mark.parametrize(
    ("values", "published", "active"),
    [
        (LLAMA_8B, 8_030_261_248, 8_030_261_248),
        (LLAMA_70B, 70_553_706_496, 70_553_706_496),
        (QWEN_7B, 7_615_616_512, 7_615_616_512),
        (GEMMA_9B, 9_241_705_984, 9_241_705_984),
        (MIXTRAL, 46_702_792_704, 12_879_925_248),
        (GPT_OSS, 116_829_156_672, 5_711_982_912),
    ],
)
def test_published_models_have_as_many_parameters_as_published(values, published, active, tmp_path):
    found = counted(tmp_path, values)
    assert sum(one.numbers for one in found) == published
    assert sum(one.active for one in found) == active


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "new", "layer_types": ["full_attention"] * 32}, "'new' are not known here"),
        (
            {"layer_types": ["indexed_attention"] * 32, "index_head_dim": 8},
            "the weights of a layer 'indexed_attention' of this type are not known here",
        ),
        ({"intermediate_size": None}, "'intermediate_size' is missing; add it"),
        ({"vocab_size": None}, "'vocab_size' is missing; add it"),
        ({"tie_word_embeddings": "no"}, "'tie_word_embeddings' is 'no'; write true or false"),
        ({"mla_use_output_gate": True}, "'mla_use_output_gate' may change weights"),
        ({"qkv_bias": True}, "'qkv_bias' may change weights"),
        ({"num_experts_per_tok": 9}, "9 experts of a token are more than the 8 of a layer"),
    ],
)
def test_what_cannot_be_counted_is_refused_by_name(change, message, tmp_path):
    with pytest.raises(UsageError, match=re.escape(message)):
        counted(tmp_path, MIXTRAL | change)


@given(units=st.integers(1, 300), cards=st.integers(1, 64), rows=st.booleans())
def test_cards_hold_together_all_that_they_share(units, cards, rows):
    part = share(units, cards, rows=rows)
    assert Fraction(1, cards) <= part <= 1
    assert part * units == int(part * units) or not rows
    if units % cards == 0:
        assert part == Fraction(1, cards)
        assert not copied(units, "heads", cards)
    elif not rows:
        assert copied(units, "heads", cards)
        assert part in (1, Fraction(1, units))


def test_heads_are_divided_only_with_those_that_read_them():
    assert share(4, 8, readers=28) == 1
    assert "4 heads on each card, as are the 28" in copied(4, "heads", 8, readers=28)
    assert share(4, 8, readers=32) == Fraction(1, 4)
    assert copied(4, "heads", 8, readers=32) == "each of 4 heads on 2 cards"


# what a parameter of transformers belongs to, by its name
NORM = re.compile(
    r"(mlp|feed_forward|moe|mixer)\.(gate|router)\.|router|\.wg\.|shared_expert_gate|_hc\.|hc_head"
    r"|(^|\.)(norm|norm_f|final_layernorm|operator_norm|ffn_norm|embedding_norm|pre_ff_layernorm)\."
    r"|(input|post_attention|post_feedforward|pre_feedforward|attention|feedforward)_layernorm"
    r"|post_(self_attn|mlp)_layernorm|post_laurel_norm|per_layer_(projection|input)_norm"
)
PART_OF = (
    (re.compile(r"embed_tokens|embeddings\.weight"), weights.EMBEDDING),
    (re.compile("lm_head"), weights.HEAD),
    (re.compile(r"\.experts\."), weights.EXPERTS),
    (
        re.compile(
            r"linear_attn|mamba|\.conv\.|mixer\.(A_log|D|conv1d|in_proj|x_proj|dt_|norm|out_proj)"
        ),
        weights.STATES,
    ),
    (re.compile(r"(?<!post_)(self_)?attn\.|mixer\.[qkvo]_proj"), weights.ATTENTION),
    (NORM, weights.NORMS),
)
# whose recurrences and attention have the same names
ALIKE = ("kimi_linear", "minimax")


def part_of(name):
    return next((part for form, part in PART_OF if form.search(name)), weights.FEED_FORWARD)


def together(parts, kind):
    """The parts, with states counted as attention where names do not tell them apart."""
    if kind in ALIKE:
        parts = Counter(parts)
        parts[weights.ATTENTION] += parts.pop(weights.STATES, 0)
    return parts


def built(values):
    """The parts of the class of transformers with these fields, and its configuration."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**values, attn_implementation="eager")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    parts = Counter()
    for name, tensor in model.named_parameters():
        parts[part_of(name)] += prod(tensor.shape)
    return parts, config


def saved(config):
    """The fields of a configuration as transformers writes all of them, and those it leaves."""
    return [json.loads(config.to_json_string(use_diff=diff)) for diff in (False, True)]


# defaults of configuration classes for which transformers builds no model
UNBUILDABLE = ("hunyuan_v1_dense", "hunyuan_v1_moe", "nemotron")
# and what the file of others lacks, or has in sizes that are refused
UNREAD = {
    "deepseek_v2": "'num_experts_per_tok' is missing",
    "glm4_moe": "which the 96 heads do not divide",
}


def small(kind):
    values = {**SMALL, **SMALL_FAMILIES[kind], "model_type": kind}
    if kind == "deepseek_v4":  # in transformers another name of the width of its experts
        values["intermediate_size"] = values["moe_intermediate_size"]
    return values


@caches
@pytest.mark.long
@pytest.mark.parametrize("kind", COUNTED)
def test_each_part_is_as_in_transformers(kind, tmp_path):
    """At small sizes, as a file has them and as saved, and at the sizes of the class itself."""
    for values in (small(kind), {"model_type": kind}):
        if "vocab_size" not in values and kind in UNBUILDABLE:
            continue
        parts, config = built(values)
        for written in saved(config):
            if "vocab_size" not in values and kind in UNREAD:
                with pytest.raises(UsageError, match=UNREAD[kind]):
                    counted(tmp_path, written)
                continue
            assert together(by_part(counted(tmp_path, written)), kind) == together(parts, kind)
        if "vocab_size" in values:
            with suppress(UsageError):  # a field that this file does not have
                found = by_part(counted(tmp_path, values))
                assert together(found, kind) == together(parts, kind)


# of recurrences and convolutions, by the type of model
MAMBA_FLAGS = {"use_bias": False, "use_conv_bias": True}
JAMBA_FLAGS = {"mamba_proj_bias": False, "mamba_conv_bias": True}
MIXER_FLAGS = {
    **dict.fromkeys(("mamba", "falcon_mamba", "mamba2", "nemotron_h"), MAMBA_FLAGS),
    **dict.fromkeys(("jamba", "granitemoehybrid"), JAMBA_FLAGS),
    "lfm2": {"conv_bias": False, "block_auto_adjust_ff_dim": True},
}


def flags(kind):
    """The fields that say whether a family has biases, norms or one embedding, and its default."""
    found = {flag[0]: flag[1] for flag in FAMILIES[kind] if type(flag) is tuple and len(flag) == 2}
    return {name: usual for name, usual in found.items() if isinstance(usual, bool)} | (
        MIXER_FLAGS.get(kind, {})
    )


@caches
@pytest.mark.long
@pytest.mark.parametrize("kind", COUNTED)
def test_what_files_leave_out_is_as_in_transformers(kind, tmp_path):
    """Each default, and the weights with its opposite."""
    from transformers import AutoConfig

    usual = AutoConfig.for_model(kind)
    found = flags(kind)
    for name, value in found.items():
        assert getattr(usual, name) == value, name
    opposites = [{name: not value} for name, value in found.items()]
    if kind == "internlm3":  # which has biases in attention and feed-forwards, or in neither
        biases = ("attention_bias", "mlp_bias")
        opposites = [{"tie_word_embeddings": True}, dict.fromkeys(biases, True)]
    for opposite in opposites:
        parts, config = built(small(kind) | opposite)
        for written in saved(config):
            assert together(by_part(counted(tmp_path, written)), kind) == together(parts, kind)


def test_every_type_of_model_that_is_counted_was_compared():
    assert set(FAMILIES) <= {*SMALL_FAMILIES, *SAME}
    for kind in SAME.keys() & FAMILIES.keys():
        assert FAMILIES[kind] == FAMILIES[SAME[kind]]


def test_a_flag_is_the_file_s_or_that_of_the_family(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llama", "attention_bias": True}))
    config = fields(file)
    assert is_set(config, ("attention_bias", False))
    assert is_set(config, ("mlp_bias", True))
    assert not is_set(config, False)
