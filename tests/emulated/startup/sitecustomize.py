"""Runs when Python starts with this folder in PYTHONPATH: emulates a GPU once torch is imported."""

import sys
from importlib.machinery import PathFinder

import emulated_cuda

AFTER = {
    "torch": emulated_cuda.emulate,
    "attnbench.devices.kinds.cuda": emulated_cuda.adapt,
    "attnbench.devices.cuda_timing": emulated_cuda.time_by,
}


class Finder:
    """Finds the modules of `AFTER` as usual, and calls the function after the import."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target) if name in AFTER else None
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                AFTER[name](module)

            spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder)
