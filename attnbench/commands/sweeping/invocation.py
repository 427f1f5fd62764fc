"""What the command line asks of a sweep: its options, its folder, and where it runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnbench.records import Cluster, Request, Shard, Sweep, storage
from attnbench.running.request.requests import fields_of_record, request, resumed_request


@dataclass(frozen=True, kw_only=True)
class Invocation:
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
        return Cluster(**fields_of_record(Cluster, self.options))


def request_of(invocation: Invocation, earlier: Sweep | None) -> Request:
    """The request of a new sweep, or an earlier sweep's with new limits.

    Raises `UsageError`, or `DifferentSweep` if an option asks for something else than before.
    """
    if earlier is None:
        where = invocation.where
        divided = bool(invocation.shard or where.shards or where.on)
        # this machine need not have the cluster's device
        return request(invocation.options, divided=divided, elsewhere=where.on is not None)
    renewed_request = resumed_request(earlier.request, invocation.options)
    storage.refuse_other_request(earlier, renewed_request)
    return renewed_request
