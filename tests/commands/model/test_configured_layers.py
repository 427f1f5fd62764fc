"""What a configuration's layers keep, to the byte, beside the caches of transformers themselves."""

import json
import re
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from pathlib import Path

import pytest
import torch

from attnbench.commands.model.configured_layers import model
from attnbench.commands.model.context import ContextQuery, rows
from attnbench.commands.model.orders import ORDERS
from attnbench.errors import UsageError
from attnbench.mechanisms.peers.transformers.sublayer import own
from tests.commands.model.filled import CACHES, kept

try:
    RELEASE = version("transformers")
except PackageNotFoundError:
    RELEASE = "none"
caches = pytest.mark.skipif(
    int(RELEASE.partition(".")[0].replace("none", "0")) < 5,
    reason=f"needs transformers 5, and {RELEASE} is installed",
)

DATA = Path(__file__).parents[2] / "data" / "configurations"
PROMPTS = (3, 37)  # within a window of 8 and beyond; no pool divides them
BATCH = 2
# fmt: off
SMALL = {
    "vocab_size": 50, "hidden_size": 64, "intermediate_size": 32, "moe_intermediate_size": 16,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
}
HEAD = {"head_dim": 16}
WINDOW = {"head_dim": 16, "sliding_window": 8}
LATENT = {
    "num_key_value_heads": 4, "kv_lora_rank": 24, "q_lora_rank": 16, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 12,
}
INDEX = {**LATENT, "index_head_dim": 8, "index_n_heads": 2, "index_topk": 16}
DELTA = {
    "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 8, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
}
KIMI = {
    "full_attn_layers": [2, 4], "kda_layers": [1, 3], "head_dim": 16, "num_heads": 4,
    "short_conv_kernel_size": 4,
}
MAMBA = {
    "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 2,
    "mamba_d_conv": 4, "mamba_expand": 2,
}
V4 = {
    "num_key_value_heads": 1, "q_lora_rank": 16, "o_groups": 2, "o_lora_rank": 8,
    "index_head_dim": 8, "index_n_heads": 2, "index_topk": 4,
}
# fields as files of this type have them
FAMILIES = {
    "llama": {},
    "cohere": {},
    "olmo": {},
    "olmo2": {},
    "granitemoe": {},
    "ernie4_5": HEAD,
    "hunyuan_v1_dense": HEAD,
    "internlm3": HEAD,
    "ministral3": HEAD,
    "seed_oss": HEAD,
    "apertus": {},
    "arcee": {},
    "bitnet": {},
    "ernie4_5_moe": {},
    "flex_olmo": {},
    "granitemoeshared": {},
    "helium": HEAD,
    "nemotron": {},
    "olmoe": {},
    "phimoe": {"sliding_window": 8},
    "stablelm": {},
    "gemma": HEAD,
    "glm4": HEAD,
    "granite": {},
    "hunyuan_v1_moe": HEAD,
    "smollm3": {},
    "mistral": {"sliding_window": 8},
    "mixtral": {"sliding_window": None},
    "phi3": {},
    "starcoder2": {},
    "qwen2": {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3},
    "qwen3": {"head_dim": 16, "use_sliding_window": False, "sliding_window": 8},
    "qwen3_moe": {"head_dim": 16, "use_sliding_window": False, "sliding_window": 8},
    "gemma2": WINDOW,
    "gemma3_text": {**WINDOW, "num_hidden_layers": 7, "sliding_window_pattern": 3},
    "gemma3n_text": {
        **WINDOW, "num_hidden_layers": 6,
        "layer_types": ["sliding_attention", "full_attention"] * 3, "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 50, "laurel_rank": 4,
        "altup_num_inputs": 2,
    },
    "gemma4_text": {
        **WINDOW, "layer_types": ["sliding_attention", "full_attention"] * 2, "global_head_dim": 32,
        "attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0,
        "num_kv_shared_layers": 0,
    },
    "cohere2": {"sliding_window": 8, "sliding_window_pattern": 2},
    "olmo3": {"sliding_window": 8},
    "gpt_oss": WINDOW,
    "llama4_text": {"head_dim": 16, "attention_chunk_size": 8},
    "glm4_moe": HEAD,
    "minimax_m2": HEAD,
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "glm4_moe_lite": LATENT,
    "deepseek_v32": INDEX,
    "glm_moe_dsa": {**INDEX, "index_topk_freq": 2},
    "deepseek_v4": {**WINDOW, **V4, "compress_ratios": [4, 128, 4, 128]},
    "qwen3_next": {**DELTA, "full_attention_interval": 2},
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": DELTA,
    "olmo_hybrid": DELTA,
    "kimi_linear": {**LATENT, "linear_attn_config": KIMI},
    "minimax": {**HEAD, "block_size": 8},
    "mamba": {"state_size": 8, "expand": 2, "conv_kernel": 4},
    "falcon_mamba": {"state_size": 8, "expand": 2, "conv_kernel": 4},
    "mamba2": {
        "num_heads": 8, "head_dim": 16, "state_size": 8, "n_groups": 2, "expand": 2,
        "conv_kernel": 4,
    },
    "jamba": {
        "num_hidden_layers": 4, "attn_layer_period": 4, "attn_layer_offset": 2, "mamba_d_state": 8,
        "mamba_d_conv": 4, "mamba_expand": 2, "use_mamba_kernels": False,
    },
    "granitemoehybrid": {
        **MAMBA, "layer_types": ["mamba", "attention", "mamba", "mamba"],
        "shared_intermediate_size": 16,
    },
    "nemotron_h": {
        "head_dim": 16, "hybrid_override_pattern": "M-M*", "mamba_num_heads": 8,
        "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 2, "conv_kernel": 4,
    },
    "lfm2": {"full_attn_idxs": [1], "conv_L_cache": 3},
    "bamba": {**MAMBA, "attn_layer_indices": [1]},
    "falcon_h1": {**MAMBA, "head_dim": 16, "mamba_d_ssm": 128},
    "zamba2": {
        "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_ngroups": 2,
        "n_mamba_heads": 8, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "num_key_value_heads": 4, "hybrid_layer_ids": [1, 3], "num_mem_blocks": 1,
        "attention_head_dim": 32, "kv_channels": 16,
    },
    "zaya": {
        "head_dim": 16, "cca_time0": 2, "cca_time1": 3, "num_experts_per_tok": 1,
        "sliding_window": 8, "layer_types": ["hybrid", "hybrid_sliding"] * 2,
        "router_hidden_size": 16,
    },
    "bailing_hybrid": {
        **LATENT, "head_dim": 16, "short_conv_kernel_size": 4, "layer_group_size": 2,
        "num_expert_group": 1, "first_k_dense_replace": 2,
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2, "conv_L_cache": 3},
    "mimo_v2_flash": {
        **WINDOW, "v_head_dim": 8, "layer_types": ["full_attention", "sliding_attention"] * 2,
    },
    "minimax_m3_vl_text": {
        "head_dim": 16, "index_head_dim": 8, "index_n_heads": 2, "index_block_size": 16,
        "layer_types": ["full_attention", "minimax_m3_sparse"] * 2,
    },
    "falcon": {"multi_query": True, "new_decoder_architecture": False},
    "mistral4": LATENT,
    "qwen3_vl_text": HEAD,
}
# their layers are read as those of another one of these: they are compared in long tests
ALIKE = {
    "cohere", "olmo", "olmo2", "granitemoe", "ernie4_5", "hunyuan_v1_dense", "internlm3",
    "ministral3", "seed_oss", "apertus", "arcee", "bitnet", "ernie4_5_moe", "flex_olmo",
    "granitemoeshared", "helium", "nemotron", "olmoe", "phimoe", "stablelm", "gemma", "glm4",
    "granite", "hunyuan_v1_moe", "smollm3", "mixtral", "phi3", "starcoder2", "qwen3_moe",
    "gemma3_text", "olmo3", "glm4_moe", "minimax_m2", "deepseek_v2", "glm4_moe_lite",
    "glm_moe_dsa", "qwen3_5_moe_text", "olmo_hybrid", "falcon_mamba", "bamba", "lfm2_moe",
    "mistral4", "qwen3_vl_text",
}
# fmt: on
# types with the layers of another one that transformers has no class for
SAME = {
    "chatglm": "glm",
    "deepseek": "glm4_moe",
    "kimi_k2": "deepseek_v3",
    "mimo_v2": "mimo_v2_flash",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "minimax_m1": "minimax",
    "minimax_text_01": "minimax",
}


def counted(tmp_path, fields, *lengths, item_bytes=2, memory=None):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(fields))
    query = ContextQuery(lengths=lengths, item_bytes=item_bytes, memory=memory)
    return rows(model(file).layers, query)


def whole(rows):
    return next(row for row in rows if row.kind == "all layers")


@caches
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.long if kind in ALIKE else ()) for kind in FAMILIES],
)
def test_the_bytes_are_those_of_the_caches_of_transformers(kind, tmp_path):
    """After a prompt and one token more, with the fields of a file and with those saved again."""
    from transformers import AutoConfig, AutoModel

    fields = {**SMALL, **FAMILIES[kind], "model_type": kind}
    config = AutoConfig.for_model(**fields, attn_implementation="eager")
    sizes = {}
    with torch.device("meta"), torch.no_grad():
        built = AutoModel.from_config(config, dtype=torch.bfloat16).eval()
        own(sys.modules[type(built).__module__])
        for prompt in PROMPTS:
            done = built(torch.ones(BATCH, prompt, dtype=torch.long), use_cache=True)
            names = [name for name in CACHES if name in signature(built.forward).parameters]
            cache = {names[0]: next(done[name] for name in CACHES if name in done)}
            sizes[prompt] = kept(cache, kind)
            built(torch.ones(BATCH, 1, dtype=torch.long), **cache, use_cache=True)
            sizes[prompt + 1] = kept(cache, kind)
    for written in (fields, json.loads(config.to_json_string(use_diff=False))):
        assert whole(counted(tmp_path, written, *sizes)).at == tuple(
            n // BATCH for n in sizes.values()
        )


# what transformers fills in by itself where a file does not say it
LEFT_OUT = ("head_dim", "num_key_value_heads", "mamba_n_groups", "n_groups")


@caches
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_size_that_is_left_out_is_as_in_transformers_or_refused(kind, tmp_path):
    from transformers import AutoConfig

    fields = {**SMALL, **FAMILIES[kind], "model_type": kind}
    for name in fields.keys() & set(LEFT_OUT):
        rest = {key: value for key, value in fields.items() if key != name}
        try:
            filled = json.loads(AutoConfig.for_model(**rest).to_json_string(use_diff=False))
        except Exception:  # of huggingface_hub, where the default fits no other size of the file
            continue
        with suppress(UsageError):
            found = whole(counted(tmp_path, rest, *PROMPTS))
            assert found == whole(counted(tmp_path, filled, *PROMPTS)), name


@caches
def test_every_type_of_model_that_is_known_was_compared():
    """With its defaults too, where transformers has a class for it (test_configurations.py)."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    assert set(ORDERS) <= {*FAMILIES, *SAME, *CONFIG_MAPPING_NAMES}
    assert set(SAME.values()) <= {*FAMILIES, *CONFIG_MAPPING_NAMES}


def stored(name, *lengths):
    query = ContextQuery(lengths=lengths, item_bytes=2)
    return rows(model(DATA / f"{name}.json").layers, query)


def test_kimi_linear_keeps_what_was_worked_out_by_hand():
    """20 layers of delta rule, whose state is float32, and 7 of latent attention."""
    linear, latent, all_layers, _, full = stored("kimi-linear-48b", 32 << 10, 128 << 10, 1 << 20)
    assert linear.layers == 20
    assert linear.at[0] == 20 * (32 * 128 * 128 * 4 + 3 * 3 * 32 * 128 * 2)  # 41.4 MiB
    assert latent.per_token == all_layers.per_token == 7 * 576 * 2 == 8_064
    assert full.per_token == 27 * 576 * 2 == 31_104


# bytes per token, and of windows and states once full: logged or published by engines, or counted
# from the models' own code
CURRENT = {
    "falcon-h1-1.5b": (24_576, 76_013_568),
    "glm-4-9b-chat": (40_960, 0),
    "gpt2-xl": (307_200, 0),
    "kimi-k3": (27_648, 449_372_160),
    "laguna-s-2.1": (49_152, 75_350_016),
    "ling-3.0-flash": (8_064, 75_980_800),
    "minimax-m3": (137_472, 0),
    "mistral-small-4": (23_040, 0),
    "step-3.5-flash": (49_152, 69_070_848),
    "zaya1-8b": (40_960, 215_040),
}
REFUSED = {
    "deepseek-v4.1-flash": "kv_source_layer_ids",  # by layers that read those of others
    "hunyuan-cla-known-type": "use_cla",
}


@pytest.mark.parametrize("name", CURRENT)
def test_the_files_of_current_models_are_right_to_the_byte(name):
    query = ContextQuery(lengths=(100_000,), item_bytes=2)
    all_layers = whole(rows(model(DATA / f"{name}.json").layers, query))
    per_token, once = CURRENT[name]
    assert all_layers.per_token == per_token
    assert all_layers.at == (per_token * 100_000 + once,)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        *REFUSED.items(),
        ("falcon-h1-1.5b", "mamba_d_ssm"),
        ("kimi-k3", "linear_full_attn_layers"),
        ("ling-3.0-flash", "layer_group_size"),
        ("minimax-m3", "sparse_attention_freq"),
    ],
)
def test_a_list_of_layers_that_hides_what_they_keep_is_refused(name, field, tmp_path):
    """As a reader would add it who takes all layers for full attention."""
    fields = json.loads((DATA / f"{name}.json").read_text())
    text = fields.get("text_config", fields)
    text["layer_types"] = ["full_attention"] * text["num_hidden_layers"]
    with pytest.raises(UsageError, match=f"'{field}'"):
        counted(tmp_path, fields, 1)


@pytest.mark.parametrize("name", REFUSED)
def test_what_layers_share_is_refused_by_the_name_of_its_field(name):
    with pytest.raises(UsageError, match=f"'{REFUSED[name]}' is not read here"):
        model(DATA / f"{name}.json")


def test_the_token_that_looks_back_is_the_last_of_its_window(tmp_path):
    kept = counted(tmp_path, {**SMALL, "model_type": "mistral", "sliding_window": 8}, 7, 8, 9)
    assert whole(kept).at == (4 * 2 * 2 * 16 * 2 * 7,) * 3


LLAMA = {**SMALL, "model_type": "llama"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "is not a model's configuration: no 'model_type' or 'num_hidden_layers'; give"),
        ({"model_type": "llama"}, "'num_hidden_layers' is missing; add it"),
        ({**LLAMA, "num_hidden_layers": 100_000}, "write a whole number from 1 to 10,000"),
        ({**LLAMA, "num_key_value_heads": 3}, "is 3, which does not divide the 4 heads"),
        ({**LLAMA, "hidden_size": 66}, "'hidden_size' is 66, which the 4 heads do not divide"),
        (
            {**LLAMA, "model_type": "qwen2", "use_sliding_window": "false"},
            "'use_sliding_window' is 'false'; write true or false",
        ),
        (
            {**LLAMA, "model_type": "kimi_linear", "linear_full_attn_layers": [2, 9]},
            "'linear_full_attn_layers' is [2, 9]; there are 4 layers",
        ),
        ({**LLAMA, "layer_types": [{}] * 4}, "; write a list with an entry for each layer"),
        ({**LLAMA, "layer_types": ["full_attention"]}, "names 1 layers, and 'num_hidden_layers' 4"),
        ({**LLAMA, "layer_types": ["rwkv"] * 4}, "unknown kind of layer 'rwkv'; known are full_"),
        ({**LLAMA, "layer_types": ["linear_attention"] * 4}, "'mamba_d_state' or 'ssm_state_size'"),
        (
            {**LLAMA, "model_type": "new"},
            "how model type 'new' orders its layers is not known; add",
        ),
        ({**LLAMA, "model_type": "granitemoehybrid"}, "'layer_types' is None; write a list with"),
        ({**LLAMA, "swa_head_dim": 8}, "'swa_head_dim' is not read here"),
        (
            {**LLAMA, "model_type": "nemotron_h", "hybrid_override_pattern": "M*"},
            "the order of layers names 2 layers, and 'num_hidden_layers' 4",
        ),
        (
            {**LLAMA, "model_type": "nemotron_h", "hybrid_override_pattern": "M?M*"},
            "unknown kind of layer '?'; known are full_attention",
        ),
        (
            {**LLAMA, "model_type": "deepseek_v4", "compress_ratios": [4, 8, [], 4]},
            "'compress_ratios' is [4, 8, [], 4]; write a list",
        ),
    ],
)
def test_what_is_missing_or_unknown_is_named(fields, message, tmp_path):
    with pytest.raises(UsageError, match=re.escape(message)) as raised:
        counted(tmp_path, fields, 1)
    assert str(raised.value).startswith(repr(str(tmp_path / "config.json")))
    assert "\n" not in str(raised.value)


GEMMA = {
    **SMALL,
    "model_type": "gemma4_text",
    "head_dim": 16,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}


def test_a_layer_has_the_fields_that_are_written_under_its_number(tmp_path):
    own = {"head_dim": 32, "num_key_value_heads": 1}
    single = counted(tmp_path, GEMMA | {"per_layer_config": {"01": own, "3": own}}, 100)
    common = {"global_head_dim": 32, "num_global_key_value_heads": 1, "attention_k_eq_v": True}
    assert single == counted(tmp_path, GEMMA | common, 100)
    assert whole(single).at == (2 * 2 * 2 * 16 * 7 * 2 + 2 * 2 * 1 * 32 * 100 * 2,)
    # beside fields of single layers, those of all full ones have no effect
    beside = GEMMA | {"per_layer_config": {"01": own, "03": own}, "global_head_dim": 64}
    assert counted(tmp_path, beside, 100) == single


def test_layers_with_other_heads_of_queries_are_kinds_of_their_own(tmp_path):
    fields = LLAMA | {"num_attention_heads_per_layer": [4, 8, 4, 4], "head_dim": 16}
    few, many, all_layers, *_ = counted(tmp_path, fields, 100)
    assert (few.kind, few.layers) == ("full, 2 × 16, 4 heads of queries", 3)
    assert (many.kind, many.layers) == ("full, 2 × 16, 8 heads of queries", 1)
    assert all_layers.at == whole(counted(tmp_path, LLAMA, 100)).at


@pytest.mark.parametrize(
    "more",
    [
        {"model_type": "qwen2", "sliding_window": 8},  # whose windows must be asked for
        {"num_kv_shared_layers": 4},  # with which layer would the first share?
    ],
)
def test_what_has_no_effect_in_transformers_has_none_here(more, tmp_path):
    assert counted(tmp_path, {**LLAMA, **more}, 100) == counted(tmp_path, LLAMA, 100)


def test_a_model_of_images_too_is_read_by_its_texts(tmp_path):
    inner = {name: value for name, value in LLAMA.items() if name != "model_type"}
    nested = {"model_type": "llama", "vision_config": {}, "text_config": inner}
    assert counted(tmp_path, nested, 100) == counted(tmp_path, LLAMA, 100)
