"""Branches of a small repository, and how the gate must end on each: a table for its test.

`base` is what main has when the branch leaves it, `head` what the branch changes, `main` what main
changes afterwards. Files of `ignored` are in the working tree alone, and git ignores them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

LIGHT = "def index():\n    return sum(range(2_000))\n"
HEAVY = "def index():\n    return sum(range(20_000)) - sum(range(2_000, 20_000))\n"
BROKEN = "def index():\n    raise ValueError('it broke')\n"
OTHER = "def other():\n    return sum(range(2_000))\n"
VERSIONED = "from shop._version import NUMBER\n" + LIGHT
FALLS_BACK = (
    "try:\n    from shop._version import NUMBER\nexcept ImportError:\n    NUMBER = 0\n" + LIGHT
)
BUILT = {"shop/_version.py": "NUMBER = 1\n"}
BOTH = "shop.code:index,shop.code:other"
SHOP = {"shop/__init__.py": "", "shop/code.py": LIGHT + OTHER, ".gitignore": "_version.py\n"}
ENLARGED = "from shop.code import index\n\n\ndef run():\n    for _ in range({}):\n        index()\n"
GONE = "\n\ndef gone():\n    return index()\n"
BROKEN_CORE = "raise ValueError('base has its own core')\n"
USES_CORE = "import core\n\n\ndef index():\n    return core.index()\n"


@dataclass(frozen=True, kw_only=True)
class Branch:
    """One branch, the function that is named, and how a check must end.

    `code` is the exit code, `strict` that under `--strict` where it is certain, `compared` how many
    cases were compared; `words` must be in the headline or the notes. It is `timed` if the verdict
    rests on times.
    """

    base: Mapping[str, str] = field(default_factory=dict)
    head: Mapping[str, str | None] = field(default_factory=dict)
    main: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)
    call: str = "shop.code:index"
    folder: str = "."
    path: str = ""
    prepare: str = ""
    code: int
    strict: int | None = None
    compared: int = 0
    words: str = ""
    timed: bool = False


BRANCHES: Mapping[str, Branch] = {
    "unchanged": Branch(code=0, compared=1),
    "a README only": Branch(head={"README.md": "new\n"}, code=0, compared=1),
    "behind a faster main": Branch(
        base={"shop/code.py": HEAVY},
        head={"README.md": "new\n"},
        main={"shop/code.py": LIGHT},
        code=0,
        compared=1,
        words="so base is their merge base",
        timed=True,
    ),
    "behind a slower main": Branch(
        head={"README.md": "new\n"},
        main={"shop/code.py": HEAVY},
        code=0,
        compared=1,
        words="so base is their merge base",
        timed=True,
    ),
    "behind a broken main": Branch(
        head={"README.md": "new\n"},
        main={"shop/code.py": BROKEN},
        code=0,
        compared=1,
        words="so base is their merge base",
    ),
    "ten times the work": Branch(
        head={"shop/code.py": HEAVY}, code=1, compared=1, words="1 slower", timed=True
    ),
    "a tenth of the work": Branch(
        base={"shop/code.py": HEAVY}, head={"shop/code.py": LIGHT}, code=0, compared=1, timed=True
    ),
    "base lacks what git ignores": Branch(
        base={"shop/code.py": VERSIONED},
        ignored=BUILT,
        code=2,
        strict=2,
        words="base lacks shop/_version.py, which git ignores",
    ),
    "base lacks what git ignores, and head has ten times the work": Branch(
        base={"shop/code.py": VERSIONED},
        head={"shop/code.py": VERSIONED.replace(LIGHT, HEAVY)},
        ignored=BUILT,
        code=2,
        words="base lacks shop/_version.py",
    ),
    "base runs without what git ignores": Branch(
        base={"shop/code.py": FALLS_BACK},
        ignored=BUILT,
        code=2,
        words="base lacks shop/_version.py, which git ignores",
    ),
    "base lacks what one of two needs": Branch(
        base={"shop/more.py": VERSIONED},
        ignored=BUILT,
        call="shop.code:index,shop.more:index",
        code=0,
        strict=3,
        compared=1,
        words="1 not compared: shop.more:index: failed on base only",
    ),
    "what git ignores is prepared": Branch(
        base={"shop/code.py": VERSIONED},
        prepare="echo 'NUMBER = 1' > shop/_version.py",
        code=0,
        compared=1,
    ),
    "what git ignores is not what is prepared": Branch(
        base={"shop/code.py": VERSIONED},
        ignored=BUILT,
        prepare="true",
        code=2,
        words="which git ignores and --prepare did not make there",
    ),
    "named and removed": Branch(
        head={"shop/code.py": OTHER},
        code=2,
        strict=2,
        words="gone from head: shop.code has no index",
    ),
    "one of two removed": Branch(
        head={"shop/code.py": OTHER},
        call=BOTH,
        code=0,
        strict=3,
        compared=1,
        words="1 not compared: shop.code:index: gone from head",
    ),
    "renamed": Branch(
        head={"shop/code.py": LIGHT.replace("index", "contents")},
        call="shop.code:index,shop.code:contents",
        code=2,
        words="2 of 2 cases",
    ),
    "named and new": Branch(
        head={"shop/new.py": LIGHT}, call="shop.new:index", code=2, words="added"
    ),
    "one of two is new": Branch(
        head={"shop/new.py": LIGHT},
        call="shop.code:index,shop.new:index",
        code=0,
        compared=1,
        words="1 not compared: shop.new:index: added",
    ),
    "fails on base only": Branch(
        base={"shop/code.py": BROKEN},
        head={"shop/code.py": LIGHT},
        code=2,
        words="failed on base only: ValueError: it broke",
    ),
    "fails on head only": Branch(
        head={"shop/code.py": BROKEN}, code=1, words="1 failing of 1 case"
    ),
    "fails on both": Branch(base={"shop/code.py": BROKEN}, code=2, words="failed on base, failed"),
    "needs what is not installed": Branch(
        head={"shop/code.py": "import nowhere_at_all\n" + LIGHT}, code=1, words="1 failing"
    ),
    "exits": Branch(
        head={"shop/code.py": "def index():\n    raise SystemExit(0)\n"}, code=1, words="1 failing"
    ),
    "ends its process": Branch(
        head={"shop/code.py": "import os\n\n\ndef index():\n    os._exit(0)\n"}, code=1
    ),
    "is nowhere": Branch(call="shop.code:nothing", code=2, words="on neither side"),
    "a package of its own": Branch(
        base={
            "packages/b/pyproject.toml": "",
            "packages/b/src/pack/__init__.py": LIGHT,
        },
        folder="packages/b",
        call="pack:index",
        code=0,
        compared=1,
    ),
    "a package where setuptools finds it": Branch(
        base={
            "packages/b/pyproject.toml": "[tool.setuptools.packages.find]\nwhere = ['lib']\n",
            "packages/b/lib/pack/__init__.py": LIGHT,
        },
        folder="packages/b",
        call="pack:index",
        code=0,
        compared=1,
    ),
    "a package where hatch finds it": Branch(
        base={
            "pyproject.toml": "[tool.hatch.build.targets.wheel]\npackages = ['code/pack']\n",
            "code/pack/__init__.py": LIGHT,
        },
        call="pack:index",
        code=0,
        compared=1,
    ),
    "a sibling on PYTHONPATH is each side's own": Branch(
        base={"packages/a/core.py": BROKEN_CORE, "packages/b/pack.py": USES_CORE},
        head={"packages/a/core.py": LIGHT},
        folder="packages/b",
        path="packages/a",
        call="pack:index",
        code=2,
        words="failed on base only: ValueError: base has its own core",
    ),
    "base finds head's code": Branch(
        base={"pack.py": "import sys\n\nsys.path.insert(0, 'HEAD/packages/a')\n" + USES_CORE},
        head={"packages/a/core.py": LIGHT},
        call="pack:index",
        code=2,
        words="both sides ran head's packages/a/core.py",
    ),
    "one of two finds head's code": Branch(
        base={
            "pack.py": "import sys\n\nsys.path.insert(0, 'HEAD/packages/a')\n" + USES_CORE,
            "packages/a/core.py": LIGHT,
        },
        call="shop.code:index,pack:index",
        code=0,
        strict=3,
        compared=1,
        words="1 not compared: pack:index: both sides ran head's packages/a/core.py",
    ),
    "another result": Branch(
        head={"shop/code.py": LIGHT.replace("2_000", "2_001")},
        code=1,
        compared=1,
        words="1 different of 1 case",
    ),
    "another order of a sum": Branch(
        base={"shop/code.py": "def index():\n    return (0.1 + 0.2) + 0.3\n"},
        head={"shop/code.py": "def index():\n    return 0.1 + (0.2 + 0.3)\n"},
        code=0,
        compared=1,
    ),
    "another result each time": Branch(
        base={"shop/code.py": "import os\n\n\ndef index():\n    return os.getpid()\n"},
        code=0,
        compared=1,
        words="base returns something else each time",
    ),
    "a result without equality": Branch(
        base={"shop/code.py": "def index():\n    return object()\n"},
        code=0,
        compared=1,
        words="what shop.code:index returns was not compared: it returns or holds a object",
    ),
    "an enlarged benchmark": Branch(
        base={"benchmarks/bench_shop.py": ENLARGED.format(1)},
        head={"benchmarks/bench_shop.py": ENLARGED.format(2)},
        call="benchmarks/bench_shop.py:run",
        code=0,
        compared=1,
        words="the benchmark itself differs: both sides ran head's benchmarks/bench_shop.py",
    ),
    "a benchmark that is gone from an enlarged file": Branch(
        base={"benchmarks/bench_shop.py": ENLARGED.format(1) + GONE},
        head={"benchmarks/bench_shop.py": ENLARGED.format(2)},
        call="benchmarks/bench_shop.py:run,benchmarks/bench_shop.py:gone",
        code=0,
        strict=3,
        compared=1,
        words="benchmarks/bench_shop.py:gone: gone from head",
    ),
    "a file of benchmarks that is gone": Branch(
        base={"benchmarks/bench_shop.py": ENLARGED.format(1)},
        head={"benchmarks/bench_shop.py": None},
        call="shop.code:index,benchmarks/bench_shop.py:run",
        code=0,
        strict=3,
        compared=1,
        words="benchmarks/bench_shop.py:run: gone from head",
    ),
    "fifty times the work in a short time": Branch(
        head={"shop/code.py": HEAVY.replace("20_000", "100_000") + OTHER},
        call=BOTH,
        code=1,
        compared=2,
        words="1 slower",
        timed=True,
    ),
}
