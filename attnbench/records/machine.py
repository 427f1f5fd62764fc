"""The machine and versions that a sweep ran on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from attnbench.records.bounds import Amount, Count, Load, Share, Size

OTHERS = "other processes"  # the note on those that used the GPU when a session began
LOST = "system"  # the note on what measuring loses, as this system does not offer what Linux does


# what must agree between two machines for their times to be compared
FINGERPRINT = ("processor", "cores", "threads", "torch", "device")


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The machine and versions that a session of a sweep ran on."""

    attnbench: str
    python: str
    torch: str
    system: str
    processor: str
    cores: Size  # available to the process
    threads: Size
    memory_bytes: Count  # available to the process
    device: str  # "cpu" or the name of the GPU
    host: str = ""
    device_uuid: str = ""  # of a GPU
    device_memory_bytes: Count | None = None
    cuda: str = ""
    driver: str = ""
    tf32: bool = False
    matmul_flops: Amount | None = None  # measured peak, FLOP/s
    copy_bytes: Amount | None = None  # measured peak, bytes/s
    peaks: Mapping[str, Amount] = field(default_factory=dict)  # FLOP/s by number type
    load: Load | None = None  # one-minute load average when it started
    # of the time that a process asked for to compute when it started, what it got beside others
    share: Share | None = None
    # cores' worth of CPU time that a container or service allows, where that stopped the process
    quota_cores: Amount | None = None
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> tuple[tuple[str, str | int], ...]:
        """Name and value of all that must agree for times to be compared."""
        return tuple((name, getattr(self, name)) for name in FINGERPRINT)
