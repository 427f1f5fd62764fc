"""A real Slurm of three virtual nodes on this host, with keys, ports and folders of its own.

It needs root and the Debian packages slurmctld, slurmd, slurm-client and munge.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

REQUIRED = "ATTNBENCH_TEST_SLURM"  # set where Slurm must be there
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo")
NODES = ("n1", "n2", "n3")
PATIENCE_S = 600.0  # a limit, never a wait
CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.sock
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SlurmctldPort={port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdSpoolDir={folder}/spool.%n
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
SlurmctldTimeout=10
SlurmdTimeout=10
KillWait=2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """Why Slurm cannot be started here, or nothing."""
    if os.geteuid():
        return "starting Slurm needs root"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"Slurm is not installed: no {', '.join(absent)}" if absent else ""


class Cluster:
    """The running daemons; `environment` lets commands of Slurm find them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self.daemons: list[subprocess.Popen] = []

    def __enter__(self):
        self.write()
        try:
            self.start("munged", "--foreground", "--force", *self.munge())
            until((self.folder / "munge.sock").exists, "munged to listen")
            self.start("slurmctld", "-D", "-f", self.environment["SLURM_CONF"])
            for node in NODES:
                self.start("slurmd", "-D", "-N", node, "-f", self.environment["SLURM_CONF"])
            until(lambda: self.asked("sinfo", "-h", "-t", "idle", "-o", "%D") == "3", "three nodes")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        with suppress(OSError, subprocess.SubprocessError):
            self.asked("scancel", "--user=root")
            until(lambda: not self.asked("squeue", "-h", "-o", "%i"), "the end of all jobs")
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def write(self):
        """Configuration and key."""
        ports = free_ports(1 + len(NODES))
        host = socket.gethostname()
        for name in ("state", *(f"spool.{node}" for node in NODES)):
            (self.folder / name).mkdir()
        lines = [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2"
            " RealMemory=4000"
            for node, port in zip(NODES, ports[1:], strict=True)
        ]
        conf = CONF.format(folder=self.folder, host=host, port=ports[0], nodes="\n".join(lines))
        (self.folder / "slurm.conf").write_text(conf)
        (self.folder / "munge.key").write_bytes(os.urandom(1024))
        (self.folder / "munge.key").chmod(0o400)

    def munge(self):
        """Files of the daemon that signs messages."""
        names = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log"}
        files = [f"--{option}={self.folder}/munge.{name}" for option, name in names.items()]
        return [*files, f"--seed-file={self.folder}/munge.seed"]

    def start(self, *command):
        """A daemon, which prints to a file of its own."""
        with open(self.folder / f"{command[0]}.{len(self.daemons)}.out", "wb") as log:
            daemon = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.daemons.append(daemon)

    def asked(self, *command):
        """What a command of Slurm prints; nothing while the controller does not answer."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    def jobs(self):
        """The state of each job of the queue, by its id."""
        lines = self.asked("squeue", "-h", "-r", "-t", "all", "-o", "%i %T").splitlines()
        return dict(line.split() for line in lines)


def processes_with(argument):
    """The processes that were started with this argument."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if argument.encode() in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
    return found


def kill(pids):
    """Kill at once, without a warning."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def until(happened, what):
    """Blocks until an event that can only be polled for."""
    end = time.monotonic() + PATIENCE_S
    while not (found := happened()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)
    return found


def free_ports(count):
    """Ports that nobody listens on."""
    with_ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in with_ports]
    for server in with_ports:
        server.close()
    return ports
