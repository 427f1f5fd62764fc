"""Half an hour on a machine with a GPU, in five calls, each useful alone, the best first.

    smoke       two minutes: a small sweep to its end, which is a figure
    questions   what the machine is, and the tests marked `gpu`
    figure      Fig. 2 at 131,072 tokens and six lengths in both modes, and the claims judged by it
    bfloat16    sub-layers as models use them, fused forms first; decoding limited by bytes
    doubts      where launches show, and with replays; warm and cold caches; energy; other timers

`python -m tests.gpu.half_hour questions --out DIR` takes at most nine minutes. DIR/questions then
has a log of each command, answers in `answers.jsonl` as soon as they are found, and journals and
reports of sweeps. What fails or is cut off costs no other command; the next call resumes sweeps,
and does not do again what went well, of commands that run tests no test that passed: after the code
was changed, take another DIR. Without a GPU the script is tried at tiny sizes:

    python -m tests.emulated python -m tests.gpu.half_hour figure --tiny --out DIR
"""

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
STEP_S = 540.0
GRACE_S = 20.0  # from TERM to KILL: a sweep closes its journal
AROUND_S = 45.0  # for the start of a sweep, and its report
TAIL = 12  # lines of each command's output that are shown
MOST_WORKERS = 8  # of the tests: a process with a GPU takes some GB of the host's memory
PATIENCE = 20.0  # factor of all limits of time where the script is tried
# one form of each kind that torch compiles, for which there is time
COMPILED = "[transformer-0 or [fastformer-0 or [longformer-0 or [bigbird-0"
# fused forms first: what is left out for want of time is named last
LAYERS = "transformer:flex,transformer:sdpa,fastformer,longformer:flex,longformer"
DECODERS = (
    "transformer,grouped_query,latent,linear_transformer,mamba2,gated_delta_net,sliding_window"
)
DECODING = ("--width", "2048", "--heads", "32", "--batch", "32")  # states beyond the cache
CACHES = Path(tempfile.gettempdir(), "attnbench-caches")  # of compiled kernels, for all steps
TINY = ("--width", "16", "--tokens", "32", "--lengths", "16,32", "--rounds", "1", "--quick")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--out", type=Path, default=Path.cwd())
    parser.add_argument("--tiny", action="store_true", help="Try the script, at tiny sizes.")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the command that runs
    folder = asked.out.absolute() / asked.step
    folder.mkdir(parents=True, exist_ok=True)
    sys.exit(run(STEPS[asked.step](folder, asked.tiny), folder, PATIENCE if asked.tiny else 1.0))


def run(commands, folder, patience=1.0):
    """Run (name, most seconds, words) each; returns 0 if all went well."""
    end = time.monotonic() + patience * STEP_S
    file = folder / "codes.json"  # exit codes by name
    codes = json.loads(file.read_text()) if file.exists() else {}
    for name, limit_s, words in commands:
        if codes.get(name) != 0 or "sweep" in words:  # which knows itself what is done
            left_s = end - time.monotonic()
            codes[name] = carried_out(name, min(patience * limit_s, left_s), words, folder)
            file.write_text(json.dumps(codes, indent=1))
    return int(any(codes.values()))


def carried_out(name, limit_s, words, folder):
    """The exit code of a command, which is ended after `limit_s`, with all that it started."""
    print(f"\n{name}, at most {limit_s:.0f} s: {shlex.join(words)}", flush=True)
    if limit_s <= GRACE_S:
        print("no time left")
        return -1
    log, ended = folder / f"{name}.log", ("timeout", f"-k{GRACE_S}", str(limit_s - GRACE_S))
    how = {"cwd": ROOT, "env": environment(folder, name), "stdin": subprocess.DEVNULL}
    with (
        open(log, "ab") as output,
        subprocess.Popen((*ended, *words), stdout=output, stderr=output, **how) as process,
    ):
        try:
            code = process.wait()
        finally:
            process.terminate()
    print("\n".join(log.read_text(errors="replace").splitlines()[-TAIL:]))
    print(f"{name}: exit code {code}", flush=True)
    return code


def environment(folder, name):
    """Variables of a command: this repository, where answers go, and caches that outlive it.

    Tests run in several processes, each of which compiles by itself.
    """
    caches = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    return {
        **os.environ,
        **{name: str(CACHES / kind) for name, kind in caches.items()},
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "MPLBACKEND": "agg",
        "ATTNBENCH_ANSWERS": str(folder / "answers.jsonl"),
        "ATTNBENCH_PASSED": str(folder / f"{name}.passed"),
        "NO_COLOR": "1",
    }


def python(*words):
    return (sys.executable, *words)


def swept(folder, name, limit_s, tiny, *options):
    """A sweep into a folder of its own, or the rest of one that is there."""
    journal = folder / name / "sweep.jsonl"
    into = "--resume" if journal.exists() and journal.stat().st_size else "--out"
    budget = f"{(PATIENCE if tiny else 1.0) * (limit_s - GRACE_S - AROUND_S):.0f}s"
    words = python("-m", "attnbench", "sweep", "--device", "cuda", "--budget", budget)
    out = (into, str(folder / name), *(TINY if tiny else ()))
    return name, limit_s, (*words, *options, *out)


def smoke(folder, tiny):
    """All that a sweep consists of, and of each kind of launches one mechanism: fused, few, many.

    Forecast: 12 of 12 cases in 1 round, 49 s.
    """
    models = ("--models", "transformer,linear_transformer" + ",gated_delta_net" * (not tiny))
    sizes = () if tiny else ("--lengths", "512,8192", "--quick")
    yield swept(folder, "smoke", 120.0, tiny, *models, "--causal", *sizes)


def questions(folder, tiny):
    """What the machine is, and the tests, first those that need the device alone.

    Memory is filled by one test of endings, which therefore runs before the others.
    """
    alone = python("-m", "pytest", "-m", "gpu", "-v", "-rA", "-p", "no:cacheprovider")
    alone += ("-o", "filterwarnings=default")  # of other versions than those of this project
    # rewriting assertions, pytest would import modules past what emulates a GPU
    alone += ("--collect-only", "--assert=plain") if tiny else ()
    several = (*alone, "-n", str(min(MOST_WORKERS, max(1, (os.cpu_count() or 1) // 2))))
    if shutil.which("nvidia-smi"):
        yield "machine", 40.0, ("nvidia-smi", "-q")
    yield "doctor", 60.0, python("-m", "attnbench", "doctor", "--device", "cuda")
    for name, file, limit_s, how, which in (
        ("timing", "timing", 80.0, alone, ""),
        ("memory", "memory", 80.0, alone, ""),
        ("asked", "questions", 80.0, alone, "not flex"),
        ("decoding", "decoding", 60.0, several, "not forgetting"),
        ("fills", "endings", 45.0, alone, "memory"),
        ("endings", "endings", 80.0, several, "not memory"),
        ("flex", "questions", 60.0, alone, "flex"),
        ("parity", "parity", 90.0, several, "not compiled and not forgetting"),
        ("compiled", "parity", 90.0, several, f"compiled and ({COMPILED})"),
    ):
        yield name, limit_s, (*how, f"tests/gpu/test_{file}.py", "-k", which)
    both = ("tests/gpu/test_decoding.py", "tests/gpu/test_parity.py")
    yield "forgetting", 60.0, (*several, *both, "-k", "forgetting and not compiled")


def figure(folder, tiny):
    """Fig. 2, and what papers claim. Forecast: 86 of 96 cases in 2 to 3 rounds, 418 s."""
    models = "fastformer,transformer" if tiny else "@fig2"
    sizes = ("--tokens", "128k", "--lengths", "128,512,2048,8192,32768,65536")
    yield swept(folder, "fig2", 480.0, tiny, "--models", models, *(() if tiny else sizes))
    yield "claims", 40.0, python("-m", "attnbench", "claims", str(folder / "fig2"))


def bfloat16(folder, tiny):
    """Sub-layers and decoding in the sizes and the type that models use.

    Forecasts, which take a GPU for 5 to 15 times slower in bfloat16 than an H100 is: of sub-layers
    11 of 20 cases in 1 to 3 rounds, 257 s; of decoding all 14 in 2 to 3 rounds, 137 s.
    """
    models = "transformer:sdpa" if tiny else LAYERS
    layers = ("--level", "attention", "--dtype", "bf16", "--models", models)
    sizes = ("--width", "1024", "--heads", "16", "--lengths", "2048,16384")
    yield swept(folder, "attention", 320.0, tiny, *layers, *(() if tiny else sizes))
    models = "transformer,linear_transformer" if tiny else DECODERS
    steps = ("--mode", "decode", "--dtype", "bf16", "--models", models)
    sizes = (*DECODING, "--lengths", "8192,65536")
    yield swept(folder, "decode", 200.0, tiny, *steps, *(() if tiny else sizes))


def doubts(folder, tiny):
    """What may be wrong with times: launches that show, a warm cache; and other timers.

    Forecasts: of `cliff` and of `replayed` 10 of 12 cases in 2 to 3 rounds, 57 s; of `warm` 2 of 2
    in 2 rounds, 26 s; of `energy` 2 of 2 in 1 round, 24 s.
    """
    models = "fastformer,linear_transformer" if tiny else "gated_delta_net,mamba2,lightning"
    cliff = ("--mode", "inference", "--models", models)
    sizes = () if tiny else ("--lengths", "2048,8192,32768,65536", "--causal")
    yield swept(folder, "cliff", 120.0, tiny, *cliff, *sizes)
    yield swept(folder, "replayed", 120.0, tiny, *cliff, *sizes, "--cuda-graphs")
    models = "transformer,linear_transformer"
    steps = ("--mode", "decode", "--dtype", "bf16", "--models", models, "--no-cold")
    sizes = () if tiny else (*DECODING, "--lengths", "8192")
    yield swept(folder, "warm", 90.0, tiny, *steps, *sizes)
    energy = ("--models", "transformer,fastformer", "--mode", "inference", "--energy")
    sizes = () if tiny else ("--lengths", "8192")
    yield swept(folder, "energy", 90.0, tiny, *energy, *sizes)
    compared = ("--models", "fastformer" if tiny else "transformer,fastformer,longformer")
    sizes = ("--lengths", "16", "--tokens", "32") if tiny else ("--lengths", "512,4096")
    module = ("-W", "ignore", "-m", "tests.benchmarks.stopwatch", "--device", "cuda")
    yield "stopwatch", 170.0, python(*module, "--rounds", "3", *compared, *sizes)


STEPS = {step.__name__: step for step in (smoke, questions, figure, bfloat16, doubts)}

if __name__ == "__main__":
    main()
