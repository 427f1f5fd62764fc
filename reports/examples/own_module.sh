#!/bin/sh
# A module of one's own beside two mechanisms, from 128 to 2,048 tokens.
set -eu
folder=$(mktemp -d)
# does it do what a layer must do in a training loop?
attnbench models gated.py:GatedMean --verify
attnbench sweep --models gated.py:GatedMean,fastformer,transformer --lengths 128..2k:x4 \
    --budget "${BUDGET:-90s}" --out "$folder/own"
# the same results as files: tables, figures, report.html
ls "$folder/own"
