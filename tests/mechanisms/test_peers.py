"""Forms that other packages compute: what is missing or broken is said and never raised."""

import pytest
import torch

from attnbench.measuring.memory_and_counts import relative_error
from attnbench.measuring.worker import Worker
from attnbench.mechanisms import peers
from attnbench.mechanisms.catalogue import registry
from attnbench.mechanisms.local import Local
from attnbench.mechanisms.transformer import Transformer
from attnbench.records import PASSES, Case, Level, Outcome, Workload
from tests.commands.commands import python
from tests.measuring.cases import sent

W = Workload(batch=1, seq_len=32, width=16, heads=4, level=Level.ATTENTION)


def every():
    """Each mechanism with each form of it that a package computes."""
    for name in registry.names():
        card = registry.card(name)
        yield from ((card, form) for form, module in card.forms.items() if module.package)


class Broken(peers.Peer, Local):
    """A form of a package that is found but cannot be imported."""

    package = "broken"
    module = "broken"


class Faulty(peers.Kernel, Transformer):
    """A form of torch whose kernel does not run; `error` is what it raises."""

    package = "torch"
    module = "torch.nn"
    error: Exception

    def attend(self, q, k, v, mask):
        raise self.error


@pytest.fixture
def broken(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("raise OSError('libx.so: undefined symbol\\nand more')")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def built(monkeypatch, form, **sizes):
    """The answer of a worker that builds a form of `local`, `mine`."""
    monkeypatch.setattr(registry, "package_forms", lambda name: {"mine": form})
    case = Case(mechanism="local", form="mine", workload=Workload(**{**vars(W), **sizes}))
    return Worker(None, seed=0).answer("build", **sent(case))


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(peers, "find_spec", lambda module: None)
    for card, form in every():
        reason, package = card.refusal(form, card.config(), W), card.forms[form].package
        assert reason.startswith(f"{package} is not installed: pip install ")


@pytest.mark.parametrize("found", ["4.46.3", "55.0"])
def test_another_release_is_named_beside_the_one_that_a_form_needs(found, monkeypatch):
    monkeypatch.setattr(peers, "find_spec", lambda module: True)
    monkeypatch.setattr(peers, "installed", lambda package: found)
    card, w = registry.card("grouped_query"), Workload(**{**vars(W), "causal": True})
    reason = card.refusal("transformers", card.config(), w)
    assert reason == f"it needs transformers 5; {found} is installed"
    monkeypatch.setattr(peers, "installed", lambda package: "5.23.0")
    assert card.refusal("transformers", card.config(), w) is None


@pytest.mark.parametrize(
    ("what", "said"),
    [("causal", "has no causal form of it"), ("padding", "takes no padding mask here")],
)
def test_what_a_package_does_not_take_is_refused(what, said, monkeypatch):
    monkeypatch.setattr(peers, "find_spec", lambda module: True)
    for card, form in every():
        module, w = card.forms[form], Workload(**{**vars(W), what: 1})
        monkeypatch.setattr(peers, "installed", lambda package, m=module: f"{m.release or 1}.0")
        taken = {"causal": module.takes_causal, "padding": module.takes_padding}[what]
        reason = module.needs(card.config(), w)
        assert (f"{module.package} {said}" == reason) == (not taken), f"{card.paper.title}:{form}"


def test_no_package_is_imported_before_a_form_is_built():
    code = """
import sys
from attnbench.mechanisms.catalogue import registry
from attnbench.records import Level, Workload
w = Workload(batch=1, seq_len=64, level=Level.ATTENTION)
packages = set()
for name in registry.names():
    card = registry.card(name)
    for form, module in card.forms.items():
        card.refusal(form, card.config(), w)
        if module.package and module.package != "torch":
            packages.add(module.module.partition(".")[0])
assert len(packages) == 4, packages
sys.exit(", ".join(packages & set(sys.modules)) or 0)
"""
    python("-c", code)


def test_cases_of_a_package_that_cannot_be_imported_are_unsupported_and_not_failed(
    broken, monkeypatch
):
    assert Broken.needs(registry.card("local").config(), W) is None
    answer = built(monkeypatch, Broken)
    assert answer["outcome"] == Outcome.UNSUPPORTED
    assert "cannot be imported here: OSError: libx.so: undefined" in answer["reason"]
    assert "and more" not in answer["reason"]


@pytest.mark.parametrize("mode", PASSES)
def test_a_kernel_that_does_not_run_is_unusable(mode, monkeypatch):
    monkeypatch.setattr(Faulty, "error", NotImplementedError("No operator found"), raising=False)
    answer = built(monkeypatch, Faulty, mode=mode)
    assert answer["outcome"] == Outcome.UNSUPPORTED
    assert answer["reason"].endswith("does not work here: NotImplementedError: No operator found")


def test_a_kernel_without_memory_is_out_of_memory(monkeypatch):
    monkeypatch.setattr(Faulty, "error", torch.OutOfMemoryError("none left"), raising=False)
    assert built(monkeypatch, Faulty)["outcome"] == Outcome.OOM


def test_a_form_is_called_as_its_package_and_says_how_to_install_it():
    for card, form in every():
        module = card.forms[form]
        assert "pip install" in module.install, module
        assert not module.deviation.endswith("."), module
        assert form == module.__module__.split(".")[3], module
        assert module.module.partition(".")[0] == form, module


def test_a_form_that_departs_claims_no_digits(monkeypatch):
    departing = type("Departing", (Local,), {"deviation": "blocks overlap"})
    monkeypatch.setattr(registry, "package_forms", lambda name: {"mine": departing})
    case = Case(mechanism="local", form="mine", workload=W)
    assert relative_error(registry.card("local"), case, seed=0) is None
