"""Modules that users bring without a card: adopted, contained, and marked as undeclared."""

import re
import sys
from dataclasses import asdict, replace
from math import inf
from pathlib import Path

import pytest

from attnbench.attention.checks.checks import verify
from attnbench.errors import UnknownMechanism, UnknownOption
from attnbench.measuring import reader
from attnbench.measuring.caller import Caller
from attnbench.measuring.causality import in_steps, leak
from attnbench.measuring.planner import plan
from attnbench.measuring.subject import subject_of
from attnbench.measuring.worker import Worker
from attnbench.mechanisms.catalogue.adopted import adopt
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import PASSES, Causality, Level, Mode, Outcome, Selection
from attnbench.records.messages import (
    Build,
    Failure,
    Finish,
    MeasureMemory,
    ReadPlan,
    of_case,
    written,
)
from attnbench.running.request.options import read
from attnbench.running.request.requests import request
from attnbench.running.session import measuring_server
from tests import sweeps, user_modules
from tests.measuring.cases import case

FILE = Path(__file__).parents[2] / "user_modules.py"


def named(name):
    return f"{FILE}:{name}"


@pytest.fixture(scope="module")
def server():
    with measuring_server(1) as server:
        yield server


@pytest.fixture
def answer(server):
    """What a process says of a module: the end of its timing, or what measuring its memory gave."""

    def ask(name, measures_memory=False, options=(), **sizes):
        one = of_case(case(named(name), "eager", options, **sizes))
        with server.process(measures_memory=measures_memory) as worker:
            if measures_memory:
                return written(worker.ask(MeasureMemory(**one), 120))
            built = worker.ask(Build(**one), 120)
            return written(built if isinstance(built, Failure) else worker.ask(Finish(), 120))

    return ask


@pytest.mark.parametrize(
    "name", ["Mean", "Masked", "factory", "Prints", "Pair", "summed", "softmax", "Summed"]
)
@pytest.mark.parametrize("level", [Level.ATTENTION, Level.MODEL])
@pytest.mark.parametrize("mode", PASSES)
def test_a_module_or_a_factory_is_measured(answer, name, level, mode):
    assert answer(name, level=level, mode=mode)["outcome"] == Outcome.OK


def test_what_it_does_not_declare_is_counted(answer):
    values = answer("Mean", measures_memory=True)["values"]
    assert values["parameters"] == 16 * 16 + 16
    assert values["flops"] == 2 * 2 * 32 * 16 * 16
    tested = card(named("Mean"))
    assert (tested.cost.time, tested.reference, tested.declared) == (None, None, False)


@pytest.mark.parametrize("level", [Level.ATTENTION, Level.MODEL])
def test_it_is_planned_as_if_it_were_linear(level):
    options = {"models": named("Mean"), "lengths": "128,256", "tokens": 256, "level": level}
    asked = request(read({**options, "mode": "inference", "device": "cpu"}))
    short, long = plan(Selection(name=named("Mean")), asked)
    assert not short.refusal
    assert short.core_flops == long.core_flops == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Shorter", "the output has shape [2, 31, 16], not [2, 32, 16]"),
        ("Raises", "KeyError: 'no such thing'"),
        ("NotFinite", "output is not finite"),
        ("Double", "dtype torch.float64, not torch.float32"),
        ("Elsewhere", "device meta, not cpu"),
        ("Listed", "returned a list, not one tensor"),
        ("not_a_module", "returned int, not an nn.Module"),
    ],
)
def test_each_kind_of_failure_has_an_outcome(answer, name, said):
    found = answer(name)
    assert found["outcome"] == Outcome.FAILED
    assert said in found["reason"]


def test_a_setting_that_it_changed_is_reported_and_spoils_the_process(answer):
    meddled = answer("Meddles")
    assert meddled["notes"]["changed"] == "number of threads 1 to 3"
    assert meddled["needs_new_process"]
    assert "changed" not in answer("Mean")["notes"]


def test_memory_that_it_keeps_is_reported(answer):
    assert answer("Leaks", measures_memory=True)["values"]["kept_bytes"] == 2**20
    assert answer("Mean", measures_memory=True)["values"]["kept_bytes"] == 0


@pytest.mark.parametrize(("name", "said"), [("Dies", "exit 3"), ("Exits", "SystemExit: 3")])
def test_a_process_that_it_ends_is_reported(answer, name, said):
    found = answer(name)
    assert found["outcome"] in (Outcome.CRASHED, Outcome.FAILED)
    assert said in found["reason"]


def test_what_it_forks_ends_with_its_case(answer, tmp_path):
    pid_file = tmp_path / "child"
    found = answer("Forks", options=(("pid_file", str(pid_file)),))
    assert found["outcome"] == Outcome.OK
    assert not (Path("/proc") / pid_file.read_text()).exists()


def test_options_are_the_further_parameters():
    tested = card(named("Mean"))
    assert tested.configure({"share": 0.5}).share == 0.5
    with pytest.raises(UnknownOption, match="no option 'window'; options: share"):
        tested.configure({"window": 3})
    with pytest.raises(UnknownOption, match="causal is set by --causal"):
        card(named("Masked")).configure({"causal": True})
    assert vars(card(named("summed")).config()) == {"bias": False, "chunk": 64}
    assert vars(card(named("softmax")).config()) == {"bias": False}

    def factory(width, heads, bias=True):
        """A module that is never made."""

    assert adopt(factory, "factory").config().bias


@pytest.mark.parametrize("level", [Level.ATTENTION, Level.MODEL, Level.CORE])
def test_what_takes_no_parameter_for_it_is_tested_for_being_causal(answer, level):
    tested = "summed" if level is Level.CORE else "Mean"
    assert card(named(tested)).causality is Causality.TESTED
    assert card(named("Masked")).causality is card(named("softmax")).causality
    refused = answer(tested, causal=True, level=level)
    assert refused["outcome"] == Outcome.UNSUPPORTED
    assert refused["reason"].startswith("it is not causal: the output at token ")
    if level is not Level.CORE:
        again = answer("FirstHalf", causal=True, level=level)["reason"]
        assert again.startswith("it is not causal: the output at token ")
        assert answer("Cumulative", causal=True, level=level)["outcome"] == Outcome.OK
    assert "causal" not in answer(tested, level=level)["notes"]


@pytest.mark.parametrize("mode", PASSES)
@pytest.mark.parametrize("name", ["MeanOfAll", "OneTooLate", "NormOfAll", "NoisyMeanOfAll"])
def test_what_takes_causal_and_sees_later_tokens_fails(answer, name, mode):
    refused = answer(name, causal=True, mode=mode)
    assert refused["outcome"] == Outcome.FAILED
    if name == "NoisyMeanOfAll":  # beside whose noise no pair of tokens is told apart
        said = "beside its random numbers, the outputs? at tokens? 1.* changed when all later"
        assert re.search(said, refused["reason"])
        return
    told = re.fullmatch(
        r"it is not causal: the output at token (\d+) changed when token (\d+) changed",
        refused["reason"],
    )
    changed, by = map(int, told.groups())
    assert changed < by
    assert by == changed + 1 or name != "OneTooLate"
    assert answer(name, mode=mode)["outcome"] == Outcome.OK, "where nobody asked for it"


@pytest.mark.parametrize("mode", PASSES)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("CausalDropout", "float32"),
        ("CausalFourier", "float32"),
        ("CausalNoise", "float32"),
        ("Masked", "float32"),
        ("Masked", "bfloat16"),
    ],
)
def test_what_is_causal_is_measured(answer, name, dtype, mode):
    found = answer(name, causal=True, dtype=dtype, mode=mode, seq_len=129)
    assert found["outcome"] == Outcome.OK, found


@pytest.mark.parametrize("level", [Level.CORE, Level.ATTENTION, Level.MODEL])
def test_cores_and_layers_of_stacks_that_see_later_tokens_fail(answer, level):
    refused = answer("reads_next", causal=True, level=level)
    assert refused["outcome"] == Outcome.FAILED
    changed, by = map(int, re.findall(r"token (\d+)", refused["reason"]))
    assert by == changed + 1
    assert answer("softmax", causal=True, level=level)["outcome"] == Outcome.OK
    if level is not Level.CORE:
        stack = f"stack({named('OneTooLate')}+linear_transformer)"
        refused = Worker(None, seed=0).answer(
            "build", **asdict(case(stack, None, causal=True, level=level))
        )
        assert "changed when token" in refused["reason"], refused


def test_later_tokens_of_a_step_are_looked_at_too():
    subject = subject_of(
        card("grouped_query"),
        case("grouped_query", "eager", mode=Mode.DECODE, causal=True, step=4),
        seed=0,
    )
    called = Caller(subject)
    forward = in_steps(called)
    assert leak(called, forward) is None
    step = called.mechanism.step
    called.mechanism.step = lambda x, state: step(x + 0.1 * x.mean(1, keepdim=True), state)
    found = leak(called, forward)
    assert (found.changed, found.by) == (31, 32)


def test_one_that_is_causal_unasked_is_named_so(answer):
    asked = asdict(case(named("Cumulative"), "eager"))
    worker = Worker(None, seed=0)
    worker.answer("build", suspicious=True, **asked)
    assert worker.answer("finish")["notes"]["causal"] == "it sees no later token"


def test_memory_is_warmed_up_by_the_case_itself_where_no_small_one_runs(answer):
    sizes = {"seq_len": 512, "mode": Mode.TRAINING}
    assert answer("Blocks", **sizes)["outcome"] == Outcome.OK
    found = answer("Blocks", measures_memory=True, **sizes)
    assert found["values"]["allocated_peak_bytes"] > 0


def test_a_core_stands_between_projections_or_alone(answer):
    for name in ("summed", "softmax", "Summed"):
        assert answer(name, level=Level.CORE, mode=Mode.TRAINING)["outcome"] == Outcome.OK
    values = answer("summed", measures_memory=True)["values"]
    assert values["parameters"] == 4 * 16 * 16
    values = answer("summed", measures_memory=True, level=Level.CORE)["values"]
    assert (values["parameters"], values["flops"]) == (0, 2 * 2 * 2 * 4 * 32 * 4 * 4)
    assert answer("softmax", padding=0.3)["outcome"] == Outcome.OK


def mean(width, heads):
    return user_modules.Mean(width, heads)


def masked(width, heads):
    return user_modules.Masked(width, heads)


def lazy(width, heads):
    """A factory that needs data of its own."""
    user_modules.Mean(width, heads).value.weight.sum().item()
    return user_modules.Mean(width, heads)


@pytest.mark.parametrize(("factory", "takes"), [(mean, False), (masked, True), (lazy, True)])
def test_what_a_factory_makes_is_asked_whether_it_takes_a_mask(factory, takes):
    """What cannot be known without running it is not refused."""
    offered = adopt(factory, factory.__name__)
    padded = case(named("Mean"), "eager", padding=0.3).workload
    refusal = offered.refusal("eager", offered.config(), padded)
    assert (refusal is None) == takes
    assert offered.refusal("eager", offered.config(), replace(padded, padding=0.0)) is None


def test_a_padded_batch_needs_a_mask(answer):
    padded = case(named("Mean"), "eager", padding=0.3).workload
    tested = card(named("Mean"))
    assert "no parameter named mask" in tested.refusal("eager", tested.config(), padded)
    tested = card(named("Masked"))
    assert tested.refusal("eager", tested.config(), padded) is None
    assert answer("Masked", padding=0.3)["outcome"] == Outcome.OK


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("number", "is of type int; it must be a Card"),
        ("without_sizes", r"takes \(x\); it must take a width"),
        ("Men", "did you mean Mean"),
    ],
)
def test_what_is_no_mechanism_is_refused(name, said):
    with pytest.raises(UnknownMechanism, match=said):
        card(named(name))


@pytest.mark.parametrize(
    "text", ["raise RuntimeError('broken\\nlines')", "import sys; sys.exit(4)", "def (", "1 / 0"]
)
def test_a_file_that_does_not_load_is_reported_in_one_line(tmp_path, text):
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(UnknownMechanism, match="cannot be loaded") as error:
        card(f"{tmp_path}/bad.py:Thing")
    assert "\n" not in str(error.value)


def test_a_file_of_a_package_has_its_relative_imports(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    inner = tmp_path / "outer_pkg" / "inner"
    inner.mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py", "inner/helper.py"):
        (tmp_path / "outer_pkg" / name).touch()
    (tmp_path / "outer_pkg" / "sizes.py").write_text("WIDER = 2\n")
    text = "from .. import sizes\nfrom . import helper\n" + FILE.read_text()
    (inner / "odd.py").write_text(text)
    assert card(f"{inner}/odd.py:Mean").forms
    assert sys.modules["outer_pkg.sizes"].WIDER == 2


def test_verifying_finds_what_the_contract_forbids():
    def failed(name):
        results = verify(card(named(name)))
        return {each["check"] for each in results if each["result"] == "failed"}

    assert failed("Mean") == set()
    assert failed("Masked") == set()
    assert failed("OnlyWhenCausal") == set()
    assert failed("softmax") == set()
    assert failed("Mixes") == {"sequences of a batch do not mix"}
    assert "gives the shape and type it was given" in failed("Double")


def test_a_class_without_a_docstring_is_not_titled_by_its_base():
    assert card(named("Mean")).paper.title.startswith("Adds the mean of all tokens")
    assert card(named("Masked")).paper.title == named("Masked")


def test_a_default_that_cannot_be_stored_is_no_option():
    def factory(width, heads, share=1.0, most=float("inf"), least=float("nan"), name=""):
        """A module that is never made."""

    assert vars(adopt(factory, "factory").config()) == {"share": 1.0, "name": ""}


@pytest.mark.parametrize("wrong", [{"year": -1}, {"options": {"a": inf}}])
def test_a_card_that_could_not_be_stored_fails_when_it_is_read(monkeypatch, wrong):
    monkeypatch.setattr(reader, "facts", lambda name: replace(sweeps.facts(name), **wrong))
    question = ReadPlan(names=("mine.py:CARD",), request=sweeps.sweep().request, selections=())
    answer = reader.CardReader(None).answer(**written(question))
    assert answer["error"] == "UnknownMechanism"
    assert "'mine.py:CARD': its card fails: ValidationError: Expected `" in answer["reason"]
