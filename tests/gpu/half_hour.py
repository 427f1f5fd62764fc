"""Half an hour on a machine with a GPU, in four calls, each useful alone, the best first.

    python -m tests.gpu.half_hour questions --out DIR
    python -m tests.gpu.half_hour figure --out DIR
    python -m tests.gpu.half_hour bfloat16 --out DIR
    python -m tests.gpu.half_hour speed --out DIR

    python -m tests.gpu.half_hour --needs [FILE]

A call takes at most nine minutes:

    questions   what the machine is, what only a GPU answers, and the other tests marked `gpu`
    figure      Fig. 2 at 131,072 tokens and six lengths in both modes, and the claims judged by it
    bfloat16    sub-layers with fused kernels, and decoding
    speed       speed against public implementations, and the stopwatch against other timers

It leaves one archive, DIR/STEP.tar.gz, with journals, reports, logs and versions, packed again
after every command; every answer is in `answers.jsonl` as soon as it is found. What fails or is cut
off costs no other command. Where DIR has the archive of an earlier call (copy it there first, if
what a call leaves is taken elsewhere), its sweeps are resumed, and what went well is not done
again. With `--tiny` the script is tried in minutes, where there is no GPU on an emulated one
(`tests/emulated`). Nothing is fetched from a network. `--needs` lists the packages that the machine
must have, without those that FILE (the output of `pip list --format freeze` there) names already.
"""

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from importlib.metadata import distributions
from pathlib import Path
from platform import platform, python_version

from tests.gpu.needs import needed

ROOT = Path(__file__).parents[2]
STEP_S = 540.0
PACKING_S = 15.0
GRACE_S = 20.0  # from TERM to KILL: a sweep closes its journal
AROUND_S = 45.0  # for the start of a sweep, and its report
TAIL = 12  # lines of each command's output that are shown
MOST_WORKERS = 8  # of the tests: a process with a GPU takes some GB of the host's memory
COMMANDS = "commands.json"
# one form of each kind that torch compiles, for which there is time
COMPILED = "transformer-0 or fastformer-0 or longformer-0 or bigbird-0"
CACHES = Path(tempfile.gettempdir(), "attnbench-caches")  # of compiled kernels, for all steps


@dataclass(frozen=True, kw_only=True)
class Command:
    """A program; its output goes to `NAME.log`, and it is ended after `limit_s`."""

    name: str
    words: tuple[str, ...]
    limit_s: float
    code: int | None = None  # with which it ended; None if there was no time to start it
    took_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured: on the day, or when the script itself is tried."""

    models: str  # of the figure
    fused: str  # further forms, of sub-layers
    decoding: str
    lengths: str  # of the figure
    few: str  # of sub-layers
    contexts: str  # of decoding
    tokens: str
    compared: str  # mechanisms of the stopwatch
    swept: tuple[str, ...] = ()  # options of every sweep
    timed: tuple[str, ...] = ()  # options of both benchmarks
    tested: tuple[str, ...] = ()  # options of pytest
    patience: float = 1.0  # factor of all limits of time


FULL = Size(
    models="@fig2",
    fused="transformer:flex,fastformer:triton",
    decoding="@decode",
    lengths="128,512,2048,8192,32768,65536",
    few="512,4096,32768",
    contexts="1024,8192,65536",
    tokens="128k",
    compared="transformer,fastformer,linformer,longformer,performer,linear_transformer",
    timed=("--lengths", "512,4096"),
)
TINY = Size(
    models="fastformer,transformer",
    fused="transformer:sdpa",
    decoding="transformer,linear_transformer",
    lengths="16,32",
    few="16",
    contexts="16",
    tokens="32",
    compared="fastformer",
    swept=("--width", "16", "--rounds", "1", "--quick"),
    timed=("--lengths", "16", "--tokens", "32", "--models", "fastformer"),
    tested=("--collect-only",),
    patience=20.0,  # the machine may be busy
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", nargs="?", choices=STEPS)
    parser.add_argument("--out", type=Path, default=Path.cwd())
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="Try the script, at tiny sizes.")
    parser.add_argument("--needs", nargs="?", const="", metavar="FILE")
    asked = parser.parse_args()
    if asked.needs is not None:
        there = Path(asked.needs).read_text() if asked.needs else ""
        print("\n".join(needed(ROOT / "pyproject.toml", there)))
    elif asked.step is None:
        parser.error("name a step, or --needs")
    else:
        # so that what there is so far is packed
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        size = TINY if asked.tiny else FULL
        with tempfile.TemporaryDirectory() as folder:
            os.environ |= emulation(asked.device, asked.tiny, Path(folder))
            sys.exit(run(asked.step, asked.out.absolute(), asked.device, size))


def emulation(name, tiny, folder):
    """Variables of an emulated GPU if the device is missing and the script is only tried.

    Where that is not so, or the emulation cannot be built, the script ends with the reason.
    """
    # here, since `--needs` must do without the packages that these need
    import pytest

    from attnbench.devices.finding import find
    from attnbench.errors import UsageError
    from tests import emulated

    try:
        device = find(name)
        if not (reason := device.missing()):
            return {}
        if tiny:
            variables = emulated.environment(folder, EMULATED_CUDA_DEVICES=device.index + 1)
            print(f"--device {name}: {reason}; the script is tried on an emulated GPU", flush=True)
            return variables
        reason = f"--device {name}: {reason}; run this on a machine with a GPU, or try it: --tiny"
    except (UsageError, pytest.skip.Exception) as error:
        reason = str(error)
    print(reason, file=sys.stderr)
    sys.exit(2)


def run(step, out, device, size):
    """Run a step; returns 0 if all its commands went well."""
    end = time.monotonic() + size.patience * (STEP_S - PACKING_S)
    out.mkdir(parents=True, exist_ok=True)
    archive = out / f"{step}.tar.gz"
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary, step)
        work.mkdir()
        if archive.exists():
            with tarfile.open(archive) as packed:
                packed.extractall(temporary, filter="data")
        (work / "versions.json").write_text(json.dumps(versions(), indent=1))
        earlier, done = well_done(work), []
        for command in STEPS[step](work, device, size):
            try:
                allowed = replace(command, limit_s=size.patience * command.limit_s)
                done.append(earlier.get(command.name) or carried_out(allowed, work, end))
            finally:
                (work / COMMANDS).write_text(json.dumps([*map(asdict, done)], indent=1))
                pack(work, archive)
    print(f"{archive}: {archive.stat().st_size:,} bytes")
    return int(any(command.code != 0 for command in done))


def well_done(work):
    """The commands of an earlier call that ended well, by name; sweeps may have more to do."""
    file = work / COMMANDS
    known = json.loads(file.read_text()) if file.exists() else []
    good = (each for each in known if each["code"] == 0 and "sweep" not in each["words"])
    return {each["name"]: Command(**each) for each in good}


def carried_out(command, work, end):
    """The command with how it ended; it is given no more time than the step has left."""
    limit_s = min(command.limit_s, end - time.monotonic())
    print(f"\n{command.name}, at most {limit_s:.0f} s: {shlex.join(command.words)}", flush=True)
    if limit_s <= GRACE_S:
        print("no time left")
        return command
    begun, log = time.monotonic(), work / f"{command.name}.log"
    with open(log, "ab") as output:
        process = subprocess.Popen(
            command.words,
            cwd=ROOT,
            env=environment(work),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(limit_s - GRACE_S)
        except subprocess.TimeoutExpired:
            print(f"no end after {limit_s - GRACE_S:.0f} s")
        finally:
            code = ended(process)
    took_s = time.monotonic() - begun
    print("\n".join(log.read_text(errors="replace").splitlines()[-TAIL:]))
    print(f"{command.name}: exit code {code} after {took_s:.0f} s", flush=True)
    return replace(command, code=code, took_s=took_s)


def ended(process):
    """The exit code of a process; one that still runs is ended, with all that it started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def environment(work):
    """Variables of every command: this repository, where answers go, and caches that outlive it.

    Tests run in several processes, each of which compiles by itself.
    """
    caches = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    return {
        **os.environ,
        **{name: str(CACHES / folder) for name, folder in caches.items()},
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "MPLBACKEND": "agg",
        "ATTNBENCH_ANSWERS": str(work / "answers.jsonl"),
        "NO_COLOR": "1",
    }


def pack(work, archive):
    """Replace the archive by one of the folder."""
    fresh = archive.with_suffix(".new")
    with tarfile.open(fresh, "w:gz") as packed:
        packed.add(work, arcname=work.name)
    fresh.replace(archive)


def versions():
    """The system, Python, and every installed package."""
    packages = {found.name: found.version for found in distributions()}
    return {"system": platform(), "python": python_version(), "packages": packages}


def python(name, limit_s, *words):
    return Command(name=name, words=(sys.executable, *words), limit_s=limit_s)


def swept(work, name, limit_s, device, size, models, *options):
    """A sweep into a folder of its own, or the rest of one that is there."""
    journal = work / name / "sweep.jsonl"
    resumed = ("--resume",) if journal.exists() and journal.stat().st_size else ()
    budget = f"{size.patience * (limit_s - GRACE_S - AROUND_S):.0f}s"
    words = ("-m", "attnbench", "sweep", "--models", models, "--device", device, *size.swept)
    out = ("--tokens", size.tokens, "--budget", budget, "--out", str(work / name))
    return python(name, limit_s, *words, *options, *out, *resumed)


def questions(work, device, size):
    """What the machine is, and the tests, first those that need the device alone."""
    from attnbench.devices.cgroups import cores

    alone = ("-m", "pytest", "-m", "gpu", "-v", "-rA", "-p", "no:cacheprovider", *size.tested)
    alone += ("-o", "filterwarnings=default")  # of other versions than those of this project
    several = (*alone, "-n", str(min(MOST_WORKERS, max(1, cores() // 2))))
    if shutil.which("nvidia-smi"):
        yield Command(name="machine", words=("nvidia-smi", "-q"), limit_s=40.0)
    yield python("doctor", 80.0, "-m", "attnbench", "doctor", "--device", device)
    for name, file, limit_s, how, which in (
        ("asked", "questions", 90.0, alone, ""),
        ("timing", "timing", 90.0, alone, ""),
        ("memory", "memory", 60.0, alone, ""),
        ("endings", "endings", 90.0, several, ""),
        ("parity", "parity", 110.0, several, "not compiled"),
        ("compiled", "parity", 110.0, several, f"compiled and ({COMPILED})"),
    ):
        chosen = (f"tests/gpu/test_{file}.py", "-k", which, f"--junitxml={work}/{name}.xml")
        yield python(name, limit_s, *how, *chosen)


def figure(work, device, size):
    """Fig. 2, and what papers claim."""
    yield swept(work, "fig2", 480.0, device, size, size.models, "--lengths", size.lengths)
    yield python("claims", 40.0, "-m", "attnbench", "claims", str(work / "fig2"))


def bfloat16(work, device, size):
    """Sub-layers and decoding, in the type that models use."""
    chosen = f"{size.models},{size.fused}"
    layers = ("--level", "attention", "--lengths", size.few, "--dtype", "bf16")
    yield swept(work, "attention", 300.0, device, size, chosen, *layers)
    steps = ("--mode", "decode", "--lengths", size.contexts, "--dtype", "bf16")
    yield swept(work, "decode", 220.0, device, size, size.decoding, *steps)


def speed(work, device, size):
    """Our forms against public implementations, and the stopwatch against other timers."""
    for name, limit_s, *options in (
        ("speed", 350.0, "--seconds", "0.5"),
        ("stopwatch", 170.0, "--rounds", "3", "--models", size.compared),
    ):
        module = ("-W", "ignore", "-m", f"tests.benchmarks.{name}", "--device", device)
        yield python(name, limit_s, *module, *options, *size.timed)


STEPS = {step.__name__: step for step in (questions, figure, bfloat16, speed)}

if __name__ == "__main__":
    main()
