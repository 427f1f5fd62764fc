"""The journal of a sweep: written, read, resumed, merged; and temporary folders.

Journal, load, begun     the journal of a folder; `Start` opens one, `EndReason` closes it
load_results             what a report needs of a journal, or of several machines' shards
merge                    the shards of a sweep, as one
resuming                 what must not differ where a sweep goes on
output                   files beside the journal, each written whole or not at all
LockedFile               a file that one process at a time has
TemporaryFolder          a folder that ends with its process
"""

from attnbench.records.storage import output
from attnbench.records.storage.journal import Journal, begun, load, load_results
from attnbench.records.storage.locked import LockedFile
from attnbench.records.storage.merging import merge
from attnbench.records.storage.resuming import (
    completed_runs,
    has_smaller_limits,
    machine_differences,
    refuse_other_request,
)
from attnbench.records.storage.schema import EndReason, Start, read_run
from attnbench.records.storage.temporary import TemporaryFolder

__all__ = (
    "EndReason",
    "Journal",
    "LockedFile",
    "Start",
    "TemporaryFolder",
    "begun",
    "completed_runs",
    "has_smaller_limits",
    "load",
    "load_results",
    "machine_differences",
    "merge",
    "output",
    "read_run",
    "refuse_other_request",
)
