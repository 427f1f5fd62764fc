"""A model's configuration file as its fields; what is missing is named, not guessed."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnbench.commands.model.renaming import with_known_names
from attnbench.errors import UsageError, small_file

INDEX = "model.safetensors.index.json"  # of weights in several files
# of a model of text and images, valid for both
SHARED = (
    *("model_type", "dtype", "torch_dtype", "tie_word_embeddings"),
    *("quantization_config", "quantization"),
)
# what models with several parts call the configuration of the one that writes text
TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
POINTER = b"version https://git-lfs"  # begins what stands for a file that was not downloaded
LARGEST = 1 << 20  # of a size; larger numbers are typos
MOST_LAYERS = 10_000
NESTED = (("linear_attn_config", "linear_"), ("sparse_attention_config", ""), ("attn_config", ""))
PER_LAYER = "per_layer_config"  # fields of single layers, by their number
IN_PLACE_OF = ("global_head_dim", "num_global_key_value_heads")  # which have no effect beside it
OTHER_KIND = "attention_other_setting"  # fields of all layers of the kind that it names
OF_WINDOWS = "swa_"  # begins the names of fields of all sliding layers
QUERY_HEADS = "num_attention_heads_per_layer"


class ConfigurationFields:
    """The fields of a configuration; reading one that is missing or wrong raises `UsageError`."""

    def __init__(self, file: str, values: Mapping[str, Any], *, text_only: bool = False) -> None:
        self.file = file
        self.values = values
        self.text_only = text_only  # of a model of images or sounds too
        self.type = str(values.get("model_type"))

    @property
    def layers(self) -> int:
        """How many layers the model has."""
        return self.size("num_hidden_layers", most=MOST_LAYERS)

    def has(self, *names: str) -> bool:
        """Whether one of these fields has a value."""
        return any(self.values.get(name) is not None for name in names)

    def require(self, *names: str) -> None:
        """Raise `UsageError` if the file has none of these fields, not even null or 0."""
        if not any(name in self.values for name in names):
            raise self.error(
                f"{' or '.join(map(repr, names))} is missing; add it, null where there is none"
            )

    def size(
        self, *names: str, least: int = 1, most: int = LARGEST, default: int | None = None
    ) -> int:
        """The whole number under the first of these names with a value; `default` if none has."""
        name = next(filter(self.has, names), None)
        if name is None and default is not None:
            return default
        if name is None:
            raise self.error(f"{' or '.join(map(repr, names))} is missing; add it")
        value = self.values[name]
        if type(value) is not int or not least <= value <= most:
            raise self.error(
                f"{name!r} is {value!r}; write a whole number from {least} to {most:,}"
            )
        return value

    def list_of(self, name: str) -> list[Any]:
        """A list that is not empty; a string counts as the list of its letters."""
        value = self.values.get(name)
        entries = list(value) if isinstance(value, list | str) else []
        if not entries or not all(isinstance(entry, str | int) for entry in entries):
            raise self.error(f"{name!r} is {value!r}; write a list with an entry for each layer")
        return entries

    def of_layer(self, index: int, kind: str) -> "ConfigurationFields":
        """The fields as they hold in one layer: those of the model, and those it has of its own.

        Files of transformers 5.24 write the latter under 'per_layer_config', by the layer's number
        ('05'), in place of fields that name a width for all layers of full attention. Files of some
        types have others for all layers of a kind.
        """
        values = dict(self.values)
        if self.has(PER_LAYER):
            for name in IN_PLACE_OF:
                values.pop(name, None)
            values |= self._own_fields().get(index, {})
        if self.has(QUERY_HEADS):
            values["num_attention_heads"] = dict(enumerate(self.list_of(QUERY_HEADS))).get(index)
        other = values.get(OTHER_KIND)
        if isinstance(other, dict) and other.get("attention_type") == kind:
            values |= with_known_names({**other, "model_type": self.type})[0]
        if kind == "sliding_attention":
            values |= {
                name.removeprefix(OF_WINDOWS): value
                for name, value in values.items()
                if name.startswith(OF_WINDOWS) and value is not None
            }
        return ConfigurationFields(self.file, values)

    def _own_fields(self) -> dict[int, dict[str, Any]]:
        """The fields that single layers have of their own. Raises `UsageError`."""
        written = self.values[PER_LAYER]
        entries = written.items() if isinstance(written, dict) else [(written, None)]
        fields_by_layer: dict[int, dict[str, Any]] = {}
        layers = self.layers if self.has("num_hidden_layers") else MOST_LAYERS
        for number, entry in entries:
            if not (str(number).isdecimal() and len(str(number)) < 8 and isinstance(entry, dict)):
                raise self.error(
                    f"{PER_LAYER!r} has {number!r}: {entry!r}; write the fields of a layer under"
                    " its number"
                )
            if int(number) >= layers:
                raise self.error(
                    f"{PER_LAYER!r} has layer {int(number)}, and the last of {layers} is"
                    f" {layers - 1}"
                )
            fields_by_layer[int(number)] = entry
        return fields_by_layer

    @property
    def dtype(self) -> str:
        """The number type that the file names, such as `bfloat16`; empty without one."""
        for name in filter(self.has, ("dtype", "torch_dtype")):
            number_type = self.values[name]
            if isinstance(number_type, str):
                return number_type.removeprefix("torch.")
            if not isinstance(number_type, dict):  # which has one for each part of a model
                raise self.error(f"{name!r} is {number_type!r}; write a name, as 'bfloat16'")
        return ""

    def error(self, problem: str) -> UsageError:
        """An error about this file, to be raised."""
        return UsageError(f"{self.file!r}: {problem}")


def weight_bytes(config: Path) -> int | None:
    """The bytes of the weights beside a configuration, None where they are not known."""
    index = config.with_name(INDEX)
    single_file = config.with_name("model.safetensors")
    if index.is_file():
        with open(index, "rb") as file:  # the total comes first, before many names
            total = re.search(rb'"total_size":\s*(\d{1,18})\b', file.read(4096))
        return int(total[1]) or None if total else None
    if not single_file.is_file():
        return None
    with open(single_file, "rb") as file:
        beginning = file.read(1024)
    if not beginning.startswith(POINTER):
        return single_file.stat().st_size
    size = re.search(rb"^size (\d{1,18})$", beginning, re.MULTILINE)
    return int(size[1]) if size else None


def fields(path: Path) -> ConfigurationFields:
    """The fields of a file such as `config.json`; of a multimodal one, those of its text model."""
    file = str(path)
    repeated: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for name, value in pairs:
            if name in entries and entries[name] != value:
                repeated.append(name)
            entries[name] = value
        return entries

    try:
        values = json.loads(small_file(path).decode("utf-8-sig"), object_pairs_hook=once)
    except OSError as error:
        raise UsageError(f"{file!r} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file!r} is not JSON; give the config.json of a model") from error
    if repeated:
        raise UsageError(f"{file!r}: {repeated[0]!r} is there twice with two values; keep one")
    values, text_only = _text_part(values)
    if not isinstance(values, dict) or not {"model_type", "num_hidden_layers"} & set(values):
        raise UsageError(
            f"{file!r} is not a model's configuration: no 'model_type' or 'num_hidden_layers';"
            " give the config.json of a model"
        )
    for name, prefix in NESTED:
        if isinstance(inner := values.get(name), dict):
            values = {prefix + key: value for key, value in inner.items()} | values
    values, twice = with_known_names(values)
    config = ConfigurationFields(file, values, text_only=text_only)
    if twice:
        raise config.error(f"{twice!r} is another name of a field that has another value; keep one")
    return config


def _text_part(values: Any) -> tuple[Any, bool]:
    """The fields of the part of a model that writes text, and whether there are others."""
    several = False
    while isinstance(values, dict):
        parts = [values[name] for name in TEXT_PARTS if isinstance(values.get(name), dict)]
        if not parts:
            break
        values = {name: values[name] for name in SHARED if name in values} | parts[0]
        several = True
    return values, several
