"""The language of the column `check` of `published/claims.csv`: what a claim asserts, formally.

    check     = clause { "and" clause }
    clause    = call [ relation ] [ lengths ] [ "at level" LEVEL ] [ "on" '"' DEVICE '"' ] [ each ]
    call      = NAME "(" argument { "," argument } ")"      arguments as in `SIGNATURES`
    subject   = NAME [ ":" FORM ] [ "[" NAME "=" option { "," NAME "=" option } "]" ]
    option    = NUMBER | "true" | "false" | "none" | NAME | "{" option { "," option } "}"
    group     = ( "@" NAME | "{" NAME { "," NAME } "}" ) [ "minus" "{" NAME { "," NAME } "}" ]
    relation  = ( "=" | "<=" | ">=" | "<" | ">" ) value | "in" "[" value "," value "]"
              | "=" formula                                 after order(…) alone
    value     = NUMBER [ "/" NUMBER ]                       numbers as the source prints them
    formula   = term { "+" term },  term = factor { ( "*" | "/" ) factor }
    factor    = NAME [ "^" NUMBER ] | "log" "(" NAME ")"
    lengths   = "at" NUMBER | "for length" ( ( ">=" | ">" | "<=" ) NUMBER
              | "in" NUMBER ".." NUMBER | "in" "{" NUMBER { "," NUMBER } "}" )
    each      = "for each" NAME "in" "{" option { "," option } "}"

`str` of a parsed check is its canonical text, and parses to the same. What each predicate means
stands in `predicates`, `groups`, `limits` and `orders`.
"""

from attnbench.claims.claim import (
    Argument,
    Asked,
    Call,
    Check,
    Clause,
    Each,
    Factor,
    Formula,
    Group,
    Lengths,
    Relation,
    Sign,
    Subject,
    Value,
)
from attnbench.claims.cursor import (
    Cursor,
    a_length,
    a_name,
    a_number,
    a_set,
    one_of,
    some,
    tokens,
)
from attnbench.claims.signatures import FOLLOWED, QUANTITIES, Kind, Signature, signature
from attnbench.records import Level, Option


def parse(text: str) -> Check:
    """The check that a text spells. Raises `BadCheck` with the place and what was expected."""
    cursor = Cursor(tuple(tokens(text)))
    check = Check(clauses=some(cursor, _clause, "and"))
    if cursor.here.kind != "end":
        raise cursor.expected("'and' or the end")
    return check


def _clause(cursor: Cursor) -> Clause:
    call, its = _call(cursor)
    relation = _formula(cursor) if its.formula else _relation(cursor, its)
    lengths = _lengths(cursor, its)
    level = _level(cursor) if cursor.take("at", "level") else None
    device = cursor.of("text").strip('"') if cursor.take("on") else None
    each = _each(cursor) if cursor.take("for", "each") else None
    return Clause(
        call=call, relation=relation, lengths=lengths, level=level, device=device, each=each
    )


def _call(cursor: Cursor) -> tuple[Call, Signature]:
    name = cursor.here.text
    its = signature(name)
    if its is None:
        raise cursor.expected("a predicate")
    cursor.take(name)
    cursor.need("(")
    arguments: list[Argument] = []
    for kind in its.kinds:
        if arguments:
            cursor.need(",")
        arguments.append(_argument(cursor, kind))
    cursor.need(")")
    return Call(name=name, arguments=tuple(arguments)), its


def _argument(cursor: Cursor, kind: Kind) -> Argument:
    match kind:
        case Kind.SUBJECT:
            return _subject(cursor)
        case Kind.GROUP:
            return _group(cursor)
        case Kind.MODE:
            return Asked(one_of(cursor, tuple(Asked)))
        case Kind.QUANTITY:
            return one_of(cursor, QUANTITIES)
        case Kind.LENGTH:
            return a_length(cursor)
        case Kind.CALL:
            if cursor.here.text not in FOLLOWED:
                raise cursor.expected(f"one of {', '.join(FOLLOWED)}")
            return _call(cursor)[0]
        case Kind.OVER:
            return a_name(cursor)


def _subject(cursor: Cursor) -> Subject:
    mechanism = a_name(cursor)
    form = a_name(cursor) if cursor.take(":") else None
    options: tuple[tuple[str, tuple[Option, ...]], ...] = ()
    if cursor.take("["):
        options = some(cursor, _pair, ",")
        cursor.need("]")
    return Subject(mechanism=mechanism, form=form, options=options)


def _pair(cursor: Cursor) -> tuple[str, tuple[Option, ...]]:
    name = a_name(cursor)
    cursor.need("=")
    return name, a_set(cursor, _option) if cursor.here.text == "{" else (_option(cursor),)


def _option(cursor: Cursor) -> Option:
    words: dict[str, Option] = {"true": True, "false": False, "none": None}
    if cursor.here.kind == "number":
        value = a_number(cursor)
        return int(value) if value == int(value) else value
    name = a_name(cursor)
    return words.get(name, name)


def _group(cursor: Cursor) -> Group:
    name, members = "", tuple[str, ...]()
    if cursor.here.text.startswith("@"):
        name = cursor.of("name")
    else:
        members = a_set(cursor, a_name)
    minus = a_set(cursor, a_name) if cursor.take("minus") else ()
    return Group(name=name, members=members, minus=minus)


def _relation(cursor: Cursor, its: Signature) -> Relation | None:
    if not its.signs:
        return None
    sign = Sign(one_of(cursor, its.signs))
    if sign is not Sign.WITHIN:
        return Relation(sign=sign, values=(_value(cursor),))
    cursor.need("[")
    low = _value(cursor)
    cursor.need(",")
    high = _value(cursor)
    cursor.need("]")
    return Relation(sign=sign, values=(low, high))


def _value(cursor: Cursor) -> Value:
    over = a_number(cursor)
    under = a_number(cursor) if cursor.take("/") else None
    if under == 0:
        raise cursor.expected("a quotient by another number than 0")
    return Value(over=over, under=under)


def _formula(cursor: Cursor) -> Formula:
    cursor.need("=")
    return Formula(terms=some(cursor, _term, "+"))


def _term(cursor: Cursor) -> tuple[Factor, ...]:
    factors = [_factor(cursor, 1)]
    while cursor.here.text in ("*", "/"):
        factors.append(_factor(cursor, 1 if cursor.of("sign") == "*" else -1))
    return tuple(factors)


def _factor(cursor: Cursor, sign: int) -> Factor:
    if sign > 0 and cursor.take("log", "("):
        symbol = a_name(cursor)
        cursor.need(")")
        return Factor(symbol=symbol, log=True)
    symbol = a_name(cursor)
    return Factor(symbol=symbol, power=sign * (a_number(cursor) if cursor.take("^") else 1.0))


def _lengths(cursor: Cursor, its: Signature) -> Lengths | None:
    if not its.lengths:
        return None
    start = cursor.index
    if cursor.here.text == "at" and cursor.tokens[cursor.index + 1].kind == "number":
        cursor.take("at")
        found = Lengths(sign=Sign.AT, values=(a_length(cursor),))
    elif cursor.take("for", "length"):
        found = _range(cursor)
    else:
        return None
    if found.sign not in its.lengths:
        cursor.index = start
        raise cursor.expected(f"lengths as {its.name} takes them")
    return found


def _range(cursor: Cursor) -> Lengths:
    sign = Sign(one_of(cursor, (Sign.AT_LEAST, Sign.ABOVE, Sign.AT_MOST, Sign.WITHIN)))
    if sign is not Sign.WITHIN:
        return Lengths(sign=sign, values=(a_length(cursor),))
    if cursor.here.text == "{":
        return Lengths(sign=Sign.ONE_OF, values=a_set(cursor, a_length))
    low = a_length(cursor)
    cursor.need("..")
    return Lengths(sign=sign, values=(low, a_length(cursor)))


def _level(cursor: Cursor) -> Level:
    return Level(one_of(cursor, tuple(Level)))


def _each(cursor: Cursor) -> Each:
    name = a_name(cursor)
    cursor.need("in")
    return Each(name=name, values=a_set(cursor, _option))
