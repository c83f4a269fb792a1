"""Records as text: what goes in comes out, and what is no record never becomes one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from idemguard import UnreadableRecordError
from idemguard.record import FORMAT, Record, State, from_text, to_text

WRITTEN = [state for state in State if state not in (State.VACANT, State.UNKNOWN)]

#: With many of the characters that the double braces rule is about.
TEXT = st.text() | st.text(alphabet='{}"\\a:, \n', max_size=12)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
SECONDS = st.floats(min_value=0, max_value=1e9) | st.integers(min_value=0, max_value=10**9)

RECORDS = st.builds(
    Record,
    state=st.sampled_from(WRITTEN),
    token=TEXT,
    lease=SECONDS,
    retention=SECONDS,
    attempt=st.integers(min_value=1),
    fence=st.integers(min_value=0),
    fingerprint=st.none() | TEXT,
    result=JSON,
    error=JSON,
    steps=st.dictionaries(TEXT, JSON, max_size=4),
    reason=TEXT,
)


def exactly(record: Record) -> str:
    """A form in which 1, 1.0 and true differ."""
    return repr(record)


@given(RECORDS, st.integers(min_value=0), st.floats(min_value=0, max_value=2e9))
def test_a_record_comes_back_as_it_was(record: Record, prev: int, seen: float) -> None:
    text = to_text(record, p=prev, s=seen)
    again, rest = from_text(text)
    assert exactly(again) == exactly(record)
    assert rest == {"p": prev, "s": seen}


@given(RECORDS)
@example(Record(State.COMPLETED, "t", result={"a": {"b": {"c": {}}}}))
@example(Record(State.COMPLETED, "t", result='{"{{', steps={"}}": '\\"{{{{{"'}))
def test_the_text_is_ascii_json_without_double_braces(record: Record) -> None:
    text = to_text(record, p=0)
    assert text.isascii()
    assert "{{" not in text
    assert "}}" not in text
    assert isinstance(json.loads(text), dict)


def readable_or_refused(text: str) -> None:
    try:
        record, rest = from_text(text)
    except UnreadableRecordError:
        return
    again, rest_again = from_text(to_text(record, **rest))
    assert exactly(again) == exactly(record)
    assert repr(rest_again) == repr(rest)
    assert record.state in WRITTEN


@given(st.text() | JSON.map(json.dumps))
@example("")
@example("[" * 100_000)
@example('{"a":' * 100_000)
@example("1" * 10_000)
@example("\ufeff{}")
def test_what_somebody_else_wrote_is_refused(text: str) -> None:
    readable_or_refused(text)


LETTERS = st.sampled_from("fxtlkanhvedyps")


@given(
    st.dictionaries(LETTERS, JSON | st.sampled_from(["c", "d", "v", "u", 1, 2, float("nan")])),
    st.booleans(),
)
@example({"x": []}, True)
@example({"x": "c"}, True)
@example({"x": "c", "t": "a", "l": True}, True)
@example({"x": "d", "t": "a", "v": float("nan")}, True)
def test_what_looks_like_a_record_is_one_or_is_refused(wire: dict[str, Any], ours: bool) -> None:
    readable_or_refused(json.dumps({**wire, "f": FORMAT} if ours else wire))


@given(RECORDS, st.data())
def test_a_truncated_record_is_refused(record: Record, data: st.DataObject) -> None:
    text = to_text(record, p=0)
    cut = data.draw(st.integers(min_value=0, max_value=len(text) - 1))
    with pytest.raises(UnreadableRecordError):
        from_text(text[:cut])


@given(RECORDS, st.data())
def test_a_changed_record_is_one_or_is_refused(record: Record, data: st.DataObject) -> None:
    text = to_text(record, p=0)
    at = data.draw(st.integers(min_value=0, max_value=len(text) - 1))
    readable_or_refused(text[:at] + data.draw(st.text(max_size=3)) + text[at + 1 :])


@pytest.mark.parametrize("state", ["v", "u", "z", "", None, 1, [], {}])
def test_states_that_are_never_written_are_not_read(state: object) -> None:
    # Read as such, a stranger's text would free a name or block it.
    with pytest.raises(UnreadableRecordError):
        from_text(json.dumps({"f": FORMAT, "x": state, "t": "token", "p": 0}))


@pytest.mark.parametrize("field", ["l", "k"])
@pytest.mark.parametrize("seconds", ["-1", "-0.001", "NaN", "Infinity", "1e999", "1" + "0" * 400])
def test_durations_that_are_none_are_not_read(field: str, seconds: str) -> None:
    # Compared with an age, they would decide something, or fail where nobody expects it.
    text = f'{{"f":{FORMAT},"x":"c","t":"token","p":0,"{field}":{seconds}}}'
    with pytest.raises(UnreadableRecordError):
        from_text(text)


def test_a_newer_format_says_what_to_do() -> None:
    text = json.dumps({"f": FORMAT + 1, "x": "c", "t": "token"})
    with pytest.raises(UnreadableRecordError, match=rf"format {FORMAT + 1} .*upgrade idemguard"):
        from_text(text)


@pytest.mark.parametrize("number", [True, None, "1", "hunter2", [], 0])
def test_no_format_number_of_ours_is_no_record(number: object) -> None:
    with pytest.raises(UnreadableRecordError) as caught:
        from_text(json.dumps({"f": number, "x": "c", "t": "token"}))
    assert "hunter2" not in str(caught.value), "what a stranger wrote is not shown"


@pytest.mark.parametrize(
    "text", ["hunter2", '{"f":1,"x":"hunter2"}', '{"f":1,"x":"c","t":"hunter2']
)
def test_what_cannot_be_read_is_not_in_the_error_or_behind_it(text: str) -> None:
    with pytest.raises(UnreadableRecordError) as caught:
        from_text(text)
    assert "hunter2" not in str(caught.value)
    # A JSON error holds the whole text.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_the_smallest_records_are_small() -> None:
    claim = Record(State.CLAIMED, "0" * 32, lease=30.5, retention=604800.0, fence=1764554096123)
    assert len(to_text(claim, p=0)) < 120
