"""What the command line asks of a sweep: its options, its folder, and where it runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.records import Cluster, Request, Shard, Sweep, storage
from attnbench.running.request.requests import fields_of_record, request, resumed_request


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """What the command line asks of a sweep, but for the request.

    `options` are the typed values of those that someone gave, by name; `before` are those that the
    fleet began with which goes on, if one does.
    """

    options: Mapping[str, Any]
    shard: Shard | None
    folder: Path
    resumes: bool
    before: Mapping[str, Any] | None = None

    @property
    def where(self) -> Cluster:
        """The cluster that measures, if any."""
        return Cluster(**fields_of_record(Cluster, self.options))


def request_of(invocation: Invocation, earlier: Sweep | None) -> Request:
    """The request of a new sweep, or an earlier sweep's with new limits.

    Raises `UsageError`, or `DifferentSweep` if an option asks for something else than before.
    """
    if invocation.before is not None:
        return request_of_fleet(invocation, invocation.before)
    if earlier is None:
        where = invocation.where
        divided = bool(invocation.shard or where.shards or where.on)
        # this machine need not have the cluster's device
        return request(invocation.options, divided=divided, elsewhere=where.on is not None)
    renewed_request = resumed_request(earlier.request, invocation.options)
    storage.refuse_other_request(earlier.name, earlier.request, renewed_request)
    return renewed_request


def request_of_fleet(invocation: Invocation, before: Mapping[str, Any]) -> Request:
    """The request of a fleet that goes on, which began with other options `before`.

    Shards that have begun take over new limits and nothing else; the others will begin with the
    options as they are now, which must then ask for the same. Raises `UsageError`, `StoreError`, or
    `DifferentSweep` if an option asks for something else than before.
    """
    folder = invocation.folder
    shards = range(1, fleets.read(folder).shards + 1)
    first = request(before, divided=True, elsewhere=True)
    new = resumed_request(first, invocation.options, elsewhere=True)
    if not all(storage.begun(fleets.shard_folder(folder, number)) for number in shards):
        new = request(invocation.options, divided=True, elsewhere=True)
    storage.refuse_other_request(str(folder), first, new, same_device=True)
    return new
