"""`torch.cuda` for a torch without CUDA: tensors stay on the CPU, time and memory are imitated.

Time: the GPU has a queue, and clocks count what the host computes, so that other load changes
nothing. What the host computes between two calls is enqueued work; it takes EMULATED_CUDA_RATE
times as long on the GPU, and never ends before it was enqueued. Memory: bytes of living tensors;
peaks are followed from a reset to the next emptying of the cache, since that makes all operators
slower. A captured graph is the list of its operators; each replay runs them again, into the same
memory.

With EMULATED_CUDA_TENSORS, "cuda" as a device of tensors means the CPU. A sweep does not need that,
and compiled forms do not like it.
"""

import ctypes
import gc
import os
import time
import types
import weakref
from collections import deque
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

CONTEXT, BLOCK = 500 << 20, 2 << 20
CYCLES_PER_MS = 1_980_000
SAMPLING = {"sample_s": 0.1, "warmup_s": 0.1, "interval_s": 0.001}  # nobody reads the times
# operators that wait for the device, which a capture forbids
WAITING = ("_local_scalar_dense", "nonzero", "equal", "masked_select", "unique_consecutive")


def said(name, usual):
    """The number in an environment variable, which may have changed since the last command."""
    return float(os.environ.get(f"EMULATED_CUDA_{name}", usual))


def total():
    """Bytes of the memory of a GPU."""
    return int(said("MEMORY", 8)) << 30


def adapt(module, put=setattr):
    """The package's device: present, with tensors on the CPU, and measured in no time."""
    put(module, "built_for", lambda platform: platform == "cuda")
    put(module.Cuda, "torch_name", "cpu")
    put(module.Cuda, "matmul_size", 256)
    put(module.Cuda, "copy_elements", 1 << 16)
    put(module.Cuda, "sampling", lambda self, quick, bounded: SAMPLING)


def time_by(module, put=setattr):
    """The stopwatch's clock: that of the emulated host."""
    clock = types.SimpleNamespace(perf_counter=QUEUE.now, process_time=time.process_time)
    put(module, "time", clock)


class Queue:
    """The clock of the host, and when the GPU will have done what was enqueued, in seconds.

    The host's time is what it computed and waited, so that a busy machine changes nothing.
    """

    def __init__(self):
        self.waited = self.free = 0.0
        self.spins = False  # whether it was the last to be enqueued
        self.ends = deque()  # when what is in the queue will have ended
        self.seen = self.now()

    def now(self):
        return time.thread_time() + self.waited

    def advance(self):
        now = self.now()
        work = max(0.0, now - self.seen) * said("RATE", 1.5)  # negative in a new process
        self.free, self.seen = max(self.free + work, now), now
        return self.free

    def hold(self, cycles):
        """Enqueue a kernel that spins; between it and others there is no work."""
        self.spins, self.seen = True, self.now()
        hertz = 1e6 * said("MHZ", CYCLES_PER_MS / 1000)
        self.enter(max(self.free, self.seen) + cycles / hertz)

    def record(self):
        """Enqueue an event; returns when it will happen."""
        if self.spins:
            self.spins, self.seen = False, self.now()
        return self.enter(self.advance())

    def enter(self, end):
        """Enqueue what ends then; the host waits until there is room for it."""
        self.free = max(self.free, end)
        while self.ends and self.ends[0] <= self.seen:
            self.ends.popleft()
        if len(self.ends) >= said("QUEUE", 1000):
            self.wait_until(self.ends.popleft())
        self.ends.append(end)
        return end

    def wait(self, *_):
        self.wait_until(self.advance())

    def wait_until(self, end):
        self.waited += max(0.0, end - self.now())
        self.seen = self.now()


QUEUE = Queue()


class Used:
    """Bytes of one GPU: of living tensors, and of the blocks that hold them."""

    def __init__(self, index):
        self.index = index
        self.live = self.peak = self.reserved = self.reserved_peak = 0


class Neighbours:
    """What other processes hold of a GPU: a file for each in the folder EMULATED_CUDA_SHARED."""

    def __init__(self):
        self.folder = os.environ.get("EMULATED_CUDA_SHARED")

    def tell(self, used):
        if self.folder:
            file = Path(self.folder, f"{os.getpid()}-{used.index}")
            file.write_text(str(CONTEXT + used.reserved))

    def held(self, used):
        """Bytes of the living, but not of this one."""
        others = Path(self.folder).glob(f"*-{used.index}") if self.folder else ()
        living = (f for f in others if Path("/proc", f.name.partition("-")[0]).exists())
        return sum(
            int(f.read_text() or 0) for f in living if f.name != f"{os.getpid()}-{used.index}"
        )


class Memory:
    """Bytes of each GPU; a tensor is on the one that was current when it was made."""

    def __init__(self, torch, index):
        self.torch, self.library = torch, None
        self.index = index  # of a GPU by what torch calls it; without a name, of the current one
        with suppress(OSError):
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.counted = weakref.WeakSet()
        self.used = {}
        self.mode = None
        self.neighbours = Neighbours()

    def of(self, device=None):
        index = self.index(device)
        return self.used.setdefault(index, Used(index))

    @property
    def reserved(self):
        return self.of().reserved

    def begin(self):
        """Count what lives already, and everything from now on."""
        if self.mode is None:
            self.look()
            self.mode = counting(self.torch, self.count)
            self.mode.__enter__()

    def look(self):
        """Count what lives already."""
        for thing in gc.get_objects():
            if issubclass(type(thing), self.torch.Tensor):
                self.count(thing)

    def end(self):
        """Count no more."""
        if self.mode is not None:
            self.mode.__exit__(None, None, None)
            self.mode = None

    def count(self, tensor):
        if tensor.device.type != "cpu" or tensor.layout is not self.torch.strided:
            return
        storage = tensor.untyped_storage()
        if storage in self.counted:
            return
        size, used = storage.nbytes(), self.of()
        if used.live + size > max(used.reserved, self.room(used)):
            text = f"CUDA out of memory. Tried to allocate {size} bytes"
            raise self.torch.OutOfMemoryError(text)
        self.counted.add(storage)
        weakref.finalize(storage, self.change, used, -size).atexit = False
        self.change(used, size)

    def room(self, used):
        """Bytes that this process may have of a GPU."""
        return total() - CONTEXT - self.neighbours.held(used)

    def change(self, used, size):
        used.live += size
        used.peak = max(used.peak, used.live)
        self.reserve(used, max(used.reserved, blocks(used.live)))

    def reserve(self, used, size):
        used.reserved = size
        used.reserved_peak = max(used.reserved_peak, size)
        self.neighbours.tell(used)
        if self.library is not None:
            self.library.emulated_reserve(used.index, ctypes.c_ulonglong(size))

    def reset(self, device=None):
        self.begin()
        used = self.of(device)
        used.peak, used.reserved_peak = used.live, used.reserved

    def shrink(self):
        if not self.neighbours.folder:
            self.end()
        for used in self.used.values():
            self.reserve(used, blocks(used.live))

    def asked(self, name):
        def answer(device=None):
            if self.mode is None:
                self.look()
            return getattr(self.of(device), name)

        return answer

    def info(self, device=None):
        used = self.of(device)
        return self.room(used) - used.reserved, total()


def blocks(size):
    return -(-size // BLOCK) * BLOCK


def counting(torch, count):
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    count(leaf)
            return out

    return Counting()


class Graphs:
    """Captures and replays: the classes and functions of `torch.cuda` for graphs."""

    def __init__(self, torch, queue):
        self.torch, self.queue = torch, queue
        self.capturing = False

    def new(self, keep_graph=False):
        return Graph(self)

    @contextmanager
    def capture(self, graph, pool=None, stream=None, capture_error_mode="global"):
        from torch.utils._python_dispatch import TorchDispatchMode

        class Recording(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                if func.overloadpacket.__name__ in WAITING:
                    text = "CUDA error: operation not permitted when stream is capturing"
                    raise RuntimeError(text)
                out = func(*args, **(kwargs or {}))
                graph.calls.append((func, args, kwargs or {}, out))
                return out

        self.queue.wait()
        self.capturing = True
        try:
            with Recording():
                yield
        finally:
            self.capturing = False


class Graph:
    def __init__(self, graphs):
        self.graphs, self.calls = graphs, []

    def replay(self):
        from torch.utils._pytree import tree_leaves

        torch = self.graphs.torch
        with torch.no_grad():
            for func, args, kwargs, out in self.calls:
                again = func(*args, **kwargs)
                for old, new in zip(tree_leaves(out), tree_leaves(again), strict=True):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


def on_cpu(torch):
    """A mode in which "cuda" as a device means the CPU."""
    from torch.overrides import TorchFunctionMode

    def host(value):
        kind = value.type if isinstance(value, torch.device) else value
        is_cuda = isinstance(kind, str) and (kind == "cuda" or kind.startswith("cuda:"))
        return torch.device("cpu") if is_cuda else value

    class OnCpu(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.Tensor.cuda:
                return args[0]
            kwargs = {name: host(value) for name, value in (kwargs or {}).items()}
            out = func(*map(host, args), **kwargs)
            if isinstance(out, torch.Tensor) and out.nbytes > total():  # even where nothing counts
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate too much")
            return out

    class Generator(torch.Generator):
        def __new__(cls, device="cpu"):
            return super().__new__(cls, host(device))

    torch.Generator = Generator
    return OnCpu()


def emulate(torch, put=setattr):
    """Put the emulation in the place of `torch.cuda`'s functions; returns its memory."""
    current, known = [0], set()

    def index(device=None):
        return current[0] if device is None else int(str(device).rpartition(":")[2] or 0)

    queue, memory = QUEUE, Memory(torch, index)
    graphs = Graphs(torch, queue)

    class Event:
        def __init__(self, enable_timing=False, **_):
            self.at = None

        def record(self, stream=None):
            self.at = queue.record()

        def elapsed_time(self, later):
            return 1000 * (later.at - self.at)

        def synchronize(self):
            queue.wait_until(self.at)

    class Stream:
        def __init__(self, device=None, priority=0):
            self.device = torch.device(f"cuda:{index(device)}")  # which torch.compile reads

        def wait_stream(self, stream):
            pass

        def is_capturing(self):
            return graphs.capturing

        synchronize = queue.wait

    def properties(device=None):
        return types.SimpleNamespace(
            name="Emulated GPU",
            uuid=f"00000000-0000-0000-0000-{index(device):012x}",
            major=9,
            minor=0,
            total_memory=total(),
            multi_processor_count=132,
            clock_rate=CYCLES_PER_MS,
            L2_cache_size=1 << 16,
        )

    def set_device(device):
        if (file := os.environ.get("EMULATED_CUDA_PROCESSES")) and os.getpid() not in known:
            known.add(os.getpid())
            with open(file, "a") as processes:
                print(os.getpid(), file=processes)
        current[0] = device if isinstance(device, int) else torch.device(device).index or 0
        if memory.neighbours.folder:
            memory.begin()

    def nothing():  # a function for each name: torch.compile tells them apart by identity
        return lambda *_, **__: None

    replaced = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": nothing(),
        "_lazy_init": nothing(),
        "device_count": lambda: int(said("DEVICES", 1)),
        "current_device": lambda: current[0],
        "set_device": set_device,
        "device": lambda device: nullcontext(),
        "get_device_properties": properties,
        "get_device_name": lambda device=None: properties(device).name,
        "get_device_capability": lambda device=None: (9, 0),
        "is_bf16_supported": lambda including_emulation=True: True,
        "manual_seed": nothing(),
        "manual_seed_all": nothing(),
        "get_rng_state": lambda device="cuda": torch.get_rng_state(),
        "set_rng_state": lambda state, device="cuda": torch.set_rng_state(state),
        "Event": Event,
        "Stream": Stream,
        "stream": lambda stream: nullcontext(),
        "current_stream": lambda device=None: Stream(),
        "default_stream": lambda device=None: Stream(),
        "synchronize": queue.wait,
        "_sleep": queue.hold,
        "set_sync_debug_mode": nothing(),
        "empty_cache": memory.shrink,
        "ipc_collect": nothing(),
        "mem_get_info": memory.info,
        "memory_allocated": memory.asked("live"),
        "max_memory_allocated": memory.asked("peak"),
        "memory_reserved": memory.asked("reserved"),
        "max_memory_reserved": memory.asked("reserved_peak"),
        "reset_peak_memory_stats": memory.reset,
        "CUDAGraph": graphs.new,
        "graph": graphs.capture,
        "graph_pool_handle": lambda: (0, 1),
        "is_current_stream_capturing": lambda: graphs.capturing,
    }
    for name, value in replaced.items():
        put(torch.cuda, name, value)
    # a torch with CUDA asks these when an optimiser steps and in its timer
    put(torch.accelerator, "current_stream", lambda device=None: Stream())
    put(torch.accelerator, "synchronize", lambda device=None: queue.wait())
    put(torch.version, "cuda", "13.0")
    if os.environ.get("EMULATED_CUDA_TENSORS"):
        on_cpu(torch).__enter__()
    return memory
