"""Energy of the processor's packages, as it counts them itself (RAPL), from Linux's files.

It covers all cores, whatever runs on them, but no memory outside the packages.
"""

from pathlib import Path

from attnbench.devices.cgroups import read
from attnbench.devices.protocol import Unavailable

POWERCAP = Path("/sys/class/powercap")


class Packages:
    """The counters of all packages; each wraps around at the end of its range."""

    def __init__(self, powercap: Path = POWERCAP) -> None:
        zones = sorted(powercap.glob("intel-rapl:*"))  # AMD's too
        self.zones = [zone for zone in zones if read(zone, "name").startswith("package")]
        self.last: dict[Path, int] = {}
        self.microjoules = 0

    def joules(self) -> float:
        """Energy that they have used since the first call. Raises `Unavailable`."""
        if not self.zones:
            raise Unavailable("this system has no counters of the processor's energy (RAPL)")
        for zone in self.zones:
            try:
                now = int((zone / "energy_uj").read_text())
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                raise Unavailable(f"{zone / 'energy_uj'} cannot be read: {why}") from error
            more = now - self.last.get(zone, now)
            turn = int(read(zone, "max_energy_range_uj") or 0)
            self.microjoules += more if more >= 0 else more + turn
            self.last[zone] = now
        return self.microjoules / 1e6
