"""What a sweep says of claims: answers are counted, and evidence stands with its lengths."""

from attnbench.analysis.conclusions import Answer, Basis, Conclusion, Question, Scope
from attnbench.commands.claims.page import judged

SWEEP = (128, 512, 2048, 8192)


def concluded(answer, *, lengths=SWEEP, reason="as measured", decided_by=""):
    """A conclusion on a claim, or on one of its checks."""
    return Conclusion(
        question=Question.CLAIM,
        answer=answer,
        mode="inference",
        scope=Scope(lengths=lengths, of_sweep=SWEEP),
        basis=Basis.MEASURED,
        series=("a",),
        reason=reason,
        decided_by=decided_by,
    )


def texts(*rows):
    """The cells of the table, but for those of the claims themselves."""
    return [[cell.text for cell in row[1:]] for row in judged(rows).rows]


def test_answers_are_counted_in_the_title_in_one_order():
    answers = (Answer.CONTRADICTED, Answer.NOT_KNOWN, Answer.REPRODUCED, Answer.NOT_KNOWN)
    table = judged([("A claim.", concluded(answer), ()) for answer in answers])
    assert table.title == "4 claims: 1 reproduced, 2 not known, 1 contradicted"
    assert [row[1].text for row in table.rows] == [*answers]


def test_what_would_decide_a_claim_stands_behind_its_evidence():
    ((_, evidence, _),) = texts(("C.", concluded(Answer.NOT_KNOWN, decided_by="--budget 9m"), ()))
    assert evidence == "as measured; --budget 9m may decide it"
    ((_, evidence, _),) = texts(("C.", concluded(Answer.REPRODUCED), ()))
    assert evidence == "as measured"


def test_the_lengths_of_checks_are_told_apart_where_they_differ():
    whole = concluded(Answer.REPRODUCED)
    short = concluded(Answer.REPRODUCED, lengths=(128, 512))
    gaps = concluded(Answer.REPRODUCED, lengths=(128, 2048))
    nowhere = concluded(Answer.NOT_KNOWN, lengths=())
    claim = concluded(Answer.REPRODUCED)
    rows = [("C.", claim, checks) for checks in (
        (whole, whole), (whole, short, short), (gaps,), (nowhere,),
    )]  # fmt: skip
    assert [row[-1] for row in texts(*rows)] == [
        *("128 to 8,192", "128 to 8,192; 128 to 512 (2 checks)", "128, 2,048", ""),
    ]
