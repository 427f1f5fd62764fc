#!/bin/sh
# Are these kernels right, steady, and faster than the form that is here?
set -u
attnbench judge kernels.py:fused --as transformer --lengths 512,2k --budget "${BUDGET:-60s}" || exit
# the exit code is 1 where a kernel is wrong, so a pull request with such a kernel is red
attnbench judge kernels.py:fused kernels.py:without_scale kernels.py:first_thousand \
    --as transformer --no-causal --lengths 512,2k --budget "${BUDGET:-90s}"
test $? -eq 1
