"""The values that a shell offers: whole ones that begin with what was typed, also within lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.running.request import completion

MODULE = """
class Mean(Base):
    def __init__(self, width, heads): ...

def local(q, k, v): ...
"""
WORDS = ("core", "attention", "model")
TYPED = st.text(st.sampled_from("acdemnort,"), max_size=12)


@given(TYPED)
def test_a_word_is_offered_where_it_begins_with_what_was_typed(typed):
    found = completion.words(WORDS)(typed)
    assert found == [word for word in WORDS if word[: len(typed)] == typed]


@given(st.lists(st.sampled_from(WORDS), unique=True, max_size=2), st.sampled_from(["", "a", "m"]))
def test_a_list_goes_on_with_a_word_that_it_lacks(before, start):
    typed = ",".join([*before, start])
    found = completion.lists(WORDS)(typed)
    assert {*found} == {
        ",".join([*before, word]) for word in WORDS if word.startswith(start) and word not in before
    }


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("fastformer,trans", {"fastformer,transformer", "fastformer,transformer_xl"}),
        ("transformer:ea", {"transformer:eager"}),
        ("fnet,retention:ch", {"fnet,retention:chunked"}),
        ("fnet,@mod", {"fnet,@modern"}),
        ("stack(2*mamba2+grou", {"stack(2*mamba2+grouped_query"}),
        ("stack(@mod", set()),  # layers are no groups
        ("linformer[rank=4,x=1],gated_l", {"linformer[rank=4,x=1],gated_linear"}),
        ("linformer[rank=4,gated_l", set()),  # an option of it
        ("fastf", {"fastformer"}),
        ("no_such:", set()),
    ],
)
def test_mechanisms_are_offered_in_lists_forms_and_stacks(typed, offered):
    assert {*completion.mechanisms(typed)} == offered


def test_one_mechanism_is_offered_with_groups_only_where_they_are_taken():
    assert completion.mechanism("@") == []
    assert "@fig2" in completion.mechanism_or_group("@")
    assert completion.mechanism("kimi") == ["kimi_delta"]
    assert completion.mechanism("transformer,fnet") == []


def test_the_modules_of_a_file_are_offered_after_its_name(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MODULE)
    assert completion.mechanism(f"{file}:") == [f"{file}:Mean", f"{file}:local"]
    assert completion.mechanism(f"{file}:lo") == [f"{file}:local"]
    file.write_text("def (")
    assert completion.mechanism(f"{file}:") == []
    assert completion.mechanism(f"{tmp_path / 'none.py'}:") == []


def test_devices_are_offered_by_kind():
    assert completion.devices("") == ["auto", "cpu", "cuda"]
    assert completion.devices("cu") == ["cuda"]
    assert completion.no_values("a") == []
