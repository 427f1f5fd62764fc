"""What is shown of a stored sweep or baseline that means harm, to the byte."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import asdict
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from attnbench.records import Workload
from tests.commands.check.repositories import Repository
from tests.doubles import command_line
from tests.inputs import hostile
from tests.report.test_html import KNOWN, Seen

FILES = re.compile(r"[a-z][a-z0-9_]*\.(csv|md|tex|html|png|svg|pdf|jsonl)")


def terminal(ended: CompletedProcess[str]) -> None:
    assert not command_line.COMMANDS.search(ended.stdout + ended.stderr)
    assert "Traceback" not in ended.stderr


def page(content: bytes) -> None:
    """No element, attribute or address of report.html is made by data."""
    seen = Seen(content.decode())
    assert seen.open == []
    assert set(seen.tags) <= KNOWN
    assert not [key for key, _ in seen.attributes if key.startswith("on") or key == "style"]
    links = [value for key, value in seen.attributes if key in ("href", "src")]
    assert all(link.startswith(("#", "data:image/", "data:,")) for link in links)
    assert not command_line.COMMANDS.search(content.decode())


def picture(content: bytes) -> None:
    """An SVG that runs, links and loads nothing."""
    for element in ET.fromstring(content).iter():
        assert element.tag.rpartition("}")[2] not in ("script", "a", "foreignObject", "iframe")
        for key, value in element.attrib.items():
            assert not key.lower().startswith("on")
            if key.endswith("href"):
                assert value.startswith(("#", "data:image/png;base64,"))


def markdown(content: bytes) -> None:
    """Every grid keeps its columns, and no text becomes markup."""
    text = content.decode()
    assert not command_line.COMMANDS.search(text)
    columns = None
    for line in text.partition("## How each predicate")[0].splitlines():
        if re.fullmatch(r"!\[(\w+)\]\(\1\.png\)", line):
            continue
        assert not re.search(r"(?<!\\)(\\\\)*[`*~$<]", line), line
        assert not re.search(r"(?<!\\)\](?=[(\[:])", line), line
        assert not re.search(r"(?<!\\)://|www\.", line), line
        bars = len(re.findall(r"(?<!\\)\|", line))
        if line.startswith("| "):
            columns = columns or bars
            assert bars == columns, line
        else:
            assert bars == 0
            assert not re.match(r"\s*(>|[+-]\s*[+-]|\d+[.)]\s|~~~|===|---)", line), line
            columns = None


# CSV and LaTeX have writers alone, which `tests/report/test_writers.py` asks
CHECKS = {".html": page, ".svg": picture, ".md": markdown}


def harmless(folder: Path) -> None:
    """Every file that was written."""
    for path in folder.iterdir():
        assert FILES.fullmatch(path.name), path.name
        if path.suffix in CHECKS:
            CHECKS[path.suffix](path.read_bytes())


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_no_stored_sweep_commands_what_shows_it(seed, tmp_path):
    """Every verb that reads sweeps over two of them, in folders that are named for harm."""
    place = tmp_path / "deep" / "er"
    one, two = place / "<b>|[x](y)\x1b[31m\u202e=1", place / "[bold]$x$\n"
    place.mkdir(parents=True)
    hostile.stored(one, seed)
    hostile.stored(two, seed)
    before = {path for path in tmp_path.rglob("*") if path.is_dir()}
    words = (
        (0, "report", one.name, "--formats", "png,svg"),
        (0, "report", two.name, "--json"),
        (2, "report", one.name, "--against", hostile.NASTY[7]),
        (0, "claims", one.name),
        (0, "recommend", one.name, "--length", str(hostile.SWEEPS[seed][1])),
        (0, "compare", one.name, two.name),
        (0, "compare", one.name, two.name, "--json"),
        (2, "sweep", "--models", "fastformer", "--resume", one.name, "--device", "cpu"),
    )
    for code, *arguments in words:
        ended = command_line.run(place, *arguments)
        assert ended.returncode == code, ended.stderr
        terminal(ended)
        assert "--json" not in arguments or json.loads(ended.stdout)
    assert {path for path in tmp_path.rglob("*") if path.is_dir()} == before
    assert {path.name for path in place.iterdir()} == {one.name, two.name}
    for folder in (one, two):
        assert (folder / "report.html").exists()
        harmless(folder)


@pytest.mark.parametrize("path", ["../evil.py", "{tmp}/evil.py", "a/../../evil.py", "\0.py"])
def test_a_baseline_runs_no_file_from_outside_of_the_repository(path, tmp_path):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nCARD = None\n")
    repository = Repository(tmp_path / "repository")
    name = path.format(tmp=tmp_path).removesuffix(".py") + ".py:CARD"
    workload = Workload(batch=8, seq_len=16)
    case = {f"{name}:eager/{workload}": {"workload": asdict(workload), "counts": {}}}
    kept = {"schema": 3, "torch": "", "cases": case}
    (repository.folder / "kept.json").write_text(json.dumps(kept))
    ended = command_line.run(repository.folder, "check", "--baseline", "kept.json")
    assert ended.returncode == 2
    assert "outside the repository" in ended.stderr or "no file" in ended.stderr
    assert len(ended.stderr.splitlines()) == 2  # what is done, and why it is not
    terminal(ended)
    assert not (tmp_path / "ran").exists()
