"""`sweep`: arguments beside options."""

from tests.commands.commands import refused
from tests.doubles import command_line


def test_arguments_of_a_sweep_are_measured_beside_its_models(tmp_path):
    (tmp_path / "mine.py").write_text("def local(q, k, v):\n    return v\n")
    words = ("--models", "fnet", "--lengths", "16", "--mode", "inference", "--dry-run")
    done = command_line.run(tmp_path, "sweep", "mine.py", *words)
    rows = [line.split()[0] for line in done.stdout.splitlines() if " inference " in line]
    assert [row for row in rows if ":" in row] == ["mine.py:local:eager", "fnet:half"]


def test_a_folder_to_resume_that_is_empty_is_refused():
    said = refused("sweep", "--models", "fastformer", "--dry-run", "--resume", "")
    assert "--resume is empty; write the folder of a sweep, or leave it out" in said
