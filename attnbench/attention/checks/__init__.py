"""The checks of the contract: equations, FLOPs, training, stress."""
