"""Parameters by part, to the number, beside the classes of transformers on the meta device."""

import json
import re
from collections import Counter
from contextlib import suppress
from math import prod

import pytest
import torch

from attnbench.commands.model import weights
from attnbench.commands.model.configuration import fields
from attnbench.commands.model.families import FAMILIES
from attnbench.commands.model.parameters import parameters
from attnbench.errors import UsageError
from tests.commands.model.test_configured_layers import FAMILIES as SMALL_FAMILIES
from tests.commands.model.test_configured_layers import SAME, SMALL, caches

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
GPT_2 = {
    "model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024,
    "vocab_size": 50257,
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
        (GPT_2, 1_557_611_200, 1_557_611_200),
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


def test_shared_experts_are_counted_under_both_names(tmp_path):
    """As Sarvam's files have them, and DeepSeek's."""
    layers = {**SMALL, **SMALL_FAMILIES["glm4_moe"], "first_k_dense_replace": 1}
    layers["model_type"] = "sarvam_moe"
    numbers = [
        sum(one.numbers for one in counted(tmp_path, {**layers, **shared}))
        for shared in ({"n_shared_experts": 0}, {"n_shared_experts": 2}, {"num_shared_experts": 2})
    ]
    assert numbers[1] == numbers[2] == numbers[0] + 3 * 2 * 3 * 16 * 64


@pytest.mark.parametrize(
    ("architecture", "has_head"),
    [("Qwen3ForCausalLM", True), ("GPT2LMHeadModel", True), ("Qwen3Model", False)],
)
def test_a_head_is_counted_unless_the_file_is_of_a_model_without_one(
    architecture, has_head, tmp_path
):
    file = LLAMA_8B | {"architectures": [architecture]}
    numbers = sum(one.numbers for one in counted(tmp_path, file))
    assert numbers == 8_030_261_248 - (not has_head) * 128_256 * 4_096


def test_other_heads_and_vocabularies_are_refused_by_name(tmp_path):
    other = LLAMA_8B | {"architectures": ["LlamaForSequenceClassification"]}
    with pytest.raises(UsageError, match="head of 'LlamaForSequenceClassification'"):
        counted(tmp_path, other)
    with pytest.raises(UsageError, match="'draft_vocab_size' may change weights"):
        counted(tmp_path, LLAMA_8B | {"draft_vocab_size": 32_000})


# what a parameter of transformers belongs to, by its name
NORM = re.compile(
    r"(mlp|feed_forward|moe|mixer)\.(gate|router)\.|router|\.wg\.|shared_expert_gate|_hc\.|hc_head"
    r"|(^|\.)(norm|norm_f|final_layernorm|operator_norm|ffn_norm|embedding_norm|pre_ff_layernorm)\."
    r"|(input|post_attention|post_feedforward|pre_feedforward|attention|feedforward)_layernorm"
    r"|post_(self_attn|mlp)_layernorm|pre_mlp_layernorm|expert_bias|\.ln_[12f]\.|embeddings_layernorm"
    r"|final_layer_norm|post_laurel_norm|per_layer_(projection|input)_norm"
)
PART_OF = (
    (re.compile(r"embed_tokens|embeddings\.weight|\.wte|\.wpe|embed_in"), weights.EMBEDDING),
    (re.compile("lm_head|embed_out"), weights.HEAD),
    (re.compile(r"word_embeddings\."), weights.EMBEDDING),
    (re.compile(r"\.experts\."), weights.EXPERTS),
    (
        re.compile(
            r"linear_attn|mamba|\.conv\.|mixer\.(A_log|D|conv1d|in_proj|x_proj|dt_|norm|out_proj)"
        ),
        weights.STATES,
    ),
    (
        re.compile(r"(?<!post_)(self_)?attn\.|mixer\.[qkvo]_proj|attention\.(query|dense)"),
        weights.ATTENTION,
    ),
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
    """The parts of the class of transformers with these fields, and its configuration.

    A part of a model of images or sounds has no class with an output head: it is counted without.
    """
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    config = AutoConfig.for_model(**values, attn_implementation="eager")
    mapped = type(config) in AutoModelForCausalLM._model_mapping
    chosen = AutoModelForCausalLM if mapped else AutoModel
    with torch.device("meta"):
        model = chosen.from_config(config, dtype=torch.bfloat16)
    parts = Counter()
    for name, tensor in model.named_parameters():
        parts[part_of(name)] += prod(tensor.shape)
    if not mapped:
        words = config.vocab_size * (not getattr(config, "tie_word_embeddings", False))
        parts[weights.HEAD] += words * config.hidden_size
    return +parts, config


def saved(config):
    """The fields of a configuration as transformers writes all of them, and those it leaves."""
    return [json.loads(config.to_json_string(use_diff=diff)) for diff in (False, True)]


# defaults of configuration classes for which transformers builds no model
UNBUILDABLE = ("hunyuan_v1_dense", "hunyuan_v1_moe", "lfm2_moe", "nemotron")
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
    **dict.fromkeys(("bamba", "jamba", "granitemoehybrid"), JAMBA_FLAGS),
    "lfm2": {"conv_bias": False, "block_auto_adjust_ff_dim": True},
    "falcon_h1": {
        "mamba_proj_bias": False,
        "mamba_conv_bias": True,
        "mamba_rms_norm": False,
        "projectors_bias": False,
    },
    "lfm2_moe": {"conv_bias": False},
}


def aliases(written, config):
    """The file with a field under each further name that its class has for it."""
    for alias, name in type(config).attribute_map.items():
        if name in written and alias not in written:
            yield {alias if key == name else key: value for key, value in written.items()}


def as_counted(tmp_path, values):
    """The parts, or nothing where the file is refused."""
    with suppress(UsageError):
        return by_part(counted(tmp_path, values))
    return None


# of a class, which decide nothing of its weights
GENERAL = ("tie_word_embeddings", "return_dict", "is_encoder_decoder", "use_cache")


@caches
@pytest.mark.long
@pytest.mark.parametrize("kind", COUNTED)
def test_whatever_a_class_can_be_told_is_read_or_refused(kind, tmp_path):
    """Each field that is true or false the other way round."""
    from transformers import AutoConfig

    usual = saved(AutoConfig.for_model(**small(kind)))[0]
    names = [name for name, value in usual.items() if isinstance(value, bool)]
    for name in (one for one in names if one not in GENERAL and not one.startswith("output_")):
        try:
            parts, config = built(small(kind) | {name: not usual[name]})
        except Exception:  # of a class that refuses it
            continue
        found = as_counted(tmp_path, saved(config)[0])
        assert found is None or together(found, kind) == together(parts, kind), name


@caches
@pytest.mark.long
@pytest.mark.parametrize("kind", COUNTED)
def test_another_name_of_a_field_is_read_or_refused(kind, tmp_path):
    parts, config = built(small(kind))
    for written in aliases(saved(config)[0], config):
        found = as_counted(tmp_path, written)
        assert found is None or together(found, kind) == together(parts, kind)


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
        assert getattr(usual, name, value) == value, name  # without one it is of the whole model
    opposites = [{name: not value} for name, value in found.items()]
    if kind == "internlm3":  # which has biases in attention and feed-forwards, or in neither
        biases = ("attention_bias", "mlp_bias")
        opposites = [{"tie_word_embeddings": True}, dict.fromkeys(biases, True)]
    for opposite in opposites:
        parts, config = built(small(kind) | opposite)
        for written in saved(config):
            assert together(by_part(counted(tmp_path, written)), kind) == together(parts, kind)


@caches
def test_every_type_of_model_that_is_counted_was_compared():
    """At the sizes of their classes at least (test_class_weights.py)."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    assert set(FAMILIES) <= {*SMALL_FAMILIES, *SAME, *CONFIG_MAPPING_NAMES}
    for kind in SAME.keys() & FAMILIES.keys():
        assert FAMILIES[kind] == FAMILIES[SAME[kind]]
