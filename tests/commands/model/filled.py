"""Caches of transformers' models, filled by them, for whichever of its configuration classes."""

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

import torch
import torch.fx.experimental._config

from attnbench.mechanisms.peers.transformers.sublayer import own

CACHES = ("cache", "past_key_values", "cache_params")  # its names, of releases before 5.24 too
PROMPT = 37  # tokens; no pool divides them
TINY = 64  # the width up to which a model is filled with numbers, wider ones on the meta device
MOST = 20_000  # tokens of a window that is filled
# what it keeps of the inputs of a convolution does not hold that of the token itself
EARLIER_INPUTS = ("zaya",)


class CannotBeFilled(Exception):
    """No model of a configuration keeps anything when it runs on the meta device."""


def tensors(
    part: object, known: dict[int, torch.Tensor], name: str = ""
) -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor in a cache once, with the name of what holds it."""
    if isinstance(part, torch.Tensor):
        if id(part) not in known:
            known[id(part)] = part
            yield name, part
    elif isinstance(part, list | tuple):
        for each in part:
            yield from tensors(each, known, name)
    else:
        numbered = isinstance(part, dict)
        inner = part if numbered else getattr(part, "__dict__", {})
        for key, value in inner.items():
            yield from tensors(value, known, name if numbered and name else str(key))


def kept(cache: object, kind: str = "") -> int:
    """Bytes of what a cache of a model of some type keeps of the context.

    Not a window's length; not the input of the token itself, which transformers keeps of a
    convolution; of gates and of the keys of an index, which it keeps in float32 in some models, as
    much as in bfloat16.
    """
    found = 0
    for name, tensor in tensors(cache, {}):
        if name == "_sliding_window_tensor":
            continue
        size = tensor.nbytes
        if name == "conv_states" and kind not in EARLIER_INPUTS:
            size -= tensor[..., :1].nbytes
        if name in ("overlap_gate", "indexer_keys") and tensor.itemsize == 4:
            size //= 2
        found += size
    return found


def few_layers(config: Any, layers: int) -> Any:
    """A copy of a configuration with fewer layers; what it says of single ones is cut."""
    values = config.to_dict()
    every = values.get("num_hidden_layers")
    if not isinstance(every, int) or every <= layers:
        return config
    for name, value in values.items():
        if isinstance(value, list) and len(value) == every:
            values[name] = value[:layers]
        if name == "per_layer_config" and value:
            values[name] = {key: own for key, own in value.items() if int(key) < layers}
    values["num_hidden_layers"] = layers
    shared = values.get("num_kv_shared_layers")
    if shared:
        values["num_kv_shared_layers"] = min(shared, layers // 2)
    return type(config)(**values)


def windows(values: Mapping[str, Any]) -> Iterator[int]:
    """The sizes of windows and chunks of a configuration."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from windows(value)
        sized = type(value) is int and 1 < value <= MOST
        if sized and ("window" in name or "chunk" in name) and "max_window" not in name:
            yield value


def model_class(config: Any) -> Any:
    """The class of transformers that builds the layers of a configuration."""
    from transformers import AutoModel, PreTrainedModel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mapped = AutoModel._model_mapping
    with suppress(KeyError, ValueError):  # of a type without a class, or whose class is missing
        found = mapped[type(config)]
        return found[0] if isinstance(found, tuple | list) else found
    name = type(config).__module__.replace(".configuration_", ".modeling_")
    built = [
        each
        for each in vars(import_module(name)).values()
        if isinstance(each, type)
        and issubclass(each, PreTrainedModel)
        and getattr(each, "config_class", None) is type(config)
        and each.__name__.endswith("Model")
        and not each.__name__.endswith("PreTrainedModel")
    ]
    if not built:
        raise CannotBeFilled(f"no class builds a {type(config).__name__}")
    return built[0]


def filled(config: Any) -> dict[int, int]:
    """The bytes that a model of a configuration keeps of one sequence, by the tokens of its prompt.

    A prompt is shorter than its windows and one longer.
    """
    longest = max((*windows(config.to_dict()), 0))
    sizes: dict[int, int] = {}
    config._attn_implementation = "eager"
    counted = torch.fx.experimental._config.patch(meta_nonzero_assume_all_nonzero=True)
    device = "cpu" if getattr(config, "hidden_size", TINY + 1) <= TINY else "meta"
    with torch.device(device), torch.no_grad(), counted:  # all tokens go to each expert
        built = model_class(config)._from_config(config, dtype=torch.bfloat16).eval()
        own(sys.modules[type(built).__module__])
        for prompt in (PROMPT, longest + 3 if longest > PROMPT else 2 * PROMPT - 7):
            sizes[prompt] = kept(_run(built, config, prompt), config.model_type)
    return sizes


def _run(model: Any, config: Any, prompt: int) -> object:
    """The cache of a model after a prompt; by its projections where it cannot run."""
    tokens = torch.ones(1, prompt, dtype=torch.long)
    try:
        done = model(tokens, use_cache=True)
    except Exception:  # of numbers that the meta device lacks
        for part in model.modules():
            if type(part).__name__.endswith("Experts"):
                part.forward = _passed_on
        try:
            done = model(tokens, use_cache=True)
        except Exception as error:  # of inputs that the class's defaults lack
            return _projected(model, config, prompt, error)
    cache = next((done[name] for name in CACHES if name in done), None)
    if cache is None:
        raise CannotBeFilled(f"{type(model).__name__} keeps nothing")
    return cache


def _passed_on(tokens: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    """In place of experts, which keep nothing of the context."""
    return tokens


def _projected(model: Any, config: Any, prompt: int, error: Exception) -> object:
    """A cache of the configuration's own kinds of layers, filled with what its layers project."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    cache = DynamicCache(config=config)
    attentions = [
        part for part in model.modules() if hasattr(part, "k_proj") and hasattr(part, "v_proj")
    ]
    plain = all(type(each) in (DynamicLayer, DynamicSlidingWindowLayer) for each in cache.layers)
    if not plain or len(attentions) != len(cache.layers):
        raise CannotBeFilled(f"{type(model).__name__}: {type(error).__name__}: {error}") from error
    for index, part in enumerate(attentions):
        projected = [
            torch.ones(1, 1, prompt, getattr(each, "linear", each).out_features).bfloat16()
            for each in (part.k_proj, part.v_proj)
        ]
        cache.update(*projected, index)
    return cache
