"""Finds a device by its name, or chooses the one that is present.

A kind of device is one file in `devices/kinds/` with one class, both named as users name it:
`--device cuda:1` is `Cuda("cuda:1")` from `cuda.py`. To add a device, add such a file; nothing else
has to be edited.
"""

import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path

from attnbench.devices.protocol import Device
from attnbench.errors import CannotRun, UsageError

AUTO = "auto"  # the present device with the highest preference


@cache
def kinds() -> tuple[str, ...]:
    """The kinds of device that this package knows, sorted; imports none of them."""
    folder = Path(__file__).parent / "kinds"
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(folder)])))


def find(name: str) -> Device:
    """The device with a name such as `cuda:1`, present or not. Raises `UsageError`."""
    kind = name.partition(":")[0]
    if kind not in kinds() or not re.fullmatch(r"\w+(:(0|[1-9][0-9]{,2}))?", name):
        known = ", ".join(kinds())
        raise UsageError(f"--device {name!r} is not auto, {known}, or numbered such as cuda:1")
    module = importlib.import_module(f"attnbench.devices.kinds.{kind}")
    device: Device = getattr(module, kind.capitalize())(name)
    return device


def choose(name: str) -> Device:
    """A present device, by name or `auto`. Raises `UsageError` or `CannotRun`."""
    if name == AUTO:
        present = [device for device in map(find, kinds()) if not device.missing()]
        return max(present, key=lambda device: device.preference)
    device = find(name)
    if reason := device.missing():
        raise CannotRun(f"--device {name}: {reason}; try --device auto")
    return device
