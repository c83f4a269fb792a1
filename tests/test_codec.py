"""What a codec gives back is equal in value and type to what it was given, or it says why not."""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import io
import json
import math
import subprocess
import sys
import zlib
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import InitVar, dataclass, field
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, localcontext
from http import HTTPStatus
from time import tzset
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pytest
from dateutil import tz as dateutil_tz  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from idemguard.codec import (
    Codec,
    check_annotation,
    compress,
    error_type,
    is_lazy,
    not_stored,
)
from idemguard.errors import (
    IdempotencyError,
    InFlightError,
    ResultNotStoredError,
    UnreadableRecordError,
    UnsupportedResultError,
)

if TYPE_CHECKING:
    from nowhere import LambdaContext  # type: ignore[import-not-found]

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "r"
    ROUGE = "r"  # noqa: PIE796
    BLUE = ("b", 2)


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Name(str, enum.Enum):
    A = "a"


class Right(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Mode(enum.IntFlag):
    X = 1
    Y = 8


@dataclass
class Item:
    """Named by other types' fields only."""

    sku: str
    price: Any
    colour: Colour = Colour.RED


@dataclass(frozen=True)
class Order:
    id: Any
    items: list[Item] = field(default_factory=list)
    note: Any = None


@dataclass(frozen=True)
class Slotted:
    __slots__ = ("left", "right")
    left: Any
    right: Any


class Point(NamedTuple):
    x: Any
    y: Any = 0


Pair = namedtuple("Pair", "first second")  # pyright: ignore[reportUntypedNamedTuple]


class Model(pydantic.BaseModel):
    n: Any
    item: Optional[Item] = None  # noqa: UP045
    when: Any = None


class Loose(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int = pydantic.Field(default=0, alias="b")
    b: int = pydantic.Field(default=0, alias="a")
    _secret: Any = pydantic.PrivateAttr(default=None)
    _unset: int


class Box(pydantic.BaseModel, Generic[T]):
    content: T


USER_TYPES = (
    Colour, Size, Name, Right, Mode, Item, Order, Slotted, Point, Pair, Model, Loose, Box[int], Box,
)  # fmt: skip
codec = Codec(types=USER_TYPES)


def over_the_wire(value: Any) -> Any:
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return json.loads(text)


def replay(value: Any, using: Codec = codec) -> Any:
    return using.decode(over_the_wire(using.encode(value)))


def same(left: Any, right: Any) -> bool:
    """Equal in value and type all the way down; nan is nan, and 0.0 is not -0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, enum.Enum):
        return left is right or left == right
    if isinstance(left, float):
        return repr(left) == repr(right)
    if isinstance(left, Decimal):
        return str(left) == str(right)
    if isinstance(left, datetime | time):
        return (
            left.replace(tzinfo=None) == right.replace(tzinfo=None)
            and left.fold == right.fold
            and same_zone(left.tzinfo, right.tzinfo)
        )
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            same(a, b) and same(left[a], right[b]) for a, b in zip(left, right, strict=True)
        )
    if isinstance(left, set | frozenset):
        return len(left) == len(right) and all(any(same(a, b) for b in right) for a in left)
    if isinstance(left, list | tuple | deque):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, pydantic.BaseModel):
        return (
            same(left.__dict__, right.__dict__)
            and left.model_fields_set == right.model_fields_set
            and same(left.model_extra, right.model_extra)
            and same(left.__pydantic_private__, right.__pydantic_private__)
        )
    if dataclasses.is_dataclass(left):
        return all(
            same(getattr(left, f.name), getattr(right, f.name)) for f in dataclasses.fields(left)
        )
    return bool(left == right)


def same_zone(left: tzinfo | None, right: tzinfo | None) -> bool:
    return type(left) is type(right) and left == right and repr(left) == repr(right)


all_zones = st.one_of(
    st.none(),
    st.just(timezone.utc),
    st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)), st.text()),
    st.sampled_from(["Europe/Berlin", "Asia/Kathmandu", "UTC"]).map(ZoneInfo),
    st.just(dateutil_tz.tzutc()),
)
zones = st.deferred(lambda: all_zones)  # Their own text is too long for an error.
folds = st.integers(0, 1)
moments = st.builds(
    lambda value, zone, fold: value.replace(tzinfo=zone, fold=fold), st.datetimes(), zones, folds
)
times = st.builds(
    lambda value, zone, fold: value.replace(tzinfo=zone, fold=fold), st.times(), zones, folds
)
text = st.text(st.characters(), max_size=20) | st.sampled_from(
    ["$", "$dict", "$zlib", "{{x}}", "\ud800"]
)
flags = st.builds(Right, st.integers(0, 7)) | st.builds(Mode, st.integers(0, 31))
hashable_leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), text,
    st.integers(1900, 2600).map(lambda bits: -1 << bits),
    st.decimals(allow_nan=False), moments, st.dates(), times, st.timedeltas(), st.uuids(),
    st.binary(), st.sampled_from(Colour), st.sampled_from(Size), st.sampled_from(Name), flags,
    st.just(HTTPStatus.NOT_FOUND),
)  # fmt: skip
all_hashables = st.recursive(
    hashable_leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner),
        st.frozensets(inner, max_size=3),
        st.builds(Slotted, inner, inner),
        st.builds(Point, inner, inner),
    ),
    max_leaves=4,
)
hashables = st.deferred(lambda: all_hashables)
leaves = st.one_of(
    hashable_leaves, st.binary().map(bytearray),
    st.sampled_from([Decimal("sNaN"), Decimal("-NaN12"), Decimal("1E+400"), Decimal("-0.00")]),
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(text, inner, max_size=4),
        st.dictionaries(hashables, inner, max_size=3),
        st.dictionaries(text, inner, max_size=3).map(OrderedDict),
        st.dictionaries(text, inner, max_size=3).map(lambda d: defaultdict(list, d)),
        st.lists(inner, max_size=3).map(lambda items: deque(items, 5)),
        st.lists(hashables, max_size=3).map(Counter),
        st.sets(hashables, max_size=3),
        st.tuples(inner, inner),
        st.builds(Item, text, inner),
        st.builds(Order, inner, st.lists(st.builds(Item, text, inner), max_size=2), note=inner),
        st.builds(Slotted, inner, inner),
        st.builds(Pair, inner, inner),
        st.builds(Model, n=inner, when=inner),
        st.builds(lambda x, y: Loose(a=1, **{"$extra": x, "c": y}), inner, inner),
    ),
    max_leaves=12,
)


# Round trips


@given(values)
def test_every_supported_value_comes_back_equal_in_value_and_type(value: Any) -> None:
    assert same(replay(value), value)


@given(leaves)
def test_every_single_value_comes_back_equal_in_value_and_type(value: Any) -> None:
    assert same(replay([value]), [value])


SPECIAL: list[Any] = [
    math.nan, math.inf, -math.inf, -0.0, 5e-324, 1 << 64, -(1 << 3000), Decimal("sNaN"),
    Decimal("-0E-7"), Decimal("Infinity"), {"$": 1}, {"$dict": [[1, 2]]}, {"$zlib": "x"},
    {"$absent": "omitted"}, {"$": 1, "a": 2}, {None: 1, True: 2, 2.5: 3}, {(1, Colour.RED): 1},
    "\ud800", "{{x}}", Right(0), Right.READ | Right.RUN, Mode(0), Mode(24), deque([1], 1),
    deque([1]), defaultdict(int, a=1), defaultdict(None, a=1), Counter("aab"), OrderedDict(b=1, a=2),
    bytearray(b"\0"), HTTPStatus.OK, time(2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
]  # fmt: skip


@pytest.mark.parametrize("value", SPECIAL, ids=repr)
def test_special_values_come_back_equal_in_value_and_type(value: Any) -> None:
    assert same(replay(value), value)


@given(values)
def test_compressed_values_come_back_the_same(value: Any) -> None:
    assert same(codec.decode(over_the_wire(compress(codec.encode(value)))), value)


@pytest.mark.parametrize("value", [None, 0, False, "", [], {}, 0.0, -0.0, (), set(), b""])
def test_empty_results_keep_their_type(value: Any) -> None:
    assert same(replay(value), value)


@given(st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab"), st.lists))
def test_plain_json_is_written_as_it_is(value: Any) -> None:
    assert codec.encode(value) == value


def test_what_is_kept_shares_nothing_with_the_value_nor_with_what_is_given_back() -> None:
    value: Any = {"a": [{"b": []}]}
    kept = codec.encode(value)
    value["a"][0]["b"].append(1)
    first = codec.decode(kept)
    first["a"].append(2)
    assert codec.decode(kept) == {"a": [{"b": []}]}


def test_the_order_of_keys_is_kept() -> None:
    assert list(replay({"z": 1, "a": 2, 3: 4})) == ["z", "a", 3]
    assert list(replay({"z": 1, "a": 2})) == ["z", "a"]


def test_utc_is_the_one_utc() -> None:
    assert replay(datetime(2026, 6, 1, tzinfo=timezone.utc)).tzinfo is timezone.utc


def test_a_timestamp_of_botocore_keeps_its_moment_and_zone_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        tzset()
        value = datetime(2026, 6, 1, 12, 30, tzinfo=dateutil_tz.tzlocal())
        moment = value.timestamp()
        written = codec.encode(value)
        assert codec.decode(written) == value
    tzset()
    assert codec.decode(written).timestamp() == moment
    assert type(codec.decode(written).tzinfo) is dateutil_tz.tzlocal


@pytest.mark.parametrize("offset", [timedelta(microseconds=1), timedelta(seconds=-1), timedelta()])
@pytest.mark.parametrize("fold", [0, 1])
def test_a_fixed_offset_is_exact(offset: timedelta, fold: int) -> None:
    value = datetime(2026, 6, 1, tzinfo=timezone(offset), fold=fold)
    assert same(replay(value), value)


def test_a_day_with_two_two_o_clocks_keeps_which_one_it_was() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    second = datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=1)
    assert replay(second).utcoffset() == timedelta(hours=1)


def test_an_alias_of_an_enum_member_is_the_member() -> None:
    assert replay(Colour.ROUGE) is Colour.RED


def test_huge_numbers_are_not_limited_by_python() -> None:
    assert replay(-(7**9000)) == -(7**9000)


# Users' types


@dataclass
class Busy:
    """Would not survive its own constructor being called again."""

    total: float
    rate: InitVar[float]
    taxed: float = field(init=False)

    def __post_init__(self, rate: float) -> None:
        self.total *= rate
        self.taxed = self.total * 2
        self.log = ["made"]

    @functools.cached_property
    def expensive(self) -> object:
        return object()


def test_a_dataclass_is_rebuilt_without_its_constructor() -> None:
    value = Busy(1.0, 3.0)
    assert value.expensive
    again = replay(value, Codec(types=[Busy]))
    assert again == value
    assert again.log == ["made"]


class Strict(pydantic.BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def _double(cls, n: int) -> int:
        return n * 2


def test_a_model_is_rebuilt_without_its_validators() -> None:
    assert replay(Strict(n=2), Codec(types=[Strict])).n == 4


def test_a_model_keeps_which_fields_were_set_and_its_private_attributes() -> None:
    value = Loose.model_validate({"b": 1, "other": Decimal("1.0")})
    value._secret = (1,)  # pyright: ignore[reportPrivateUsage]
    again = replay(value)
    assert again.model_fields_set == {"a", "other"}
    assert (again.a, again.b, again._secret) == (1, 0, (1,))
    assert again == value
    again.b = 5
    assert again.model_dump()["b"] == 5


def test_a_root_model_and_a_generic_model_come_back() -> None:
    class Ids(pydantic.RootModel[list[int]]):
        pass

    assert replay(Ids([1]), Codec(types=[Ids])) == Ids([1])
    assert type(replay(Box[int](content=3))) is Box[int]


class Made(pydantic.BaseModel):
    total: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @functools.cached_property
    def doubled(self) -> int:
        return self.total * 2


def test_a_cached_property_is_worked_out_again() -> None:
    value = Made(total=2)
    assert value.doubled == 4
    assert replay(value, Codec(types=[Made])).doubled == 4


def test_a_model_that_has_private_attributes_by_now_has_changed() -> None:
    wire = codec.encode(Loose.model_validate({}))
    wire["$object"][3] = None
    with pytest.raises(ResultNotStoredError, match="private"):
        codec.decode(wire)


@pydantic.dataclasses.dataclass
class Checked:
    n: int


def test_a_pydantic_dataclass_comes_back() -> None:
    assert replay(Checked(n=1), Codec(types=[Checked])) == Checked(n=1)


# Which types are allowed

OrderId = NewType("OrderId", Order)
Orders = TypeAliasType("Orders", list[Order])
Recursive = TypeAliasType("Recursive", Union[Order, list["Recursive"]])  # type: ignore[misc]  # noqa: UP007
Bound = TypeVar("Bound", bound=Order)


class Answer(TypedDict, total=False):
    order: Order


@dataclass
class Page(Generic[T]):
    entries: list[T]


def plain() -> Order: ...  # type: ignore[empty-body]
def optional() -> Optional[Order]: ...  # noqa: UP045
def union() -> Union[int, Order]: ...  # type: ignore[empty-body]  # noqa: UP007
def bar() -> Order | None: ...
def in_list() -> list[Order]: ...  # type: ignore[empty-body]
def in_dict() -> dict[str, Sequence[Order]]: ...  # type: ignore[empty-body]
def in_tuple() -> tuple[Order, ...]: ...  # type: ignore[empty-body]
def annotated() -> Annotated[Order, "note"]: ...  # type: ignore[empty-body]
def new_type() -> OrderId: ...  # type: ignore[empty-body]
def alias() -> Orders: ...  # type: ignore[empty-body]
def recursive_alias() -> Recursive: ...  # type: ignore[empty-body]
def awaitable() -> Awaitable[Order]: ...  # type: ignore[empty-body]
def bound() -> Bound: ...  # type: ignore[empty-body, type-var]
def typed_dict() -> Answer: ...  # type: ignore[empty-body]
def generic() -> Page[Order]: ...  # type: ignore[empty-body]
def text_in_text() -> list["Order"]: ...  # type: ignore[empty-body]  # noqa: UP037
def missing_beside(event: dict[str, Any], context: LambdaContext) -> Order: ...  # type: ignore[empty-body]
async def coroutine() -> Order: ...  # type: ignore[empty-body]


@functools.wraps(plain)
def wrapper(*args: Any) -> Any: ...


class Service:
    other: int

    def method(self) -> Order: ...  # type: ignore[empty-body]

    @classmethod
    def of_class(cls) -> Order: ...  # type: ignore[empty-body]

    @staticmethod
    def static() -> Order: ...  # type: ignore[empty-body]

    def __call__(self) -> Order: ...  # type: ignore[empty-body]


SHAPES: list[Callable[..., Any]] = [
    plain, optional, union, bar, in_list, in_dict, in_tuple, annotated, new_type, alias,
    recursive_alias, awaitable, bound, typed_dict, generic, text_in_text, missing_beside, coroutine,
    wrapper, functools.partial(plain), functools.partial(functools.partial(wrapper), 1),
    Service().method, Service.method, Service.of_class, Service.static, Service(), Order,
]  # fmt: skip


@pytest.mark.parametrize("function", SHAPES, ids=lambda f: getattr(f, "__qualname__", repr(f)[:20]))
def test_the_types_of_the_return_annotation_and_of_their_fields_are_allowed(
    function: Callable[..., Any],
) -> None:
    value = Order(1, [Item("a", 2, Colour.BLUE)])
    assert replay(value, Codec(function)) == value


def test_types_known_only_inside_a_function_are_found() -> None:
    @dataclass
    class Local:
        n: int

    @dataclass
    class Outer:
        inner: Local

    def work() -> Outer:
        return Outer(Local(1))

    assert replay(work(), Codec(work)) == Outer(Local(1))


def test_a_wrapped_function_is_looked_into() -> None:
    @dataclass
    class Local:
        n: int

    def work() -> Local:
        return Local(1)

    @functools.wraps(work)
    def outer() -> Any:
        return work()

    assert replay(outer(), Codec(outer)) == Local(1)


def test_what_fills_a_generic_model_is_allowed() -> None:
    def work() -> Box[Order]:
        return Box[Order](content=Order(1))

    assert replay(work(), Codec(work)) == work()


def test_a_literal_of_enum_members_allows_the_enum() -> None:
    def work() -> Literal[Colour.RED, 1]: ...  # type: ignore[empty-body]

    assert replay(Colour.RED, Codec(work)) is Colour.RED


def test_a_class_derived_from_a_generic_one_allows_what_it_is_filled_with() -> None:
    assert replay(OrderPage([Order(1)]), Codec(types=[OrderPage])) == OrderPage([Order(1)])


@dataclass
class OrderPage(Page[Order]):
    pass


def test_a_broken_field_annotation_does_not_hide_the_others() -> None:
    @dataclass
    class Half:
        missing: Nowhere  # type: ignore[name-defined]  # noqa: F821
        order: Order

    assert replay(Half(1, Order(2)), Codec(types=[Half])) == Half(1, Order(2))


@pytest.mark.parametrize(
    "function", [len, object(), print, functools.partial(len), lambda: None, SimpleNamespace()]
)
def test_a_function_without_an_annotation_keeps_plain_values_only(function: Any) -> None:
    assert replay([1], Codec(function)) == [1]
    with pytest.raises(UnsupportedResultError, match=r"types=\[Order\]"):
        Codec(function).encode(Order(1))


def test_an_unresolvable_annotation_keeps_plain_values_only() -> None:
    def work() -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821

    assert replay(1, Codec(work)) == 1
    with pytest.raises(UnsupportedResultError):
        Codec(work).encode(Order(1))


def test_an_extended_codec_allows_both_functions_types() -> None:
    def other() -> Point: ...  # type: ignore[empty-body]

    both = Codec(plain).extended(other)
    assert replay([Order(1), Point(1)], both) == [Order(1), Point(1)]
    with pytest.raises(UnsupportedResultError):
        Codec(plain).encode(Point(1))


def test_a_subclass_is_not_what_was_named() -> None:
    @dataclass(frozen=True)
    class Special(Order):
        pass

    with pytest.raises(UnsupportedResultError):
        Codec(plain).encode(Special(1))


# Refused


class Text(str):
    __slots__ = ()


class Mapped(dict[str, int]):
    pass


@dataclass
class Lines(list[int]):
    title: str


def generate() -> Iterator[int]:
    yield 1


REFUSED: list[Any] = [
    object(), Text("a"), Mapped(a=1), Lines("x"), 1j, range(3), memoryview(b"a"), len, Order,
    ValueError("x"), io.StringIO("x"), generate(), iter([1]), map(str, [1]), SimpleNamespace(a=1),
    pydantic.SecretStr("x"), defaultdict(lambda: 1), math, NotImplemented, ...,
    datetime(2026, 1, 1, tzinfo=dateutil_tz.gettz("Europe/Berlin")),
    type("Later", (datetime,), {})(2026, 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("value", REFUSED, ids=lambda v: type(v).__name__)
def test_a_value_that_would_not_come_back_the_same_is_refused_with_its_place(value: Any) -> None:
    with pytest.raises(UnsupportedResultError) as caught:
        codec.encode({"items": [1, Order(1, note=(value,))]})
    assert caught.value.where == "$.items[1].note[0]"
    assert caught.value.type_name
    assert caught.value.type_name in str(caught.value)
    assert 'result="omit"' in str(caught.value) or "zoneinfo" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a_b-c": object()}, "$.a_b-c"),
        ({"jane@example.org": object()}, "$[…]"),
        ({"x" * 41: object()}, "$[…]"),
        ({7: object()}, "$[…]"),
        ({object(): 7}, "$[…]"),
        ({"a": 1, 7: {"b": [object()]}}, "$[…].b[0]"),
        (Model(n=[object()]), "$.n[0]"),
        (Point(0, object()), "$.y"),
        (OrderedDict(a=object()), "$.a"),
        (deque([1, object()]), "$[1]"),
    ],
)
def test_a_place_shows_names_and_indexes_only(value: Any, where: str) -> None:
    with pytest.raises(UnsupportedResultError) as caught:
        codec.encode(value)
    assert caught.value.where == where
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_type_that_was_not_named_is_refused_with_the_cure() -> None:
    with pytest.raises(UnsupportedResultError, match=r"annotate.*types=\[Order\]") as caught:
        Codec().encode([Order(1)])
    assert caught.value.type_name == f"{__name__}:Order"


def test_a_dataclass_that_is_a_list_too_is_refused_even_if_named() -> None:
    with pytest.raises(UnsupportedResultError, match="subclass of list"):
        Codec(types=[Lines]).encode(Lines("x"))


def test_a_cycle_is_refused() -> None:
    cycle: list[Any] = []
    cycle.append({"again": cycle})
    with pytest.raises(UnsupportedResultError, match="holds itself"):
        codec.encode(cycle)


@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: {1: v}, lambda v: Order(v), lambda v: Model(n=v)]
)
def test_deep_values_come_back_and_deeper_ones_are_refused(wrap: Callable[[Any], Any]) -> None:
    value: Any = 1
    for _ in range(64):
        value = wrap(value)
    assert codec.encode(replay(value)) == codec.encode(value)
    for _ in range(2000):
        value = [value]
    with pytest.raises(UnsupportedResultError):
        codec.encode(value)


def test_a_dataclass_with_a_field_that_was_never_set_is_refused() -> None:
    @dataclass
    class Unset:
        n: int = field(init=False)

    with pytest.raises(UnsupportedResultError, match="without a value"):
        Codec(types=[Unset]).encode(Unset())


def test_a_field_that_raises_when_it_is_read_does_not_break_the_delivery() -> None:
    class Raising:
        def __set_name__(self, owner: type, name: str) -> None: ...

        def __get__(self, instance: object, owner: type) -> Any:
            raise RuntimeError("payload")

        def __set__(self, instance: object, value: object) -> None: ...

    @dataclass
    class Odd:
        n: Any

    value = Odd(1)
    Odd.n = Raising()
    with pytest.raises(UnsupportedResultError) as caught:
        Codec(types=[Odd]).encode(value)
    assert "payload" not in str(caught.value)


# Not done yet


async def wait() -> None: ...


async def stream() -> AsyncIterator[int]:
    yield 1


def test_what_is_not_done_yet_is_told_from_what_is() -> None:
    coroutine = wait()
    lazy: list[Any] = [
        generate(), iter([]), map(str, []), zip(), coroutine, stream(), io.StringIO(), io.BytesIO(),
    ]  # fmt: skip
    assert all(map(is_lazy, lazy))
    coroutine.close()
    done: list[Any] = [
        None,
        [],
        {},
        "x",
        b"",
        (),
        {1},
        range(3),
        Order(1),
        Colour.RED,
        Model(n=1),
        Order,
    ]
    assert not any(map(is_lazy, done))


def lazy_generator() -> Generator[int, None, None]: ...  # type: ignore[empty-body]
def lazy_iterator() -> Iterator[int]: ...  # type: ignore[empty-body]
def lazy_bare() -> Iterator: ...  # type: ignore[type-arg, empty-body]
async def lazy_async() -> AsyncIterator[int]: ...  # type: ignore[empty-body]
def not_lazy() -> Iterable[int]: ...  # type: ignore[empty-body]
def maybe_lazy() -> Iterator[int] | list[int]: ...  # type: ignore[empty-body]


@functools.wraps(lazy_iterator)
def collected() -> list[int]:
    return list(lazy_iterator())


@pytest.mark.parametrize("function", [lazy_generator, lazy_iterator, lazy_bare, lazy_async])
def test_an_annotation_that_says_iterator_is_refused_at_decoration(
    function: Callable[..., Any],
) -> None:
    with pytest.raises(UnsupportedResultError, match="return a list"):
        check_annotation(function)


@pytest.mark.parametrize("function", [not_lazy, maybe_lazy, collected, *SHAPES, len])
def test_other_annotations_pass(function: Callable[..., Any]) -> None:
    check_annotation(function)


# Changed types, and hostile records


def changed(wire: Any, old: str, new: str) -> Any:
    return json.loads(json.dumps(wire).replace(old, new))


@pytest.mark.parametrize(
    ("value", "old", "new"),
    [
        (Order(1), "note", "remark"),
        (Order(1), '"note": null', '"note": null, "more": 1'),
        (Model(n=1), '"when"', '"then"'),
        (Point(1), '"y"', '"z"'),
        (Colour.RED, "RED", "GREEN"),
        (Right.READ | Right.RUN, "5", "4096"),
        (Order(1), ":Order", ":Bestellung"),
        (Colour.RED, ":Colour", ":Order"),
        (Order(1), ":Order", ":Colour"),
    ],
)
def test_a_type_that_has_changed_since_is_told(value: Any, old: str, new: str) -> None:
    with pytest.raises((ResultNotStoredError, UnreadableRecordError)) as caught:
        codec.decode(changed(codec.encode(value), old, new))
    if ":Colour" not in old + new:
        assert isinstance(caught.value, ResultNotStoredError)
        assert caught.value.reason == "type changed"


def test_flags_that_are_no_members_any_more_are_told() -> None:
    eject = getattr(enum, "EJECT", None)  # From Python 3.11 on, the number itself would come back.
    make: Any = enum.Flag
    cls = make("cls", "A B", module=__name__, **({"boundary": eject} if eject else {}))
    with pytest.raises(ResultNotStoredError):
        Codec(types=[cls]).decode({"$enum": [f"{__name__}:cls", 4096]})


def test_nonsense_is_no_decimal_even_where_the_context_traps_nothing() -> None:
    with localcontext() as context:
        context.clear_traps()
        with pytest.raises(UnreadableRecordError):
            codec.decode({"$decimal": "1.1.1"})


def test_a_type_that_nobody_named_is_not_built() -> None:
    with pytest.raises(ResultNotStoredError) as caught:
        Codec().decode(codec.encode(Order(1)))
    assert caught.value.reason == "type changed"


@pytest.mark.parametrize("reason", ["too large", "unsupported type", "omitted"])
def test_a_result_that_was_not_kept_says_why(reason: str) -> None:
    with pytest.raises(ResultNotStoredError) as caught:
        codec.decode(not_stored(reason))
    assert caught.value.reason == reason
    assert not codec.decode_error(not_stored(reason))


TAGS = [
    "int", "float", "decimal", "datetime", "date", "time", "timedelta", "uuid", "bytes",
    "bytearray", "tuple", "set", "frozenset", "dict", "ordereddict", "counter", "deque",
    "defaultdict", "enum", "object", "zlib", "absent", "nonsense", "",
]  # fmt: skip
names = st.sampled_from(
    ["os:system", "builtins:object", "builtins:eval", "http:HTTPStatus", "subprocess:Popen"]
    + [f"{__name__}:{cls.__qualname__}" for cls in USER_TYPES]
    + [f"{__name__}:Trap"]
)
json_leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | names
    | st.sampled_from(["RED", "UTC", "../../etc/passwd", "2026-01-01", "list", "n", "id", "__class__"])
)  # fmt: skip
hostile = st.recursive(
    json_leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["id", "items", "note", "x", "y", "n", "__class__"]), inner
        ),
        st.builds(lambda tag, payload: {"$" + tag: payload}, st.sampled_from(TAGS), inner),
        st.builds(
            lambda name, parts: {"$object": [name, *parts]}, names, st.lists(inner, max_size=5)
        ),
        st.builds(lambda name, part: {"$enum": [name, part]}, names, inner),
        inner.map(compress),
    ),
    max_leaves=10,
)


class Trap:
    def __new__(cls, *args: Any) -> Trap:
        raise AssertionError("built")


def types_in(value: Any) -> set[type]:
    found = {type(value)}
    if isinstance(value, dict):
        return found.union(*map(types_in, value), *map(types_in, value.values()))
    if isinstance(value, list | tuple | set | frozenset | deque):
        return found.union(*map(types_in, value))
    return found


def no_failure(value: Any, using: Codec) -> Any:
    try:
        return using.decode(value)
    except (ResultNotStoredError, UnreadableRecordError) as error:
        return str(error)


@given(hostile)
def test_no_record_makes_decode_raise_anything_else_or_build_a_type_nobody_named(wire: Any) -> None:
    no_failure(wire, codec)
    built = types_in(no_failure(wire, Codec(types=[Order])))
    assert not built & (set(USER_TYPES) - {Order, Item, Colour})
    codec.decode_error(wire)
    error_type(wire)


@given(values, st.randoms())
def test_a_damaged_record_is_told(value: Any, random: Any) -> None:
    text = json.dumps(codec.encode(value))
    place = random.randrange(len(text))
    damaged = text[:place] + random.choice('0a"[{}],:$') + text[place + 1 :]
    try:
        wire = json.loads(damaged)
    except ValueError:
        return
    no_failure(wire, codec)


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("payload", [{}, None, [None], "x", [1, 2, 3, 4, 5, 6], [[1]]])
def test_a_tag_with_something_else_in_it_is_unreadable(tag: str, payload: Any) -> None:
    if tag in ("tuple", "deque") and payload in ([None], [1, 2, 3, 4, 5, 6], [[1]]):
        return
    if tag == "object" and payload == "x":
        return
    if tag in ("set", "frozenset") and payload in ([None], [1, 2, 3, 4, 5, 6]):
        return
    with pytest.raises(UnreadableRecordError) as caught:
        codec.decode({f"${tag}": payload})
    assert "x" not in str(caught.value).split()


def test_a_compression_bomb_is_not_inflated() -> None:
    bomb = base64.b64encode(zlib.compress(b"[]" + b" " * 9_000_000, 9)).decode()
    with pytest.raises(UnreadableRecordError):
        codec.decode({"$zlib": bomb})


def test_what_could_not_be_unpacked_is_not_compressed() -> None:
    large = "a" * 9_000_000
    assert codec.decode(compress(large)) == large


def test_compression_makes_a_repetitive_value_fit() -> None:
    wire = compress(codec.encode({"rows": ["x" * 50] * 200}))
    assert len(json.dumps(wire)) < 400


def test_a_record_nested_past_the_limit_of_recursion_is_unreadable() -> None:
    wire: Any = 1
    for _ in range(20_000):
        wire = [wire]
    with pytest.raises(UnreadableRecordError):
        codec.decode(wire)


# Exceptions


class Declined(Exception):
    def __init__(self, code: int, *, order: Any = None) -> None:
        super().__init__(f"declined with {code}")
        self.code = code
        self.order = order


class DeclinedForGood(Declined):
    def __init__(self) -> None:
        super().__init__(7)


class Meddling(Declined):
    def __new__(cls, *args: Any, **more: Any) -> Meddling:  # pyright: ignore[reportInconsistentConstructor]
        raise AssertionError("must not be called")


def again(error: BaseException, *allowed: type[BaseException]) -> BaseException | None:
    failing = Codec(types=[Order], errors=allowed)
    return failing.decode_error(over_the_wire(failing.encode_error(error)))


ERRORS: list[BaseException] = [
    ValueError("a", 1), KeyError("k"), Declined(3, order=Order(1)), DeclinedForGood(),
    FileNotFoundError(2, "No such file", "name"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    ImportError("no", name="x", path="y"), SystemExit(3), StopIteration(4),
    InFlightError("busy", operation="o", retry_after=2.5), OSError("plain"), ZeroDivisionError(),
]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_an_exception_comes_back_with_type_text_and_attributes(error: BaseException) -> None:
    rebuilt = again(error, type(error))
    assert type(rebuilt) is type(error)
    assert rebuilt is not None
    assert (str(rebuilt), rebuilt.args, vars(rebuilt)) == (str(error), error.args, vars(error))
    for name in ("errno", "filename", "object", "name", "path", "code", "value"):
        assert getattr(rebuilt, name, None) == getattr(error, name, None)


def test_an_exception_derived_from_an_allowed_type_comes_back_as_itself() -> None:
    assert type(again(DeclinedForGood(), Declined)) is DeclinedForGood
    assert type(again(DeclinedForGood(), Exception)) is DeclinedForGood


def test_an_exception_of_a_type_that_is_not_allowed_is_known_by_name_only() -> None:
    kept = Codec().encode_error(Declined(1))
    assert Codec(errors=(ValueError, DeclinedForGood)).decode_error(kept) is None
    assert error_type(kept) == f"{__name__}:Declined"
    assert error_type(compress(kept)) == f"{__name__}:Declined"


def test_a_compressed_exception_comes_back() -> None:
    failing = Codec(errors=(ValueError,))
    rebuilt = failing.decode_error(compress(failing.encode_error(ValueError("x" * 900))))
    assert str(rebuilt) == "x" * 900


def test_of_two_exception_types_of_one_name_the_newer_is_meant() -> None:
    def define() -> type[Declined]:
        class Reloaded(Declined):
            pass

        return Reloaded

    older, newer = define(), define()
    assert type(again(older(1), Declined)) is newer


def test_an_attribute_that_cannot_be_kept_is_left_out() -> None:
    error = Declined(1)
    error.order = object()
    rebuilt = again(error, Declined)
    assert isinstance(rebuilt, Declined)
    assert rebuilt.code == 1
    assert not hasattr(rebuilt, "order")


def test_an_exception_whose_arguments_cannot_be_kept_is_known_by_name_only() -> None:
    error = ValueError(object())
    assert again(error, ValueError) is None
    assert error_type(Codec().encode_error(error)) == "builtins:ValueError"


def test_an_exception_that_cannot_be_rebuilt_is_known_by_name_only() -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        Strict(n="x")  # type: ignore[arg-type]
    kept = Codec().encode_error(caught.value)
    assert Codec(errors=(ValueError,)).decode_error(kept) is None
    assert str(error_type(kept)).endswith(":ValidationError")


def test_no_code_of_the_exception_runs_while_it_is_rebuilt() -> None:
    error = Exception.__new__(Meddling, "text")
    rebuilt = again(error, Declined)
    assert type(rebuilt) is Meddling
    assert str(rebuilt) == "text"


def test_an_exception_whose_text_needs_what_was_left_out_is_known_by_name_only() -> None:
    class Verbose(Exception):
        response: object

        def __str__(self) -> str:
            return repr(self.response)

    error = Verbose()
    error.response = object()
    assert again(error, Verbose) is None


def test_an_exception_that_resists_is_still_kept_by_name() -> None:
    class Resisting(Exception):
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise RuntimeError

        def __reduce__(self) -> Any:
            raise RuntimeError

    kept = Codec().encode_error(Resisting())
    assert str(error_type(kept)).endswith("Resisting")


@pytest.mark.parametrize(
    "kept", [None, 1, [], {}, "x", {"type": 1}, {"type": "x" * 900}, {"args": []}]
)
def test_what_is_no_kept_exception_gives_none(kept: Any) -> None:
    assert Codec(errors=(Exception,)).decode_error(kept) is None
    assert error_type(kept) is None


def test_exceptions_of_this_package_are_told_from_each_other() -> None:
    rebuilt = again(InFlightError("busy"), IdempotencyError)
    assert isinstance(rebuilt, InFlightError)
    assert rebuilt.retryable


# The record


def test_the_codec_imports_no_pydantic() -> None:
    modules = "{'pydantic', 'dateutil', 'boto3'}"
    script = f"import sys, idemguard.codec; print({modules} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_dates_and_ids_are_readable_in_the_record() -> None:
    wire = codec.encode([date(2026, 6, 1), UUID(int=7), Decimal("1.10")])
    assert wire == [
        {"$date": "2026-06-01"},
        {"$uuid": "00000000-0000-0000-0000-000000000007"},
        {"$decimal": "1.10"},
    ]
