"""What a user, a script with a bug, or an enemy may write on the command line."""

from collections.abc import Mapping
from types import MappingProxyType

LONG = "x" * 5_000

# fmt: off
RUBBISH = (
    "", " ", "\t", "\n", "-", "--", "---", "=", ",", ",,", ":", "[", "]", "[]", "\\", "'", '"',
    "0", "-0", "-1", "1", "2", "3.5", "-7.5", "nan", "NaN", "-nan", "inf", "-inf", "1e400", "1e9",
    "0x10", "1_000", "\uff11\uff12", "²", "٣", "1.", ".5", "9" * 30, "9" * 400, "9" * 5_000,
    "-" + "9" * 30, "None", "none", "null", "true", "False", "[object Object]", "undefined",
    "\x1b[31mred\x1b[0m", "\x1b]8;;http://x\x07y\x1b]8;;\x07", "\x07", "a\u202eb", "\u2028",
    "\x9b2J", "a\nb", "a\r\nb", "größe", "中文", "🙂", "e\u0301", "\udcff\udc80", "\ufeff",
    "\U000e0041", "$(id)", "`id`", "; id", "| cat", "&& id", "> x", "*", "?", "[!a]", "~", "$HOME",
    "%s%n", "{0}", "..", "../..", "../nowhere", ".", "./.", "/", "/dev/null", "/dev/null/x",
    "/proc/self/x", "a/b",
    "-h", "--help", "--version", "--nonsense", "-x", "--json=1", "@", "@@", "@nothing",
    LONG, "a/" * 2_100, "a" * 256, "a.py:" + LONG, LONG + ".py:X", "[" * 3_000, "a," * 3_000,
)
LENGTHS = (
    "128", "16,33", "1k", "128..512", "128..512:x2", "100..400:+100", "3..100:x3, 7", "1..1",
    "128..64", "1..1e9:x1.0000001", "1..1000000:+1", "1..16777216:+1", "1..16m:+1", "1..16m:x2",
    "0..8", "1..", "..8", "1...8", "1..8:x1", "1..8:x0", "1..8:+0", "1..8:y2", "-4..8", "4096k",
    "16384k", "99999k", "1..10000:+1", "1..900:+1,1001..1900:+1", "128,128", "1,,2", "128;256",
)
MODELS = (
    "fastformer", "transformer:eager", "linformer[rank=16]", "synth*", "@fig2", "@table5", "*",
    "transformer:*", "linformer:eager[rank=64]", "fastformer,transformer", "performer[features=8]",
    "linformer[rank=…]", "linformer[rank=]", "linformer[rank]", "linformer[rank=0]", "linformer[",
    "linformer[rank=-1]", "linformer[rank=nan]", "linformer[rank=1e400]", "linformer[rank=true]",
    "linformer[rank=none]", "linformer[rank=16,rank=32]", "linformer[rank=16][rank=32]",
    "linformer[rank=" + "9" * 40 + "]", "linformer[rank=0.5]", "linformer[rank=x]", "[rank=1]",
    "linformer[x=1]", "reformer[chunk=0]", "longformer[window=0]", "bigbird[block=0]",
    "sinkhorn[block=-3]", "axial[bias=maybe]", "routing_transformer[window=1e9]", "linfromer",
    "transformer:egaer", "nowhere.py:X", "rubbish.py:X", ".py:X", "empty:X", "one/x.jsonl.py:X",
    "@fig3", "@all:nope", "a,b[x=1,y=2", "fastformer,", ",fastformer", "Fastformer", " fastformer ",
    "fastformer:", "stack(2*local+fnet[bias=true])", "stack()", "stack(local", "stack(local):eager",
    "stack(stack(a)+b", "stack(@fig2)", "stack(2*2*local)", "stack(9*local)", "stack([)", "stack(]",
)
OUTPUTS = ("new", "new.md", "new/deeper", "empty", "empty/new", "rubbish/x", "with space", "-dash")
# fmt: on

# what an option should be given
GOOD: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "models": ("fastformer", "transformer:eager", "linformer[rank=16]", "synth*", "@table5"),
        "lengths": ("16,33", "128..512", "100..400:+100", "1..1"),
        "pattern": ("fast*", "fastformer", "*"),
        "against": ("transformer", "fastformer:eager"),
        "tokens": ("64", "8k", "1M"),
        "length": ("512", "4k"),
        "a": ("fastformer", "transformer:eager", "synthesizer[n_max=64]"),
        "b": ("fnet", "transformer", "stack(local+fnet)"),
        "budget": ("1s", "10m", "none"),
        "case_timeout": ("1s", "20m", "none"),
        "mode": ("both", "inference", "inference,training"),
        "preset": ("mind-classification", "imdb"),
        "dtype": ("float32", "bfloat16", "bf16"),
        "device": ("cpu", "auto"),
        "formats": ("png", "svg", "pdf", "bmf", "pyperf"),
        "level": ("model", "attention", "core"),
        "base": ("HEAD", "main"),
        "baseline": ("kept.json",),
        "config": ("config.json",),
        "sweep": ("one", "two", "torn", "one/sweep.jsonl"),
        "folders": ("one", "torn"),
        "shard": ("1/2", "3/3"),
        "on": ("slurm", "ray"),
        "slurm": ("-t 60", "--exclusive"),
        "first": ("one", "torn"),
        "second": ("two", "one"),
        **dict.fromkeys(("out", "save"), OUTPUTS),
    }
)
