"""Every configuration class of transformers: answered as its caches are, or refused by a name."""

import json
import re
from types import MappingProxyType
from typing import Any

import pytest

from attnbench.commands.model.configuration import fields
from attnbench.commands.model.configured_layers import model
from attnbench.commands.model.context import ALL, ContextQuery, rows
from attnbench.commands.model.families import FAMILIES
from attnbench.commands.model.orders import ORDERS
from attnbench.commands.model.parameters import parameters
from attnbench.commands.model.unread import OF_TYPE, READ
from attnbench.errors import UsageError
from tests.commands.model.filled import CannotBeFilled, few_layers, filled
from tests.commands.model.test_configured_layers import caches

pytestmark = [caches, pytest.mark.long]
PIECES = 12
LAYERS = (4, 6, 8)  # of copies; more where they lack a kind or the class refuses so few
# fmt: off
# what a class's defaults lack, so that no model of them runs
CHANGED = MappingProxyType(
    {
        "bamba": {"attn_layer_indices": [1, 2]},
        "dbrx": {"attn_config": {"kv_n_heads": 4, "rope_theta": 1e4, "clip_qkv": 8}},
        "deepseek_v2": {"num_experts_per_tok": 2, "moe_intermediate_size": 1408},
        "chameleon": {"vocabulary_map": {"<image>": 4, "IMGIMGA": 5}},
        "cohere_compass_text": {
            "rope_parameters": {
                kind: {"rope_type": "default", "rope_theta": 1e4}
                for kind in ("full_attention", "sliding_attention")
            }
        },
        "deepseek_ocr2_text": {"mlp_layer_types": ["dense"] * 32},
        "diffusion_gemma_text": {
            "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 64
        },
        "dots1": {
            "num_experts_per_tok": 2, "n_routed_experts": 8, "n_shared_experts": 1, "n_group": 1,
            "topk_group": 1,
        },
        "granitemoehybrid": {
            "layer_types": ["mamba", "attention", "mamba", "mamba"],
            "num_hidden_layers": 4,
        },
        "hunyuan_v1_dense": {"head_dim": 128},
        "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 4, "moe_topk": 2},
        "hunyuan_vl_text": {"head_dim": 128},
        "gemma3n_text": {"activation_sparsity_pattern": [0.0] * 35},
        "jetmoe": {  # so small that it is filled with numbers
            "hidden_size": 64, "kv_channels": 16, "num_key_value_heads": 4, "num_local_experts": 2,
            "intermediate_size": 32, "vocab_size": 50, "num_hidden_layers": 2,
        },
        "ministral": {"head_dim": 128},
        "nemotron": {"num_key_value_heads": 8},
    }
)
# fmt: on
# classes that are answered otherwise than their caches are, with the reason
LISTED: dict[str, str] = {}


def every_type() -> list[str]:
    """The names of all configuration classes."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return list(CONFIG_MAPPING_NAMES)


def default(name: str, **changed: Any) -> Any:
    """A configuration as its class makes it without arguments; None if it refuses to."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    try:
        return CONFIG_MAPPING[name](**changed)
    except Exception:  # of a class whose defaults contradict one another
        return None


def saved(config: Any) -> list[dict[str, Any]]:
    """A configuration as its class saves it, in full and without what every class has."""
    return [json.loads(config.to_json_string(use_diff=diff)) for diff in (False, True)]


def answer(values: Any, lengths: Any, tmp_path: Any) -> tuple[int, ...] | str:
    """The bytes that are said of a file at some lengths, or the reason for which it is refused."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(values))
    query = ContextQuery(lengths=tuple(lengths), item_bytes=2)
    try:
        return next(row.at for row in rows(model(file).layers, query) if row.kind == ALL)
    except UsageError as error:
        return str(error).removeprefix(f"{str(file)!r}: ")


def copies(config: Any) -> Any:
    """Copies with few layers, and the configuration itself."""
    for layers in LAYERS:
        try:
            copy = few_layers(config, layers)
            if kinds(copy) == kinds(config):
                yield copy
        except Exception:  # of a class that checks how its layers are ordered
            continue
    yield config


def kinds(config: Any) -> set[str]:
    """The kinds of layers that transformers' own cache of a configuration has."""
    from transformers.cache_utils import get_layer_types_and_kwargs

    return set(get_layer_types_and_kwargs(config)[0])


def compared(config: Any, tmp_path: Any) -> str:
    """How what is said of a text model's configuration differs from what its model keeps."""
    reason = ""
    for copy in copies(config):
        try:
            sizes = filled(copy)
        except Exception as error:  # of a copy whose model cannot be built
            reason = reason or f"cannot be filled: {type(error).__name__}: {error}"
            if isinstance(error, CannotBeFilled):
                break
            continue
        for values in saved(copy):
            said = answer(values, sizes, tmp_path)
            if said != tuple(sizes.values()):
                return f"{said} for {tuple(sizes.values())} at {tuple(sizes)}"
        return ""
    return reason


def wrong(name: str, tmp_path: Any) -> str:
    """What is wrong with what is said of a class's configuration; nothing if it is refused well."""
    config = default(name)
    if config is None:
        return ""
    said = {answer(values, (100,), tmp_path) for values in saved(config)}
    refusals = [reason for reason in said if isinstance(reason, str)]
    if unnamed := [reason for reason in refusals if not re.search(r"'\w[\w.-]*'", reason)]:
        return f"refused without the name of a field: {unnamed[0]}"
    if len(refusals) == len(said) and name not in CHANGED:
        return ""
    text = config.get_text_config(decoder=True)
    kind = text.model_type
    if name != kind:  # compared under its own name
        own = default(kind)
        if own is not None and own.to_dict() == text.to_dict():
            alone = {answer(values, (100,), tmp_path) for values in saved(own)}
            return "" if alone == said else f"{said}, and of its text model alone {alone}"
    if name in CHANGED:
        text = default(name, **CHANGED[name])
    return compared(text, tmp_path)


@pytest.mark.parametrize("piece", range(PIECES))
def test_each_class_is_answered_as_its_caches_are_or_refused_by_a_name(piece, tmp_path):
    names = every_type()[piece::PIECES]
    differences = {name: found for name in names if (found := wrong(name, tmp_path))}
    assert set(differences) == set(LISTED) & set(names), differences


def test_more_than_two_hundred_classes_are_answered(tmp_path):
    """With their defaults, as saved in full and without what every class has."""
    configs = {name: config for name in every_type() if (config := default(name)) is not None}
    answered = [
        name
        for name, config in configs.items()
        if not any(isinstance(answer(values, (100,), tmp_path), str) for values in saved(config))
    ]
    print(f"{len(answered)} of {len(configs)} classes answered, the others refused")
    assert len(answered) >= 200


@pytest.mark.parametrize("piece", range(PIECES))
def test_a_size_that_is_left_out_is_filled_in_as_its_class_does_or_refused(piece, tmp_path):
    """Of every type that is known, each field that is read here."""
    differences = {}
    for name in sorted(ORDERS)[piece::PIECES]:
        config = default(name, **CHANGED.get(name, {}))
        if config is None or isinstance(answer(saved(config)[0], (100,), tmp_path), str):
            continue
        values = {key: value for key, value in saved(config)[0].items() if value is not None}
        for field in values.keys() & {*READ, *OF_TYPE.get(name, ()), "layer_types", "hidden_size"}:
            rest = {key: value for key, value in values.items() if key != field}
            found = answer(rest, (100, 9_000), tmp_path)
            by_class = None if isinstance(found, str) else default(name, **rest)
            if by_class is None:
                continue
            if found != (right := answer(saved(by_class)[0], (100, 9_000), tmp_path)):
                differences[name, field] = f"{found} for {right}"
    assert not differences


def parameters_of(values: Any, tmp_path: Any) -> int | str:
    """How many parameters a file is said to have, or why they are not counted."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(values))
    try:
        return sum(weights.numbers for weights in parameters(fields(file)))
    except UsageError as error:
        return str(error)


@pytest.mark.parametrize("piece", range(PIECES))
def test_parameters_of_a_file_without_a_field_are_those_of_its_class_or_not_counted(
    piece, tmp_path
):
    """Of every family, each field of its class."""
    differences = {}
    for name in sorted(FAMILIES)[piece::PIECES]:
        config = default(name, **CHANGED.get(name, {}))
        if config is None or isinstance(parameters_of(saved(config)[0], tmp_path), str):
            continue
        values = {key: value for key, value in saved(config)[0].items() if value is not None}
        for field in values:
            rest = {key: value for key, value in values.items() if key != field}
            counted = parameters_of(rest, tmp_path)
            by_class = None if isinstance(counted, str) else default(name, **rest)
            if by_class is None:
                continue
            if counted != (right := parameters_of(saved(by_class)[0], tmp_path)):
                differences[name, field] = f"{counted} for {right}"
    assert not differences


def followed(values: dict[str, Any], reason: str, config: Any) -> dict[str, Any] | None:
    """A file after the advice of its refusal was followed; None if there is none to follow."""
    changed = json.loads(json.dumps(values))
    inner = changed.get("text_config")
    text = inner if isinstance(inner, dict) else changed
    if "; add 'layer_types'" in reason:
        from transformers.cache_utils import get_layer_types_and_kwargs

        kinds_listed = get_layer_types_and_kwargs(config)[0]
        text["layer_types"] = kinds_listed
    elif missing := re.findall(r"'(\w+)'(?= or | is missing; add it)", reason):
        named = next((name for name in missing if getattr(config, name, None) is not None), None)
        if named is None or text.get(named) == getattr(config, named):
            return None
        text[named] = getattr(config, named)
    else:
        return None
    return changed


# classes that are answered after the advice was followed and have no cache to compare with
UNBUILT = MappingProxyType(
    {
        "dbrx": "its defaults lack what its positions read",
        "imagegpt": "runs on no meta device; it reads and draws images only",
        "moshi_depth": "is built inside another model alone",
        "openai_privacy_filter": "labels all tokens at once, and its file says that it has a cache",
        "qwen3_omni_moe_talker_text": "its defaults lack the width of its experts",
    }
)


@pytest.mark.parametrize("piece", range(PIECES))
def test_the_advice_of_a_refusal_leads_to_a_right_answer_or_to_another_refusal(piece, tmp_path):
    wrong_ones = {}
    for name in every_type()[piece::PIECES]:
        config = default(name)
        if config is None:
            continue
        text = config.get_text_config(decoder=True)
        values = saved(text)[0]
        steps = 0
        try:
            while isinstance(reason := answer(values, (100,), tmp_path), str):
                changed = followed(values, reason, text)
                if changed is None or changed == values:
                    break
                values = changed
                steps += 1
        except (AttributeError, TypeError):  # of transformers: no kinds of layers
            continue
        if isinstance(reason, str) or not steps:
            continue
        found = compared_as(values, text, tmp_path)
        if found:
            wrong_ones[name] = found
    assert set(wrong_ones) <= set(UNBUILT), wrong_ones


def compared_as(values: dict[str, Any], config: Any, tmp_path: Any) -> str:
    """How what is said of a file with all layers differs from what the class's model keeps."""
    try:
        sizes = filled(config)
    except Exception as error:  # of a model that cannot be built alone
        return f"cannot be filled: {type(error).__name__}: {error}"
    said = answer(values, sizes, tmp_path)
    return "" if said == tuple(sizes.values()) else f"{said} for {sizes}"
