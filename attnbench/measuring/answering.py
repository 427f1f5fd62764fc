"""What every worker shares: questions become calls of its methods, and exceptions failures."""

from typing import Any

from attnbench.devices.out_of_memory import is_out_of_memory
from attnbench.errors import first_line, one_line
from attnbench.measuring.server import Conversation, mapped_libraries, module_files
from attnbench.records import Outcome
from attnbench.records.messages import (
    Failure,
    Files,
    LoadedFiles,
    ProcessAnswer,
    read_question,
    written,
)


class Answering:
    """A worker: a method for each question that it answers, named as the question's `do`.

    Each takes the question and returns its answer, or raises anything.
    """

    conversation: Conversation

    def answer(self, do: str, **asked: Any) -> dict[str, Any]:
        """What a question in plain data gives, in plain data; an exception becomes a failure."""
        try:
            question = read_question({"do": do, **asked})
            answer: ProcessAnswer | Failure = getattr(self, do)(question)
            return written(answer)
        except (Exception, SystemExit) as error:
            return written(failure(error))

    def files(self, question: Files) -> LoadedFiles:
        """The files that this process has loaded: of modules, and other mapped libraries.

        Those of the interpreter and of installed packages are left out, except the watched ones.
        """
        kept = frozenset(question.watched)
        return LoadedFiles(
            modules=tuple(module_files(kept)), libraries=tuple(mapped_libraries(kept))
        )


def failure(error: BaseException) -> Failure:
    """What an exception means, with its reason.

    Of a class of this package that is its sentence alone, of any other also the name of the class.
    """
    own = type(error).__module__.startswith("attnbench.")  # not one of a user's classes
    if own and hasattr(error, "outcome"):
        return Failure(outcome=error.outcome, reason=str(error))
    outcome = Outcome.OOM if is_out_of_memory(error) else Outcome.FAILED
    sentence = first_line(error) if own else ""
    return Failure(outcome=outcome, reason=sentence or one_line(error))
