"""What every worker shares: questions become calls of its methods, and exceptions failures."""

from typing import Any

from attnbench.devices import is_out_of_memory
from attnbench.errors import first_line, one_line
from attnbench.measuring.server import Conversation, mapped_libraries, module_files
from attnbench.records import Outcome, messages


class Answering:
    """A worker: a method for each question that it answers, named as the question's `do`.

    Each takes the question and returns its answer, or raises anything.
    """

    conversation: Conversation

    def answer(self, do: str, **fields: Any) -> dict[str, Any]:
        """What a question in plain data gives, in plain data; an exception becomes a failure."""
        try:
            question = messages.read_question({"do": do, **fields})
            answer: messages.ProcessAnswer | messages.Failure = getattr(self, do)(question)
            return messages.written(answer)
        except (Exception, SystemExit) as error:
            return messages.written(failure(error))

    def files(self, question: messages.Files) -> messages.LoadedFiles:
        """The files that this process has loaded: of modules, and other mapped libraries.

        Those of the interpreter and of installed packages are left out, except the watched ones.
        """
        watched = frozenset(question.watched)
        return messages.LoadedFiles(
            modules=tuple(module_files(watched)), libraries=tuple(mapped_libraries(watched))
        )


def failure(error: BaseException) -> messages.Failure:
    """What an exception means, with its reason.

    Of a class of this package that is its sentence alone, of any other also the name of the class.
    """
    of_this_package = type(error).__module__.startswith("attnbench.")  # not one of a user's classes
    if of_this_package and hasattr(error, "outcome"):
        return messages.Failure(outcome=error.outcome, reason=str(error))
    outcome = Outcome.OOM if is_out_of_memory(error) else Outcome.FAILED
    sentence = first_line(error) if of_this_package else ""
    return messages.Failure(outcome=outcome, reason=sentence or one_line(error))
