"""What of a sweep's time laps took: `python -m tests.benchmarks.laps FOLDER…`.

The seconds of all samples, of whole runs that timed cases, and of measuring memory, each over the
time from the first to the last line of each session in the journal. What runs beside other things
counts in full, so that shares may add up to more than one.
"""

import sys
from datetime import datetime
from pathlib import Path

from attnbench.records import Part
from attnbench.records.storage import journal, schema


def elapsed_s(folder):
    """Seconds of all sessions of a sweep, each from its first line to its last one."""
    entries = [schema.unseal(line) for line in Path(folder, journal.FILE).read_bytes().splitlines()]
    sessions = []
    for entry in entries:
        at = datetime.fromisoformat(entry.at)
        if entry.kind == "session":
            sessions.append([at, at])
        elif sessions:
            sessions[-1][1] = at
    return sum((ended - begun).total_seconds() for begun, ended in sessions)


def shares(folder):
    """Seconds of the sweep in a folder, and those of its laps, its timed runs and its memory."""
    runs = journal.load(folder).runs
    laps_s = sum(sample.wall_s for run in runs for sample in run.samples)
    timed_s, memory_s = (
        sum(run.elapsed_s for run in runs if run.part is part) for part in (Part.TIME, Part.MEMORY)
    )
    return elapsed_s(folder), laps_s, timed_s, memory_s


def main(folders):
    """Print a line for each folder."""
    for folder in folders:
        whole_s, laps_s, timed_s, memory_s = shares(folder)
        print(
            f"{folder}: {whole_s:.0f} s, of which laps {laps_s / whole_s:.0%},"
            f" visits {timed_s / whole_s:.0%}, memory {memory_s / whole_s:.0%}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
