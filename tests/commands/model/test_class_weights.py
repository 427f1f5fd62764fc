"""Parameters of further types, by part, beside their classes at the sizes of the class itself.

The types of test_parameters.py are compared at small sizes too.
"""

import pytest

from attnbench.commands.model.families import FAMILIES
from tests.commands.model.test_configurations import CHANGED
from tests.commands.model.test_configured_layers import FAMILIES as SMALL_FAMILIES
from tests.commands.model.test_configured_layers import SAME, caches
from tests.commands.model.test_parameters import (
    GENERAL,
    aliases,
    as_counted,
    built,
    by_part,
    counted,
    flags,
    saved,
    together,
)

pytestmark = [caches, pytest.mark.long]
COMPARED = [kind for kind in FAMILIES if kind not in {*SMALL_FAMILIES, *SAME}]
SIZES = {
    "glm4v_moe_text": {"head_dim": 128},
    "cohere2_moe": {"first_k_dense_replace": 2, "prefix_dense_intermediate_size": 96},
}
TIE = "tie_word_embeddings"


def values(kind, changed):
    return {**CHANGED.get(kind, {}), **SIZES.get(kind, {}), **changed, "model_type": kind}


def default(kind):
    """A configuration with the defaults of the class, and its value of the fields of the family."""
    from transformers import AutoConfig

    return AutoConfig.for_model(**values(kind, {}))


@pytest.mark.parametrize("kind", COMPARED)
def test_each_part_is_as_in_transformers_with_each_flag_and_its_opposite(kind, tmp_path):
    usual = default(kind)
    found = flags(kind)
    tied = getattr(usual, TIE, None)
    for name, value in found.items():
        if name != TIE:
            assert getattr(usual, name) == value, name
    for change in ({}, *({name: not value} for name, value in found.items())):
        change.setdefault(TIE, bool(tied))
        parts, config = built(values(kind, change))
        for written in saved(config):
            named = {**written, TIE: change[TIE]}
            assert together(by_part(counted(tmp_path, named)), kind) == together(parts, kind)
    for written in aliases(named, config):
        assert as_counted(tmp_path, written) in (None, parts)


@pytest.mark.parametrize("kind", COMPARED)
def test_whatever_a_class_can_be_told_is_read_or_refused(kind, tmp_path):
    """Each field that is true or false the other way round."""
    usual = saved(default(kind))[0]
    names = [name for name, value in usual.items() if isinstance(value, bool)]
    for name in (one for one in names if one not in GENERAL and not one.startswith("output_")):
        try:
            parts, config = built(values(kind, {TIE: False, name: not usual[name]}))
        except Exception:  # of a class that refuses it
            continue
        found = as_counted(tmp_path, {**saved(config)[0], TIE: False})
        assert found in (None, parts), name


@pytest.mark.parametrize("kind", COMPARED)
def test_the_head_is_the_embedding_as_the_class_of_the_whole_model_has_it(kind):
    """As a file without the field has it, of a text model or of one with images too."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    outer = kind.removesuffix("_text")
    tied = getattr(
        CONFIG_MAPPING[outer]() if outer in CONFIG_MAPPING else default(kind), TIE, False
    )
    flag = FAMILIES[kind].tied
    assert (flag if isinstance(flag, bool) else flag[1]) == tied
