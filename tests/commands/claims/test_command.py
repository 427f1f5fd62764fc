"""`claims` as a user meets it: the shipped claims, and a file of one's own."""

import json

from tests.commands.commands import here, refused

STORED = "reports/cpu-fig2"


def test_the_verb_judges_the_shipped_claims_or_a_file_of_ones_own(tmp_path):
    assert "25 claims: " in (shipped := here("claims", STORED).stdout)
    assert "true of exact counts" in shipped
    file = tmp_path / "meine Behauptungen.csv"
    row = "mine,Größer.,ratio,transformer:eager,fastformer,time,inference,512,>= 2\n"
    file.write_text("id,claim,predicate,a,b,quantity,mode,lengths,value\n" + row, "utf-8-sig")
    (found,) = json.loads(here("claims", STORED, file, "--json").stdout)
    assert (found["claim"], found["answer"], found["lengths"]) == ("Größer.", "reproduced", [512])
    assert "No such" in refused("claims", STORED, tmp_path / "none")
    file.write_bytes(b"\xff")
    assert "'utf-8' codec can't decode" in refused("claims", STORED, file)
