"""The records that all wings share: frozen, JSON-serialisable, independent of all other wings.

Sizes, the same letters everywhere:

    B  batch, sequences            N  length, tokens of one sequence
    D  width of the model          H  heads
    d  width of one head, D / H    c  tokens of a batch, B · N

Times are in seconds and memory in bytes; only `units` knows milliseconds and MiB.
"""

from attnbench.records.bounds import (
    COUNTABLE,
    ITEM_BYTES,
    LONGEST_S,
    SHORT_DTYPES,
    Amount,
    Count,
    Duration,
    Many,
    Option,
    Work,
)
from attnbench.records.card import UNDECLARED, CardFacts, Causality, Family
from attnbench.records.case import Case, Level, Shell, Workload, canonical
from attnbench.records.kernel import (
    AGREES,
    GRADIENT,
    TRIED,
    USUAL_INPUTS,
    Aspect,
    Attempt,
    Kernel,
    KernelFinding,
    PanelRow,
)
from attnbench.records.machine import LOST, OTHERS, Environment
from attnbench.records.modes import PASSES, Mode
from attnbench.records.request import (
    LEAST_ROUNDS,
    Cluster,
    EngineKind,
    HelpPanel,
    Request,
    Settings,
    Sizes,
)
from attnbench.records.run import (
    AWAY,
    MISSING,
    REHEARSED_S,
    SPLIT,
    Cause,
    Clock,
    Disturbance,
    Origin,
    Outcome,
    Part,
    Run,
    Sample,
    Shard,
)
from attnbench.records.selection import Selection, options_text
from attnbench.records.series import SIZES, Name, Series, size_text
from attnbench.records.sweep import Block, Planned, Sweep
