#!/bin/sh
# What changed between two sweeps: one before an edit of a module, one after it.
set -eu
folder=$(mktemp -d)
cp gated.py "$folder/layer.py"
cd "$folder"
measure() {
    attnbench sweep --models layer.py:GatedMean,fastformer --lengths 512,2k --mode inference \
        --budget "${BUDGET:-45s}" --out "$1"
}
measure before
# the edit: the gate is computed twice
sed -i 's/torch.sigmoid(self.gate(x))/torch.sigmoid(self.gate(x) + self.gate(x))/' layer.py
measure after
attnbench compare before after
