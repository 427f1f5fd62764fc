"""A GPU that does not exist, for tests of the CUDA path on any machine with a C compiler.

    python -m tests.emulated attnbench sweep --device cuda --lengths 32,64 --tokens 64 …

runs a command whose Python processes, workers included, find a GPU; in a test

    done = subprocess.run(command, env={**os.environ, **emulated.environment(folder)})

does. It consists of two libraries compiled from `libcuda.c` and `libnvml.c`, and of `startup`, a
folder for PYTHONPATH from where Python replaces `torch.cuda` as soon as torch is imported. Nothing
in the package knows of it. Tensors are those of the CPU, so results are right and times mean
nothing: what is tested is that everything runs to its end, and what is made of the numbers.

Environment variables, all optional (`environment` takes them as arguments):

    EMULATED_CUDA_DEVICES   number of GPUs, 1
    EMULATED_CUDA_RATE      time on the GPU over time to enqueue, 1.5; below 1 all is launch-bound
    EMULATED_CUDA_MODE      compute mode, 0; 3 allows one process
    EMULATED_CUDA_MEMORY    GiB of each GPU, 8
    EMULATED_CUDA_QUEUE     events and holds that the queue takes before the host waits, 1,000
    EMULATED_CUDA_MHZ       clock, 1,980, which is also the largest
    EMULATED_CUDA_SHARED    a folder where processes tell one another what they hold of the memory,
                            which then runs out for all of them together; everything is slower
    EMULATED_CUDA_PROCESSES a file to which each process that uses a GPU adds its number
    EMULATED_CUDA_TENSORS   "1": `device="cuda"` means the CPU in every call of torch, for tests
                            that use torch themselves; not for compiled forms
    EMULATED_NVML           words: hidden (no process is listed), mig, capped (power), shared (by
                            another process)
"""

import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
LIBRARIES = {"libcuda.c": "libcuda.so.1", "libnvml.c": "libnvidia-ml.so.1"}


def environment(folder: Path, **settings: object) -> dict[str, str]:
    """The environment variables; compiles the libraries into the folder if it lacks them.

    Skips the test where there is no C compiler.
    """
    for source, library in LIBRARIES.items():
        if not (folder / library).exists():
            compile_library(HERE / source, folder / library)
    return {
        **{name: str(value) for name, value in settings.items()},
        "PYTHONPATH": before(HERE / "startup", "PYTHONPATH"),
        "LD_LIBRARY_PATH": before(folder, "LD_LIBRARY_PATH"),
    }


def compile_library(source: Path, library: Path) -> None:
    """A shared library from a C file."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        import pytest  # which a command alone does without

        pytest.skip("the emulated GPU needs a C compiler")
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, source]
    subprocess.run(command, check=True)


def before(folder: Path, name: str) -> str:
    """The folder in front of the folders of an environment variable."""
    return os.pathsep.join(filter(None, (str(folder), os.environ.get(name))))
