"""What the papers' tables of complexity print, line by line, with what is wrong in them.

Each line has the exponent of N that its print says with all other letters held fixed; `log` adds a
logarithm. A slip is a place where the print contradicts its own text or leaves a cost out.
"""

from dataclasses import dataclass

SURVEY = "Efficient Transformers: A Survey, Table 1"
SMART_BIRD = "Smart Bird, Table 5, its symbols as its text has them"
FASTFORMER = "Fastformer, Table 7"


@dataclass(frozen=True)
class Line:
    """One line of a printed table; decode and class only the survey prints."""

    mechanism: str
    name: str
    printed: str
    power: float
    decode: bool | None = None
    family: str = ""
    slip: str = ""
    log: bool = False


SEGMENT = (
    "n² holds within one segment; over a whole sequence it is n(m + l), with segments of l tokens"
    " and m of memory."
)
GLOBAL = (
    "It cannot decode with global tokens that attend to all and are attended to by all; without"
    " them it could."
)
LATER = "This line stands in the survey's later version alone."
ETC = f"The window is left out: n_g(n_g + n) + n(n_g + 2r + 1), with radius r. {GLOBAL}"

# arXiv:2009.06732, in its order; † marks what it counts as peer-reviewed
SURVEY_LINES = (
    Line(
        "memory_compressed",
        "Memory Compressed†",
        "O(n_c²)",
        2,
        True,
        "FP+M",
        slip="The survey's text gives n·n/k: only keys and values are shortened, queries are not.",
    ),
    Line("image_transformer", "Image Transformer†", "O(n·m)", 1, True, "FP"),
    Line("set_transformer", "Set Transformer†", "O(nk)", 1, False, "M"),
    Line("transformer_xl", "Transformer-XL†", "O(n²)", 2, True, "RC", slip=SEGMENT),
    Line(
        "sparse_transformer",
        "Sparse Transformer",
        "O(n√n)",
        1.5,
        True,
        "FP",
        slip="The survey's text says n log n of its memory; the table is right.",
    ),
    Line(
        "reformer",
        "Reformer†",
        "O(n log n)",
        1,
        True,
        "LP",
        slip="The logarithm is of the sort alone; hashing grows as n² where the number of buckets"
        " grows with n.",
        log=True,
    ),
    Line(
        "routing_transformer",
        "Routing Transformer",
        "O(n log n)",
        1,
        True,
        "LP",
        slip="The survey's text, and the table of its later version, give n√n.",
        log=True,
    ),
    Line("axial", "Axial Transformer", "O(n√n)", 1.5, True, "FP"),
    Line(
        "compressive_transformer", "Compressive Transformer†", "O(n²)", 2, True, "RC", slip=SEGMENT
    ),
    Line(
        "sinkhorn",
        "Sinkhorn Transformer†",
        "O(b²)",
        0,
        True,
        "LP",
        slip="b² is the cost of one block: that there are n/b of them, and the mixing of blocks,"
        " n²/b, are left out.",
    ),
    Line("longformer", "Longformer", "O(n(k + m))", 1, True, "FP+M"),
    Line("etc", "ETC", "O(n_g² + n·n_g)", 1, False, "FP+M", slip=ETC),
    Line("synthesizer", "Synthesizer", "O(n²)", 2, True, "LR+LP"),
    Line("performer", "Performer", "O(n)", 1, True, "KR"),
    Line("linformer", "Linformer", "O(n)", 1, False, "LR"),
    Line("linear_transformer", "Linear Transformer†", "O(n)", 1, True, "KR"),
    Line("bigbird", "Big Bird", "O(n)", 1, False, "FP+M", slip=GLOBAL),
    Line("poolingformer", "Poolingformer", "O(n)", 1, False, "FP+M", slip=LATER),
    Line("nystromformer", "Nyströmformer", "O(kn)", 1, False, "M+DS", slip=LATER),
)

# the symbols are those of its text: in the table they could not be read
SMART_BIRD_LINES = (
    Line("transformer", "Transformer", "O(N²·D)", 2),
    Line(
        "sparse_transformer",
        "Sparse Transformer",
        "O(N·K·D)",
        1,
        slip="K grows with N: with the stride at √N each query has about 2√N keys.",
    ),
    Line("longformer", "Longformer", "O(N·K·D)", 1),
    Line("bigbird", "Big Bird", "O(N·K·D)", 1),
    Line(
        "smart_bird",
        "Smart Bird",
        "O(N²·d_s + N·K·D)",
        2,
        slip="The drawing of keys is left out: H·N² random numbers and a choice of K from every"
        " row, more than the sketch itself wherever H > d_s.",
    ),
)

# arXiv:2108.09084
FASTFORMER_LINES = (
    Line("transformer", "Transformer", "O(N²·d)", 2),
    Line("longformer", "Longformer", "O(N·K·d)", 1),
    Line("bigbird", "BigBird", "O(N·K·d)", 1),
    Line(
        "linformer",
        "Linformer",
        "O(N·d/ε²)",
        1,
        slip="This counts N·k scores with k = O(d/ε²); with the factor d of the other lines it is"
        " O(N·k·d).",
    ),
    Line("linear_transformer", "Linear Transformer", "O(N·d²)", 1),
    Line("poolingformer", "Poolingformer", "O(N·d·w)", 1),
    Line(
        "fastformer",
        "Fastformer",
        "O(N·d)",
        1,
        slip="Linear maps are left out of the whole table (its footnotes 3 and 9), though they are"
        " nearly all of this mechanism's FLOPs.",
    ),
)
