"""NVIDIA GPUs: what the driver says of them, and why one cannot be used."""

from types import SimpleNamespace

import pytest
import torch  # noqa: F401 -- loads libraries, which tests with another CDLL must not

from attnbench.devices.finding import choose, find
from attnbench.devices.kinds import cuda
from attnbench.errors import CannotRun
from attnbench.mechanisms.catalogue import registry
from attnbench.records import Workload


class Driver:
    """libcuda with two devices, or one that does not start."""

    def __init__(self, code=0, mode=0, capability=(9, 0)):
        self.code = code
        self.attributes = dict(zip((20, 75, 76), (mode, *capability), strict=True))

    def cuInit(self, flags):  # noqa: N802
        return self.code

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = 2
        return 0

    def cuDeviceGetAttribute(self, answer, attribute, number):  # noqa: N802
        answer._obj.value = self.attributes.get(attribute, -1)
        return 0

    def cuDeviceGetName(self, name, size, number):  # noqa: N802
        name.value = f"NVIDIA H200 {number}".encode()
        return 0

    def cuDeviceGetUuid_v2(self, uuid, number):  # noqa: N802
        uuid.raw = bytes([*range(15), number])
        return 0


def test_the_driver_says_how_many_gpus_there_are_and_their_names(monkeypatch):
    monkeypatch.setattr(cuda.ctypes, "CDLL", lambda name: Driver())
    assert cuda.device_count() == 2
    assert find("cuda:1").title() == "NVIDIA H200 1"
    assert find("cuda").title() == "NVIDIA H200 0"
    monkeypatch.setattr(cuda.ctypes, "CDLL", lambda name: Driver(code=100))
    assert cuda.device_count() == 0


@pytest.mark.parametrize(("mode", "allowed"), [(0, ""), (2, "no process"), (3, "one process")])
def test_a_card_must_allow_several_processes(monkeypatch, tmp_path, mode, allowed):
    monkeypatch.setattr(cuda.ctypes, "CDLL", lambda name: Driver(mode=mode))
    monkeypatch.setattr(cuda, "built_for", lambda platform: platform == "cuda")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    reason = find("cuda").missing()
    assert bool(reason) == bool(allowed)
    assert allowed in reason
    (tmp_path / "control").touch()  # whose server is the one process
    assert find("cuda").missing() == ""


@pytest.mark.parametrize(
    ("lines", "platforms"),
    [
        ("cuda: Optional[str] = '13.0'\nhip: Optional[str] = None", {"cuda"}),
        ('cuda = "12.4"', {"cuda"}),
        ("cuda = None\nhip = '6.4.43482'", {"hip"}),
        ("cuda = None\nhip = None", set()),
    ],
)
def test_a_build_names_its_platform(tmp_path, monkeypatch, lines, platforms):
    (tmp_path / "version.py").write_text(f"{lines}\ngit_version = 'cuda = hip = '\n")
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(cuda, "find_spec", lambda name: spec)
    assert {name for name in ("cuda", "hip") if cuda.built_for(name)} == platforms


def test_a_torch_for_amd_says_that_it_cannot_be_measured(monkeypatch):
    monkeypatch.setattr(cuda, "built_for", lambda platform: platform == "hip")
    monkeypatch.setattr(cuda, "device_count", lambda: 0)
    with pytest.raises(CannotRun, match=r"is for AMD GPUs \(ROCm\), which attnbench cannot meas"):
        choose("cuda")


@pytest.mark.parametrize(("known", "kind"), [("GPU-", "GPU-"), ("MIG-", "MIG-"), ("", "GPU-")])
def test_a_card_and_a_part_of_one_have_names_of_their_own(monkeypatch, known, kind):
    number = "00010203-0405-0607-0809-0a0b0c0d0e01"
    monkeypatch.setattr(cuda.ctypes, "CDLL", lambda name: Driver())
    monkeypatch.setattr(cuda.nvml, "answer", lambda uuid, *_, default: uuid == known + number)
    assert find("cuda:1").uuid() == kind + number


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        (Driver(capability=(6, 1)), "torch.compile needs compute capability 7.0; this GPU has 6.1"),
        (Driver(capability=(7, 0)), ""),
        (Driver(capability=(12, 0)), ""),
        (Driver(code=100, capability=(6, 1)), ""),  # a sweep may be planned without a GPU
    ],
    ids=["Pascal", "Volta", "Blackwell", "no driver"],
)
def test_torch_compiles_only_for_gpus_that_triton_takes(monkeypatch, tmp_path, driver, reason):
    monkeypatch.setattr(cuda.ctypes, "CDLL", lambda name: driver)
    monkeypatch.setattr(cuda, "which", lambda program: program)
    monkeypatch.setattr(cuda, "find_spec", lambda package: package)
    monkeypatch.setattr("sysconfig.get_path", lambda kind: str(tmp_path))
    (tmp_path / "Python.h").touch()
    assert find("cuda").cannot_compile() == reason
    for name in ("indexed", "moba", "native_sparse"):
        card = registry.card(name)
        w = Workload(batch=1, seq_len=8192, width=1024, heads=16, device="cuda", causal=True)
        form = card.default_form(card.config(), w)
        assert form == ("blocked" if reason and name != "indexed" else "sdpa" if reason else "flex")
        assert card.refusal("flex", card.config(), w) == (reason or None)
        assert card.refusal(form, card.config(), w) is None
