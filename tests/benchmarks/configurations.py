"""What `attnbench bytes` says of public configurations, beside what others say of them.

    python -m tests.benchmarks.configurations > reports/configurations.md

The files are those of `data/hf` of BrendanJamesLynskey/llm-architectures-explained (commit
203a8742; Llama 4 of 7b02ec63), each pinned to a revision of the Hugging Face Hub: 134, of which 12
hold no configuration, as their publishers ask for consent or have none. Kept under
`tests/data/public_configurations.jsonl` are the fields that matter, the numbers of the checkpoint,
and how that project reads the layers (`public/data/specs.json`); the formulas by which it counts
bytes of a reading are written anew, and give its fixtures. Bytes are those of bfloat16, in the
project's reading with two conventions: a window holds the query itself, which no cache keeps, and
recurrent states are of float32. Once: what windows and states hold, once full.

*As read* stands where the project's reading gives the same bytes; a difference has its reason below
the table. Parameters are of the text model, as the classes of transformers have them; *more* is
what the checkpoint holds beside them. A dash: the weights of that type are not counted here.

Nothing was fetched: files, pages, reports and sources of calculators were read in stored copies.
"""

import tempfile
from pathlib import Path

from tests.benchmarks.header import begin
from tests.commands.model.configurations_stated import CALCULATORS, LLAMA_3, REPORTS, STATED, hybrid
from tests.commands.model.published import (
    DIFFERENCES,
    Answer,
    answered,
    corrections,
    expected,
    read,
    reasons,
    stored,
)

COMMAND = "python -m tests.benchmarks.configurations > reports/configurations.md"


def main() -> None:
    """Print the page."""
    begin("Public configurations", __doc__, COMMAND, "transformers")
    with tempfile.TemporaryDirectory() as folder:
        files = stored()
        said = {each["repo"]: answered(each["config"], Path(folder)) for each in files}
        more = {name: answered(values, Path(folder)) for name, values in LLAMA_3.items()}
        more["tiiuae/Falcon-H1-1.5B"] = answered(hybrid(), Path(folder))
    _summary(files, said)
    _table(files, said)
    _refused(said)
    _reports(said | more)
    _stated(said | more)
    _calculators({each["repo"]: each["config"] for each in files} | LLAMA_3, said | more)


def _summary(files: list, said: dict[str, Answer]) -> None:
    refused = sum(bool(one.refused) for one in said.values())
    alike = [each for each in files if _alike(each, said[each["repo"]])]
    counted = [
        (each, said[each["repo"]])
        for each in files
        if said[each["repo"]].counted and each["parameters"]
    ]
    same = sum(sum(each["parameters"].values()) == one.counted for each, one in counted)
    routers = sum(
        sum(each["parameters"].values()) - one.counted == corrections(each["config"]) > 0
        for each, one in counted
    )
    print(
        f"Of {len(files)} files {len(files) - refused} are read ({len(_kinds(said))} types) and"
        f" {refused} refused, with the name of a field. {len(alike)} are as the project reads"
        f" them, {len(DIFFERENCES)} differ for a reason that is named, and none does without one."
        f" Parameters are"
        f" counted of {len(counted)} whose checkpoints are known: {same} equal to the number,"
        f" {routers} but for the corrections of their routers, the rest for reasons named.\n"
    )


def _kinds(said: dict[str, Answer]) -> set[str]:
    return {one.kind for one in said.values() if not one.refused}


def _alike(each: dict, said: Answer) -> bool:
    reading = read(each["reading"]) if each["reading"] else None
    return reading is not None and (said.per_token, said.once) == expected(reading)


def _table(files: list, said: dict[str, Answer]) -> None:
    print("| model | type | bytes per token | once | reading | parameters | more |")
    print("|---|---|---:|---:|---|---:|---|")
    notes: dict[str, int] = {}
    for each in files:
        one = said[each["repo"]]
        if one.refused:
            continue
        reading = "as read"
        if not _alike(each, one):
            why = DIFFERENCES[each["repo"]][2]
            reading = f"({notes.setdefault(why, len(notes) + 1)})"
        counted = f"{one.counted:,}" if one.counted else "–"
        print(
            f"| {each['repo']} | {one.kind} | {one.per_token:,.0f} | {one.once:,} | {reading}"
            f" | {counted} | {_more(each, one)} |"
        )
    print()
    for why, number in notes.items():
        print(f"({number}) {why}.  ")
    print()


def _more(each: dict, one: Answer) -> str:
    if not one.counted or not each["parameters"]:
        return ""
    more = sum(each["parameters"].values()) - one.counted
    if not more:
        return "0"
    why = list(reasons(each["config"], one)) or ["corrections of routers"]
    return f"{more:,}: {', '.join(why)}"


def _refused(said: dict[str, Answer]) -> None:
    print("## Refused\n\n| model | what is said |\n|---|---|")
    for repo, one in said.items():
        if one.refused:
            print(f"| {repo} | {one.refused.partition(', a list of')[0]} |")
    print()


def _reports(said: dict[str, Answer]) -> None:
    print("## Parameters that publishers state\n")
    print("In thousands of millions: all, and those that one token passes through. `bytes` counts")
    print("the whole embedding among the latter.\n")
    print("| model | stated | counted | active, stated | active, counted | source |")
    print("|---|---:|---:|---:|---:|---|")
    for one in REPORTS:
        found = said[one.repo]
        print(
            f"| {one.repo} | {one.total:g} | {found.counted / 1e9:.2f} |"
            f" {one.active or '–'} | {_active(one, found)} | {one.source} |"
        )
    print()


def _active(one, found: Answer) -> str:
    if not one.active:
        return f"{found.active / 1e9:.2f}"
    without = (found.active - one.tables * found.embedding) / 1e9
    names = {0: "", 1: " without the embedding", 2: " without embedding and head"}
    return f"{without:.2f}{names[one.tables]}"


def _stated(said: dict[str, Answer]) -> None:
    print("## Bytes that others state or log\n")
    print("| model | stated | by `bytes` | difference | source |\n|---|---|---|---|---|")
    for one in STATED:
        found = said[one.repo]
        ours = one.ours(found.per_token, found.once)
        print(f"| {one.repo} | {one.stated} {one.unit} | {ours:,.6g} | {one.why} | {one.source} |")
    print()


def _calculators(configs: dict, said: dict[str, Answer]) -> None:
    print("## Three public calculators\n")
    print("Bytes per token of 2-byte numbers by their formulas, written anew.\n")
    names = ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-32B", "deepseek-ai/DeepSeek-V3")
    print(f"| calculator | {' | '.join(names)} | why it differs |")
    print("|---|" + "---:|" * len(names) + "---|")
    ours = " | ".join(f"{said[name].per_token:,.0f}" for name in names)
    print(f"| `attnbench bytes` | {ours} | |")
    for one in CALCULATORS:
        found = " | ".join(f"{one.per_token(configs[name]):,.0f}" for name in names)
        print(f"| {one.source} | {found} | {one.why} |")
    print()


if __name__ == "__main__":
    main()
