"""Who is cheapest at which length: one page of two stored sweeps, of passes and of decoding.

    python -m tests.benchmarks.map PASSES DECODING > PASSES/README.md

Every mechanism stands in the same layer, in its fastest exact form. Numbers are ratios to the
Transformer's fused kernel at the same length: of times from pairs of laps where the two took turns,
else from independent times; of memory and states exact; slanted ones are predicted. In rows with →
no token sees later ones, as tokens of other rows do. “From” means from this length on, as far as
both were measured, and “all” every length at which both were; a length between two measured ones is
interpolated, and its brackets are measured. “–” was not measured, or is not shown to be either.
"""

import argparse
import os
from pathlib import Path

from attnbench.analysis.conclusions import Answer, Question
from attnbench.analysis.report import analyse
from attnbench.records import units
from attnbench.records.metrics import MEMORY, STATE
from attnbench.records.storage.journal import load
from attnbench.report.maps import CAUSAL, causal_series
from attnbench.report.page import captions
from attnbench.report.phrases import faster_at
from attnbench.report.styles import labels

BASE = "transformer"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("passes", type=Path, help="Folder of the sweep of training and inference.")
    parser.add_argument("decode", type=Path, help="Folder of the sweep of decoding.")
    asked = parser.parse_args()
    folders = {"passes": asked.passes, "decode": asked.decode}
    analyses = {name: analyse(load(folder), BASE) for name, folder in folders.items()}
    print(f"# The map of {units.many(len(mechanisms(analyses['passes'])), 'mechanism')}\n")
    print(machine(analyses["passes"]))
    print("\n".join(__doc__.strip().split("\n\n")[2:]), "\n")
    for name, analysis in analyses.items():
        beside = Path(os.path.relpath(folders[name], asked.passes))
        for stem, caption in captions(analysis).items():
            if stem.startswith("map"):
                print(f"![{caption}]({beside / stem}.png)\n\n*{caption}*\n")
    print("## The fastest at each length\n")
    for analysis in analyses.values():
        for mode in analysis.modes:
            print(f"- In {mode}: {fastest(analysis, mode)}.")
    print("\n## From where each is faster than the Transformer's fused kernel\n")
    print(table(*analyses.values()))


def mechanisms(analysis):
    return {*analysis.cases["mechanism"]}


def machine(analysis):
    """The machine and the versions, of every session."""
    sessions = analysis.sweep.sessions
    texts = dict.fromkeys(
        f"{s.processor}, torch {s.torch}, attnbench {s.attnbench}" for s in sessions
    )
    return f"One thread of {'; '.join(texts)}.\n"


def fastest(analysis, mode):
    """`Fastformer at 128 to 512; Linformer and Fastformer tie at 2,048 (of 40 measured)`."""
    names = labels(analysis.cases["series"], analysis.suspects)
    lengths = {}
    for one in analysis.about(Question.FASTEST, mode):
        if one.answer not in (Answer.WINNER, Answer.TIE):
            continue
        *others, last = (names[name] for name in one.best)
        best = f"{', '.join(others)} and {last}" if others else last
        tie = " tie" if one.answer is Answer.TIE else ""
        lengths.setdefault((f"{best}{tie}", one.measured), []).extend(one.scope.lengths)
    texts = [
        f"{best} at {', '.join(map(units.count, at))} (of {measured} measured)"
        for (best, measured), at in lengths.items()
    ]
    return "; ".join(texts) or "not known"


def table(passes, decode):
    """A row for each series: from where it is faster, its peaks, and its state."""
    names = labels(passes.cases["series"], passes.suspects)
    length, context = longest(passes, MEMORY), longest(decode, STATE)
    heads = [
        "Mechanism",
        *(f"{mode}" for mode in (*passes.modes, *decode.modes)),
        *(f"peak in {mode} at {units.count(length)}, MiB" for mode in passes.modes),
        f"state at {units.count(context)}, MiB",
    ]
    words = 1 + len(passes.modes) + len(decode.modes)
    numbers = len(heads) - words
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * words}{'---:|' * numbers}"]
    causal = causal_series(passes, passes.modes)
    decoded = dict(zip(decode.cases["mechanism"], decode.cases["series"], strict=True))
    for name in sorted(names, key=names.get):
        mechanism = passes.cases.loc[passes.cases["series"] == name, "mechanism"].iloc[0]
        cells = [
            f"{names[name]} {CAUSAL}" if name in causal else names[name],
            *(where(passes, mode, name) for mode in passes.modes),
            *(where(decode, mode, decoded.get(mechanism)) for mode in decode.modes),
            *(mebibytes(passes, mode, name, length, MEMORY) for mode in passes.modes),
            mebibytes(decode, decode.modes[0], decoded.get(mechanism), context, STATE),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def where(analysis, mode, series):
    """At which lengths a series is faster than the Transformer, as measured."""
    bases = analysis.baselines_by_mode[mode]
    if series is None:
        return units.NOTHING
    if series in bases:
        return "compared with"
    found = analysis.about(Question.FASTER_FROM, mode, series, bases)
    return faster_at(found[0]).text if found else units.NOTHING


def longest(analysis, metric):
    """The longest length at which most series have a value."""
    cases = analysis.cases[analysis.cases[metric].notna()]
    counts = cases.groupby("seq_len")["series"].nunique()
    return int(counts[counts > counts.max() / 2].index.max())


def mebibytes(analysis, mode, series, length, metric):
    cases = analysis.cases
    row = cases[
        (cases["mode"] == mode) & (cases["series"] == series) & (cases["seq_len"] == length)
    ]
    values = row[metric].dropna()
    return units.plain(values.iloc[0] / units.MIB) if len(values) else units.NOTHING


if __name__ == "__main__":
    main()
