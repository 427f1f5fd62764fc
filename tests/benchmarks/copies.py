"""Mechanisms under three names each, which `again` races against themselves."""

from attnbench.mechanisms.fastformer import CARD as FASTFORMER
from attnbench.mechanisms.linformer import CARD as LINFORMER

FASTFORMER_AGAIN = FASTFORMER_THIRD = FASTFORMER
LINFORMER_AGAIN = LINFORMER_THIRD = LINFORMER
