"""One measuring process of `judge`: it finds how a user's function is called, and tries it."""

from typing import Any

from attnbench.attention.checks.panel import row
from attnbench.attention.checks.repeating import repeated
from attnbench.attention.checks.trial import NotApplicable, Trial
from attnbench.commands.judge.fitting import fitted
from attnbench.devices.finding import find
from attnbench.errors import AttnbenchError
from attnbench.measuring import allocator
from attnbench.measuring.answering import Answering
from attnbench.measuring.server import Unmeasured
from attnbench.measuring.worker import changes, torch_state
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Outcome
from attnbench.records.messages import Attempted, Fit, Fitted, MakeAttempt


class Worker(Answering):
    """Answers about functions of files, which it calls as mechanisms of this package."""

    def __init__(self, tree: None, limit_bytes: int | None = None, **_: Any) -> None:
        """A worker that has called nothing yet.

        tree: always this package
        limit_bytes: most bytes of memory, None for all there is
        """
        self.state = torch_state()
        allocator.keep_pages()
        if limit_bytes is not None:
            allocator.limit(limit_bytes)

    def fit(self, question: Fit) -> Fitted:
        """How a user's function is called as a mechanism, and what is to be tried of it."""
        find(question.device).select()
        try:
            kernel = fitted(
                card(question.mechanism),
                form=question.form,
                options=question.options,
                dtype=question.dtype,
                device=question.device,
                width=question.width,
                heads=question.heads,
                lengths=question.lengths,
                causal=question.causal,
                chosen=question.chosen,
            )
        except AttnbenchError as error:
            raise Unmeasured(Outcome.FAILED, str(error)) from error
        return Fitted(kernel=kernel)

    def make_attempt(self, question: MakeAttempt) -> Attempted:
        """What is found of one attempt; no row where it does not apply to the mechanism."""
        find(question.device).select()
        kernel_card = card(question.mechanism)
        attempt = question.attempt
        trial = Trial(
            kernel_card,
            kernel_card.configure(question.options),
            question.form,
            attempt.causal,
            question.device,
        )
        try:
            if attempt.repeats:
                panel_row = repeated(trial, attempt, question.left_s)
            else:
                panel_row = row(trial, attempt)
        except NotApplicable:
            return Attempted(row=None)
        return Attempted(row=panel_row, changed=changes(self.state))
