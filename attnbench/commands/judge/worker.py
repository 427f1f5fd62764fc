"""One measuring process of `judge`: it finds how a user's function is called, and tries it."""

from typing import Any

from attnbench.attention.checks.panel import row
from attnbench.attention.checks.repeating import repeated
from attnbench.attention.checks.trial import NotApplicable, Trial
from attnbench.commands.judge.fitting import fit_kernel
from attnbench.devices import find
from attnbench.errors import AttnbenchError
from attnbench.measuring import Answering, TorchState, Unmeasured, allocator
from attnbench.mechanisms import catalogue
from attnbench.records import Outcome, messages


class Worker(Answering):
    """Answers about functions of files, which it calls as mechanisms of this package."""

    def __init__(self, tree: None, limit_bytes: int | None = None, **_: Any) -> None:
        """A worker that has called nothing yet.

        tree: always this package
        limit_bytes: most bytes of memory, None for all there is
        """
        self.state = TorchState()
        allocator.keep_pages()
        if limit_bytes is not None:
            allocator.limit(limit_bytes)

    def fit(self, question: messages.Fit) -> messages.Fitted:
        """How a user's function is called as a mechanism, and what is to be tried of it."""
        find(question.device).select()
        try:
            kernel = fit_kernel(
                catalogue.card(question.mechanism),
                form=question.form,
                options=question.options,
                dtype=question.dtype,
                device=question.device,
                width=question.width,
                heads=question.heads,
                lengths=question.lengths,
                causal=question.causal,
                chosen=question.chosen,
                padded=question.padded,
            )
        except AttnbenchError as error:
            raise Unmeasured(Outcome.FAILED, str(error)) from error
        return messages.Fitted(kernel=kernel)

    def make_attempt(self, question: messages.MakeAttempt) -> messages.Attempted:
        """What is found of one attempt; no row where it does not apply to the mechanism."""
        find(question.device).select()
        kernel_card = catalogue.card(question.mechanism)
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
            return messages.Attempted(row=None)
        return messages.Attempted(row=panel_row, changed=self.state.changes())
