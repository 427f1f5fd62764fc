"""What cards declare is read once, and again when anything that it follows from has changed."""

import os

import pytest

from attnbench.devices.finding import find
from attnbench.errors import StoreError
from attnbench.store import cache
from attnbench.workloads import card_cache
from attnbench.workloads.reading import Described

CPU = find("cpu")


class Reader:
    """Counts what it is asked for; every answer is new."""

    def __init__(self, *files):
        self.asked, self.files = [], files

    def __call__(self, names):
        self.asked.append(names)
        sources = {str(file): cache.file_digest(file) for file in self.files}
        return [Described({"name": name, "read": len(self.asked)}, sources) for name in names]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "attnbench" / card_cache.KIND


def read(reader, *names, device=CPU):
    return [row["read"] for row in card_cache.cached_rows(names, device, reader)]


def test_each_mechanism_is_read_once():
    reader = Reader()
    assert read(reader, "linformer", "fastformer") == [1, 1]
    assert read(reader, "fastformer", "linformer") == [1, 1]
    assert read(reader, "fastformer", "fnet", "linformer") == [1, 2, 1]
    assert reader.asked == [["linformer", "fastformer"], ["fnet"]]


def test_what_it_follows_from_is_in_the_name_of_an_entry(monkeypatch):
    reader = Reader()
    read(reader, "fastformer")
    monkeypatch.setattr(card_cache, "version", lambda package: "9.9")
    assert read(reader, "fastformer") == [2]
    monkeypatch.setattr(card_cache, "installations", lambda: {"site-packages": 1})
    assert read(reader, "fastformer") == [3]
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert read(reader, "fastformer") == [4]
    digests = iter(range(1000))
    monkeypatch.setattr(cache, "file_digest", lambda file: str(next(digests)))
    assert read(reader, "fastformer") == [5]


def test_a_users_file_is_read_again_when_its_content_has_changed(tmp_path, monkeypatch):
    file, other = tmp_path / "mine.py", tmp_path / "beside.py"
    file.write_text("a")
    other.write_text("b")
    reader, name = Reader(file, other), f"{file}:Mine"
    assert read(reader, name) == read(reader, name) == [1]
    os.utime(file)
    assert read(reader, name) == [1]
    other.write_text("c")
    assert read(reader, name) == read(reader, name) == [2]
    other.unlink()
    reader.files = (file,)
    assert read(reader, name) == [3]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for place, times in ((tmp_path, [4]), (elsewhere, [5])):
        monkeypatch.chdir(place)
        assert read(reader, "mine.py:Mine") == times


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b'{"data": 1, "digest": 2}', b"\xff{"])
def test_a_damaged_entry_is_read_again(damage, folder):
    reader = Reader()
    read(reader, "fastformer")
    (entry,) = folder.iterdir()
    good = entry.read_bytes()
    for content in (damage, good[:-9], good.replace(b"fastformer", b"fastfarmer")):
        entry.write_bytes(content)
        before = len(reader.asked)
        assert read(reader, "fastformer") == read(reader, "fastformer") == [before + 1]


def test_a_folder_that_cannot_be_written_does_no_harm(folder):
    folder.parent.mkdir(parents=True)
    folder.write_text("a file in its place")
    reader = Reader()
    assert read(reader, "fastformer") == [1]
    assert read(reader, "fastformer") == [2]


def test_the_cache_stays_bounded(folder):
    for i in range(6):
        cache.keep(card_cache.KIND, f"{i}", {"number": i})
        os.utime(folder / f"{i}.json", (i, i))
    cache.forget_oldest(card_cache.KIND, most=2)
    assert {file.name for file in folder.iterdir()} == {"4.json", "5.json"}
    assert cache.recall(card_cache.KIND, "5") == {"number": 5}


def test_without_a_home_nothing_is_remembered(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user of no account
    assert read(Reader(), "fastformer") == [1]
    cache.forget_oldest(card_cache.KIND)
    assert cache.recall(card_cache.KIND, "x") is None
    with pytest.raises(StoreError, match="there is no home folder; set XDG_CACHE_HOME"):
        cache.keep(card_cache.KIND, "x", {})


def test_a_relative_cache_home_is_ignored(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(cache.folder()) == "/home/somebody/.cache/attnbench"


def test_the_files_beside_a_users_file_are_its_sources(tmp_path):
    from attnbench.workloads.reader import CardReader

    (tmp_path / "mine.py").write_text(
        "import json, sibling_of_mine\n"
        "from torch import nn\n"
        "class Mine(nn.Module):\n"
        "    def __init__(self, width, heads):\n"
        "        super().__init__()\n"
        "        self.map = nn.Linear(width, width)\n"
        "    def forward(self, x):\n"
        "        return self.map(x)\n"
    )
    (tmp_path / "sibling_of_mine.py").write_text("")
    name = f"{tmp_path / 'mine.py'}:Mine"
    answer = CardReader(None).answer("describe", names=[name], device="cpu")
    (found,) = answer["sources"]
    assert set(found) == {str(tmp_path / "mine.py"), str(tmp_path / "sibling_of_mine.py")}
    own = CardReader(None).answer("describe", names=["linformer"], device="cpu")
    assert own["sources"] == [{}]
