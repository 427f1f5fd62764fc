"""One measuring process for tests: it times them from within pytest, while their fixtures live.

Whether a test can be timed shows a run of all of them in a process of its own, of which each side
keeps what it finds in a file: `Trials`.
"""

import gc
import os
import signal
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from threading import Timer
from typing import Any

from msgspec import json
from msgspec.structs import replace as with_fields

from attnbench.devices import protocol
from attnbench.devices.protocol import PHASES, Iterate
from attnbench.devices.timing import HostStopwatch, repeated
from attnbench.measuring import calls
from attnbench.measuring.calls import seed
from attnbench.measuring.pytest_run import (
    FAILED,
    PASSED,
    Collecting,
    Holding,
    PytestFolders,
    PytestRun,
    TimedTest,
    Timing,
    TriedTest,
    Trying,
)
from attnbench.measuring.server import (
    INSTALLED,
    Conversation,
    Unmeasured,
    end_children,
    fork_when_asked,
    start_worker,
)
from attnbench.records import MISSING, Clock, messages
from attnbench.records.notes import Note

BASE = "base"
HEAD = "head"
UNTIMED = "untimed"  # phase of a set-up or teardown
SETTING_UP_S = 0.25  # of a sample whose calls need a set-up, after which no further call begins
TEARDOWN_S = 10.0  # that fixtures may take to be taken down


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What became of the tests of a side that are to be timed, by name.

    `unread` has the reasons of files that could not be collected; `error` says why pytest ran
    nothing; `modules` are the files of modules that were loaded.
    """

    tests: Mapping[str, TriedTest] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    modules: Sequence[str] = ()

    def of(self, name: str) -> TriedTest | None:
        """What became of a test; None if there is none of this name."""
        if name in self.tests:
            return self.tests[name]
        for place, reason in self.unread.items():
            if name.startswith(place):
                return TriedTest(outcome=FAILED, reason=f"{place} cannot be collected: {reason}")
        return TriedTest(outcome=FAILED, reason=self.error) if self.error else None


def kept_trials(folder: Path, side: str) -> Trials:
    """What a process of a side has kept in the folder of its pool; nothing if none has."""
    return trials_in(folder / f"tests-{side}.json")


def trials_in(file: Path) -> Trials:
    """What a process has kept in a file; nothing if it has not come to that."""
    return json.decode(file.read_bytes(), type=Trials) if file.is_file() else Trials()


class Watch(HostStopwatch):
    """A stopwatch that rests in the phase `UNTIMED`; `untimed_s` is the CPU time of those."""

    untimed_s = 0.0

    def lap(self, phase: str) -> None:
        if phase in PHASES:
            super().lap(phase)
            return
        self.untimed_s += self.cpu_clock() - self.cpu_mark
        self.start()


class Worker(calls.Worker):
    """Serves one source tree; a `mechanism` is the node id of a test, relative to the repository.

    tree:      the source tree of this side
    seed:      what random generators start from before each test
    root:      the repository whose paths `arguments` may name
    rootdir:   the root of pytest, relative to the tree
    folder:    where pytest works, relative to the tree
    arguments: of the user's run of pytest
    """

    conversation: Conversation
    watch: Watch
    share = 1.0  # calls that a sample stands for, of one that was made

    def __init__(
        self,
        tree: str | None,
        seed: int,
        *,
        root: str,
        rootdir: str,
        folder: str,
        arguments: Sequence[str],
        **_: Any,
    ) -> None:
        super().__init__(tree, seed)
        self.watch = Watch(counts=Clock.CPU)
        self.scratch = Path(os.environ["ATTNBENCH_FOLDER"])
        self.place = PytestFolders(
            tree=self.tree,
            root=Path(root),
            rootdir=rootdir,
            folder=folder,
            arguments=arguments,
            scratch=self.scratch,
        )
        self.side = HEAD if self.tree == Path(root) else BASE
        self.is_finished = False
        self.holding: Holding | None = (
            None  # where this process is forked from one that has collected
        )
        self.warmup_s = 0.0
        working = self.tree / folder
        if working.is_dir():
            os.chdir(working)
        # `python -m pytest` finds what lies in its working folder, as plain pytest does not
        places = [str(place) for place in (working, working / "src") if place.is_dir()]
        sys.path[:0] = [place for place in places if place not in sys.path]

    def tried(self, question: messages.RunTests) -> messages.Tests:
        """Run all tests that are to be timed once; what became of them is kept in a file."""
        return messages.Tests(error=self.trials.error)

    def collected(self, question: messages.CollectTests) -> messages.TestNames:
        """The names of all tests that are to be timed; none of them runs."""
        file = self.scratch / f"collected-{self.side}.json"
        in_child(Collecting(self.place), file)
        return messages.TestNames(tests=tuple(trials_in(file).tests))

    @cached_property
    def trials(self) -> Trials:
        """What became of the tests, in a process of this side: this one's child or an earlier one.

        Where the tests end that process, there is an error.
        """
        file = self.scratch / f"tests-{self.side}.json"
        if not file.is_file():
            in_child(Trying(self.place), file)
        if not file.is_file():
            return Trials(error="the process in which pytest ran the tests has ended")
        return kept_trials(self.scratch, self.side)

    def trial(self, name: str) -> TriedTest | None:
        """What became of a test; of one alone where all together ended their process."""
        if self.trials.tests or not self.trials.error:
            return self.trials.of(name)
        file = self.scratch / f"test-{self.side}-{os.getpid()}.json"
        file.unlink(missing_ok=True)
        in_child(Trying(self.place, name), file)
        if not file.is_file():
            return TriedTest(outcome=FAILED, reason="it ends the process in which pytest runs it")
        return json.decode(file.read_bytes(), type=Trials).of(name)

    def measure_memory(self, question: messages.MeasureMemory) -> messages.Weighed:
        """Whether a test can be timed; nothing is counted. Raises `Unmeasured`."""
        name = question.mechanism
        trial = self.trial(name)
        if trial is None:
            raise Unmeasured(MISSING, f"there is no test {name}")
        if trial.outcome != PASSED:
            raise Unmeasured(trial.outcome, trial.reason)
        return messages.Weighed(values={}, case=name, needs_new_process=False)

    def files(self, question: messages.Files) -> messages.LoadedFiles:
        """The files of modules that the tests have loaded, without those of installed packages."""
        watched = {*question.watched}
        files = (file for file in self.trials.modules if file in watched or not is_installed(file))
        return messages.LoadedFiles(modules=tuple(files))

    def build(self, question: messages.Build) -> messages.ProcessAnswer:
        """Run a test up to what it gives to be timed, and warm up.

        Further questions are answered from within the test; this returns once the last one has been
        asked, with its answer. Raises `Unmeasured`.
        """
        self.warmup_s = question.warmup_s
        run: PytestRun
        if self.holding is None:
            run = Timing(self.place, question.mechanism, self.measure)
            run.main()
        else:
            run = self.holding
            run.run_one(question.mechanism)
        if self.is_finished:
            return self.finish(messages.Finish())
        raise Unmeasured(*why_untimed(run, question.mechanism))

    def hold(self, question: messages.Hold) -> messages.Done:
        """Collect all tests, then fork a process for each of which a connection comes.

        Returns only where pytest does not come to run tests, and says why.
        """
        output = os.open(os.devnull, os.O_WRONLY)  # of pytest, which nobody reads here
        for target in (1, 2):
            os.dup2(output, target)
        os.close(output)
        self.holding = Holding(self.place, self.measure, self.fork_when_asked)
        self.holding.main()
        raise Unmeasured(FAILED, self.holding.error or "pytest did not come to run tests")

    def fork_when_asked(self) -> None:
        """Fork a process whenever it is asked for, and end with the connection."""
        gc.collect()
        gc.freeze()
        self.conversation.reply(messages.written(messages.Done()))
        self.conversation.lines.close()  # or the connection would stay open in what is forked
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that supervise
        fork_when_asked(self.conversation.connection, partial(start_worker, worker=self))
        os._exit(0)

    def leave(self) -> None:
        """Answer the last question, and end the process though fixtures are still there."""
        answer = self.finish(messages.Finish())
        text = f"its fixtures were not taken down in {TEARDOWN_S:.0f} s"
        notes = {**answer.notes, Note.FIXTURES: text}
        self.conversation.reply(messages.written(with_fields(answer, notes=notes)))
        os._exit(0)

    def measure(self, timed: TimedTest) -> None:
        """Warm up, and answer questions until the last one is asked, whose answer is left."""
        self.timed = timed
        self.call = partial(timed.target, *timed.args, **timed.kwargs)
        seed(self.seed)
        warm = self.warm_up(self.warmup_s)
        self.watch.untimed_s = 0.0
        self.conversation.reply(messages.written(warm))
        for question in self.conversation.questions():
            if question["do"] == messages.FINISH:
                self.is_finished = True
                limit = Timer(TEARDOWN_S, self.leave)
                limit.daemon = True
                limit.start()
                return
            self.conversation.reply(self.answer(**question))

    def lap(self, question: messages.Lap) -> messages.Lapped:
        """One sample of some calls; set-ups between them took `untimed_s` of CPU time."""
        self.share = 1.0
        before_s = self.watch.untimed_s
        lap = self.sample_calls(question.iterations)
        stretched = {
            name: value * self.share
            for name in ("wall_s", "cpu_s", "forward_s", "waited_s")
            if (value := getattr(lap, name)) is not None
        }
        untimed_s = self.watch.untimed_s - before_s
        return messages.Lapped(sample=lap._replace(**stretched), untimed_s=untimed_s)

    def finish(self, question: messages.Finish) -> messages.Finished:
        """The process measures nothing else; set-ups took `untimed_s` of CPU time meanwhile."""
        return with_fields(super().finish(question), untimed_s=self.watch.untimed_s)

    def iteration(self, calls: int = 1) -> Iterate:
        """That many calls of what is timed, in a row; with a set-up, as many as there is time for.

        `share` is how many times as many calls are asked for as are made.
        """
        if self.timed.setup is None and self.timed.teardown is None:
            return repeated(self.call, calls)

        def iterate(lap: protocol.Lap) -> None:
            begun = time.monotonic()
            count = 0
            while count < calls and (not count or time.monotonic() - begun < SETTING_UP_S):
                args, kwargs = self.timed.next_arguments()
                lap(UNTIMED)
                self.timed.target(*args, **kwargs)
                lap("forward")
                count += 1
                if self.timed.teardown is not None:
                    self.timed.teardown(*args, **kwargs)
                lap(UNTIMED)
            self.share = calls / count

        return iterate


def in_child(trying: PytestRun, file: Path) -> None:
    """Run tests in a child of this process, and keep what became of them in a file.

    There is no file where they end that process.
    """
    pid = os.fork()
    if pid == 0:
        try:
            trying.main()
            part = file.with_suffix(".part")
            part.write_bytes(json.encode(trials_of(trying)))
            part.rename(file)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    end_children()


def trials_of(run: PytestRun) -> Trials:
    """What became of the tests of a run in this process."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return Trials(
        tests=run.trials,
        unread=run.unread,
        error=run.error,
        modules=sorted({os.path.realpath(file) for file in files if file}),
    )


def is_installed(file: str) -> bool:
    """Whether a file belongs to an installed package or to Python."""
    parts = Path(file).parts
    return bool(INSTALLED & {*parts}) or file.startswith(sysconfig.get_path("stdlib"))


def why_untimed(run: PytestRun, name: str) -> tuple[str, str]:
    """The outcome and reason of a test that ended before it gave anything to be timed."""
    trials = trials_of(run)
    trial = trials.of(name)
    if trial is None:
        return MISSING, f"there is no test {name}"
    if trial.outcome == PASSED:
        return FAILED, "gave nothing to be timed, as it did before"
    return trial.outcome, trial.reason
