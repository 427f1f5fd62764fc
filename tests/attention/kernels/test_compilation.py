"""The kernels compile for GPUs, also on a machine without one."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton is not installed; run nox -s triton")

# every argument of a kernel by its name: pointers, sizes and strides, and constants
CODE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from attnbench.attention.kernels import pooling

POINTERS = {"x": "*T", "w": "*T", "mask": "*u8", "do": "*T", "dx": "*T"}
SUMS = ("o", "lse", "dw", "parts_o", "parts_lse")
kernels = (pooling.pool_part, pooling.join_parts, pooling.gradient_of_part)
for capability in (80, 90):
    for dtype in ("fp32", "fp16", "bf16"):
        for masked in (True, False):
            for kernel in kernels:
                constants = {"BLOCK_P": 16, "BLOCK_D": 16, "BLOCK_N": 256, "PART": 1024}
                constants["MASKED"] = masked
                constants = {k: v for k, v in constants.items() if k in kernel.arg_names}
                kinds = {"scale": "fp32"} | dict.fromkeys(SUMS, "*fp32")
                kinds |= {k: v.replace("T", dtype) for k, v in POINTERS.items()}
                signature = {
                    name: "constexpr" if name in constants else kinds.get(name, "i32")
                    for name in kernel.arg_names
                }
                source = ASTSource(kernel, signature=signature, constexprs=constants)
                compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32))
                assert ".entry" in compiled.asm["ptx"]
"""


@pytest.mark.long
def test_every_kernel_compiles_in_every_type(tmp_path):
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    env |= {"TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
