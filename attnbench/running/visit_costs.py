"""What a visit to a case takes: warm-up, laps and the rest, by what is known of its costs."""

from attnbench.analysis.costs import CostKind, Costs, Rates
from attnbench.devices import find
from attnbench.records import Clock, Planned, Request, Run, Settings
from attnbench.running.race import turns

ENERGY_S = 4.0  # further seconds of a visit that also measures energy
MOST_WARM_UPS = 10  # iterations after the first one


class VisitCosts:
    """Seconds of the visits to the cases of a plan, by the costs of the cases.

    A prediction is kept until something is learnt: a plan is gone through before every visit.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.cached_s: dict[tuple[str, float, bool], float] = {}  # by what it depends on

    def learn(self, planned: Planned, run: Run) -> None:
        """Take a run of a case into account."""
        self.costs.learn(planned, run)
        self.cached_s.clear()

    def seconds(self, planned: Planned, settings: Settings, examined: bool = False) -> float:
        """Seconds of one visit to a case, in which odd behaviour is looked for if `examined`."""
        key = (planned.case.key, settings.sample_s, examined)
        if key not in self.cached_s:
            wall_s = self.costs.wall_s(planned)
            # as many laps as CPU time asks for
            by_cpu = settings.clock is Clock.CPU
            lap_s = self.costs.iteration_s(planned) if by_cpu else wall_s
            self.cached_s[key] = self.seconds_by(planned, settings, wall_s, lap_s, examined)
        return self.cached_s[key]

    def seconds_of_measured(
        self, planned: Planned, settings: Settings, wall_s: float, examined: bool
    ) -> float:
        """Seconds of the visit under way to a case, an iteration of which took `wall_s`.

        planned:  the case
        settings: how long warm-up and samples are to be, and whether energy is measured
        wall_s:   seconds that an iteration occupies its process
        examined: whether odd behaviour is looked for
        """
        return self.seconds_by(planned, settings, wall_s, wall_s, examined)

    def seconds_by(
        self, planned: Planned, settings: Settings, wall_s: float, lap_s: float, examined: bool
    ) -> float:
        """Seconds of one visit to a case.

        planned:  the case
        settings: how long warm-up and samples are to be, and whether energy is measured
        wall_s:   seconds that an iteration occupies its process
        lap_s:    seconds of an iteration by the clock that decides how many there are
        examined: whether odd behaviour is looked for
        """
        further_warm_ups = settings.warmup_s / max(lap_s, 1e-9) - 1
        warm_ups = 1 + min(max(0.0, further_warm_ups), MOST_WARM_UPS)
        iterations_s = wall_s * (warm_ups + turns(lap_s, settings).total)
        besides_s = self.costs.predicted(CostKind.TIMING, planned)
        besides_s += self.costs.examination_s(planned) if examined else 0.0
        return besides_s + ENERGY_S * settings.energy + iterations_s

    def laps_s(self, planned: Planned, settings: Settings) -> float:
        """Seconds of the laps of one visit to a case."""
        wall_s = self.costs.wall_s(planned)
        lap_s = self.costs.iteration_s(planned) if settings.clock is Clock.CPU else wall_s
        return wall_s * turns(lap_s, settings).total


def assumed_rates(request: Request) -> Rates:
    """The peak rates of the kind of device, before those of the machine are measured."""
    device = find(request.device)
    return device.flops_per_s(request.settings.threads), device.bytes_per_s
