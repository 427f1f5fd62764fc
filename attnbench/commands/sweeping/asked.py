"""What the command line asks of a sweep: its options, its folder, and where it runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnbench.records import Cluster, Request, Shard, Sweep
from attnbench.records.storage.resuming import defining, refuse_differences
from attnbench.running.request.requests import of_record, request, resumed


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line asks of a sweep, but for the request.

    `options` are the typed values of those that someone gave, by name.
    """

    options: Mapping[str, Any]
    shard: Shard | None
    folder: Path
    resumes: bool

    @property
    def where(self) -> Cluster:
        """The cluster that measures, if any."""
        return Cluster(**of_record(Cluster, self.options))


def request_of(asked: Asked, earlier: Sweep | None) -> Request:
    """The request of a new sweep, or an earlier sweep's with new limits.

    Raises `UsageError`, or `DifferentSweep` if an option asks for something else than before.
    """
    if earlier is None:
        where = asked.where
        divided = bool(asked.shard or where.shards or where.on)
        # this machine need not have the cluster's device
        return request(asked.options, divided=divided, elsewhere=where.on is not None)
    again = resumed(earlier.request, asked.options)
    refuse_differences(earlier, defining(earlier.request), defining(again))
    return again
