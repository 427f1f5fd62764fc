"""An iteration as CUDA graphs: captured once, then replayed without the host's work.

Follows the section on CUDA graphs in torch's notes on CUDA semantics.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnbench.devices.protocol import Iterate, Lap

WARM_UP = 3  # iterations on the side stream before a capture, as torch advises


def captured(subject: Any) -> Iterate:
    """An iteration that replays CUDA graphs, one for each phase, with the subject's inputs.

    The graphs share their memory, as they are replayed in the order in which they were captured.
    Raises what the capture raises, for instance where an iteration waits for the device.
    """
    for group in subject.optimiser.param_groups if subject.optimiser else ():
        group["capturable"] = True  # fused steps are, but only with this flag
    side = torch.cuda.Stream()
    iterate = subject.iteration()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            subject.clear()
            iterate(lambda phase: None)
    torch.cuda.current_stream().wait_stream(side)
    subject.clear()  # so that the captured backward pass allocates gradients in its graph's memory
    pool = torch.cuda.graph_pool_handle()

    def capture(work: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            result = work()
        return graph, result

    graphs = {}
    with torch.set_grad_enabled(subject.mode.trains):
        graphs["forward"], output = capture(subject.forward)
    for phase, work in subject.further_phases():
        graphs[phase], _ = capture(partial(work, output))

    def replay(lap: Lap) -> Tensor:
        for phase, graph in graphs.items():
            graph.replay()
            lap(phase)
        return output.detach()

    return replay
