"""The settings of torch for the whole process, which a mechanism must not change."""

from typing import Any

import torch


class TorchState:
    """The settings of torch as they are when it is made."""

    def __init__(self) -> None:
        self.settings = torch_settings()

    def changes(self) -> str:
        """What has changed since: `number of threads 2 to 7; …`, or nothing."""
        pairs = zip(self.settings.items(), torch_settings().values(), strict=True)
        return "; ".join(f"{name} {was} to {new}" for (name, was), new in pairs if was != new)


def torch_settings() -> dict[str, Any]:
    """Settings of the whole process that a mechanism must not change."""
    kinds = (kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind))
    on = (f"{kind} {torch.get_autocast_dtype(kind)}".replace("torch.", "") for kind in kinds)
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # newer settings, which this one cannot express
        precision = "set for each backend"
    return {
        "default dtype": torch.get_default_dtype(),
        "number of threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "detection of anomalies": torch.is_anomaly_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "matmul precision": precision,
        "autocast": ", ".join(on) or "off",
    }
