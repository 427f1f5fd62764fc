"""A process that writes the runs a sweep still lacks, to be killed, starved or contested.

writer.py FOLDER ROUNDS [wait | limit BYTES]
"""

import resource
import sys

from attnbench.errors import StoreError
from attnbench.records import Outcome, Part, Run
from attnbench.store.resuming import done
from attnbench.store.schema import EndReason
from tests.store.recorded import SWEEP, opened


def main(folder: str, rounds: str, how: str = "", limit: str = "") -> None:
    if how == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    case = SWEEP.plan[0]
    with opened(folder) as journal:
        journal.append(case)
        for number in range(int(rounds)):
            if number in {run.round for run in done(journal.sweep)}:
                continue
            # lines of many pages, so that a kill can fall into the middle of one
            journal.append(
                Run(
                    case=case.case.key,
                    part=Part.TIME,
                    round=number,
                    outcome=Outcome.OK,
                    notes={"long": "x" * 30_000},
                    elapsed_s=1.0,
                )
            )
            print(number, flush=True)
        if how == "wait":
            sys.stdin.read()
        journal.end(EndReason.FINISHED)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except StoreError as error:
        print(error)
