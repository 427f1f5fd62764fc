"""A notebook that measures a sweep and shows it, run by a kernel."""

import pytest

from tests.commands.test_notebook import SMALL

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

CELLS = (
    "import attnbench, sys\nsorted({'torch', 'pandas', 'matplotlib'} & set(sys.modules))",
    f"seen = []; sweep = attnbench.sweep(**{SMALL}, out='measured', progress=seen.append)",
    "sweep",
    "sweep.plot()",
    "sweep.ratios('transformer')",
    "attnbench.load('measured')",
    "'torch' in sys.modules, seen[0].done, seen[-1].done, list(set(sweep.cases.outcome))",
)


@pytest.mark.long  # what the cells call is tested in `test_notebook.py`
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_a_sweep_measured_in_a_notebook_shows_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    how = {"kernel_name": "python3", "resources": {"metadata": {"path": str(tmp_path)}}}
    nbclient.NotebookClient(notebook, timeout=300, **how).execute()
    outputs = [cell.outputs for cell in notebook.cells]
    assert not [o for found in outputs for o in found if o.output_type == "stream"], "it printed"
    data = [found[0].data if found else None for found in outputs]
    assert data[0]["text/plain"] == "[]"
    assert data[1] is None
    for shown in (data[2], data[5]):
        assert "Fastformer" in shown["text/markdown"]
        assert "4 of 4 cases measured" in shown["text/plain"]
    assert data[3]["image/svg+xml"].lstrip().startswith("<?xml")
    assert "fastformer" in data[4]["text/html"]
    assert data[6]["text/plain"] == "(False, 0, 4, ['ok'])"
