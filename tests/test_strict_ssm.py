"""The fake Parameter Store refuses what AWS refuses.

Docstrings name the fact. API: the API reference (botocore's service model says the same); guide: the
Systems Manager user guide; seen: reported by users, not promised.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ParamValidationError,
)

from idemguard.testing.frozen_clock import FrozenClock
from idemguard.testing.ssm_faults import ANY, Fault
from idemguard.testing.ssm_server import StrictSSMServer
from idemguard.testing.strict_ssm import StrictSSM
from tests.servers import DUMMY_AWS, accepts, free_port, request, serving, ssm_client_for


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def ssm(clock: FrozenClock) -> StrictSSM:
    return StrictSSM(clock)


def put(ssm: Any, name: str = "/app/a", value: str = "v", **more: Any) -> Any:
    return ssm.put_parameter(**{"Name": name, "Value": value, "Type": "String", **more})


def read(ssm: Any, name: str = "/app/a", **more: Any) -> Any:
    return ssm.get_parameter(Name=name, **more)["Parameter"]


def refusal(call: Callable[..., Any], *args: Any, **arguments: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(*args, **arguments)
    code: str = caught.value.response["Error"]["Code"]
    return code


def pages(method: Callable[..., Any], **arguments: Any) -> Iterator[list[str]]:
    token: dict[str, str] = {}
    while True:
        answer = method(**arguments, **token)
        yield [item["Name"] for item in answer["Parameters"]]
        if "NextToken" not in answer:
            return
        token = {"NextToken": answer["NextToken"]}


def winners(attempt: Callable[[], Any], threads: int = 32) -> int:
    start = threading.Barrier(threads)

    def race() -> str:
        start.wait()
        try:
            attempt()
        except ClientError as error:
            code: str = error.response["Error"]["Code"]
            return code
        return "won"

    with ThreadPoolExecutor(threads) as pool:
        outcomes = list(pool.map(lambda _: race(), range(threads)))
    assert set(outcomes) <= {"won", "ParameterAlreadyExists"}
    return outcomes.count("won")


@pytest.fixture
def switching_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


# Writing.


def test_a_create_makes_version_1(ssm: StrictSSM) -> None:
    """API: PutParameter answers with version and tier."""
    answer = put(ssm)
    assert (answer["Version"], answer["Tier"]) == (1, "Standard")
    assert read(ssm)["Value"] == "v"


def test_a_second_create_is_refused_and_changes_nothing(ssm: StrictSSM) -> None:
    """API: ParameterAlreadyExists."""
    put(ssm)
    with pytest.raises(ClientError) as caught:
        put(ssm, value="other")
    assert caught.value.response["Error"]["Code"] == "ParameterAlreadyExists"
    assert caught.value.operation_name == "PutParameter"
    assert read(ssm)["Value"] == "v"


@pytest.mark.usefixtures("switching_often")
def test_32_racing_creates_have_one_winner(ssm: StrictSSM) -> None:
    """API: create-if-absent is atomic."""
    for round_number in range(20):
        name = f"/race/{round_number}"
        assert winners(lambda name=name: put(ssm, name)) == 1  # type: ignore[misc]


@pytest.mark.usefixtures("switching_often")
def test_racing_overwrites_get_versions_of_their_own(ssm: StrictSSM) -> None:
    """API: every change raises the version by one."""
    with ThreadPoolExecutor(16) as pool:
        written = pool.map(lambda _: put(ssm, Overwrite=True)["Version"], range(400))
    assert sorted(written) == list(range(1, 401))


def test_an_overwrite_adds_a_version_or_creates(ssm: StrictSSM) -> None:
    """API: Overwrite; older versions stay readable as name:version."""
    assert put(ssm, Overwrite=True)["Version"] == 1
    assert put(ssm, value="w", Overwrite=True)["Version"] == 2
    assert read(ssm)["Value"] == "w"
    old = read(ssm, "/app/a:1")
    assert (old["Value"], old["Version"], old["Selector"]) == ("v", 1, ":1")


def test_the_newest_100_versions_are_kept(ssm: StrictSSM) -> None:
    """Guide: 100 versions are retained; reading another gives ParameterVersionNotFound."""
    for _ in range(101):
        put(ssm, Overwrite=True)
    assert read(ssm)["Version"] == 101
    assert read(ssm, "/app/a:2")["Version"] == 2
    assert refusal(read, ssm, "/app/a:1") == "ParameterVersionNotFound"
    assert refusal(read, ssm, "/app/a:102") == "ParameterVersionNotFound"


def test_a_label_on_the_oldest_version_blocks_writes(ssm: StrictSSM) -> None:
    """API: ParameterMaxVersionLimitExceeded."""
    put(ssm)
    ssm.label_parameter_version(Name="/app/a", ParameterVersion=1, Labels=["gold"])
    for _ in range(99):
        put(ssm, Overwrite=True)
    assert refusal(put, ssm, Overwrite=True) == "ParameterMaxVersionLimitExceeded"
    assert read(ssm, "/app/a:gold")["Version"] == 1
    ssm.label_parameter_version(Name="/app/a", Labels=["gold"])
    assert put(ssm, Overwrite=True)["Version"] == 101


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_deleted_name_is_free_again_after_30_seconds(
    ssm: StrictSSM, clock: FrozenClock, overwrite: bool
) -> None:
    """API: wait 30 seconds; seen: TooManyUpdates before. Versions start again at 1."""
    put(ssm)
    put(ssm, Overwrite=True)
    ssm.delete_parameter(Name="/app/a")
    clock.advance(29.9)
    assert refusal(put, ssm, Overwrite=overwrite) == "TooManyUpdates"
    clock.advance(0.1)
    assert put(ssm, Overwrite=overwrite)["Version"] == 1


@pytest.mark.parametrize(("tier", "limit"), [("Standard", 4096), ("Advanced", 8192)])
def test_size_is_limited_in_bytes(ssm: StrictSSM, tier: str, limit: int) -> None:
    """API: 4 KB and 8 KB; seen: ValidationException. Bytes, to be on the safe side."""
    put(ssm, "/a", "x" * limit, Tier=tier)
    assert refusal(put, ssm, "/b", "x" * (limit + 1), Tier=tier) == "ValidationException"
    assert refusal(put, ssm, "/b", "é" * (limit // 2) + "x", Tier=tier) == "ValidationException"


@pytest.mark.parametrize("value", ["{{x}}", "a {{ssm:b}} c", "{{\n}}", '{"a":"{{","b":{"c":{}}}'])
def test_double_braces_are_refused(ssm: StrictSSM, value: str) -> None:
    """API: values cannot hold {{}} or {{ssm:parameter-name}}."""
    assert refusal(put, ssm, value=value) == "ValidationException"


def test_braces_that_enclose_nothing_twice_are_fine(ssm: StrictSSM) -> None:
    for number, value in enumerate(['{"a":{"b":{}}}', "}}{{", "{{", "{ {x} }"]):
        put(ssm, f"/{number}", value)


def test_an_empty_value_is_refused(ssm: StrictSSM) -> None:
    """Seen: ValidationException, at least one character."""
    assert refusal(put, ssm, value="") == "ValidationException"


@pytest.mark.parametrize(
    "name",
    ["/a b", " /a", "/é", "/a:b", "/a@b", "/a//b", "//a", "/a/", "/", "a/b", "/a\n"],
)
def test_bad_names_are_refused(ssm: StrictSSM, name: str) -> None:
    """API: a-zA-Z0-9_.- and slashes; seen: a name with levels must begin with a slash."""
    assert refusal(put, ssm, name) == "ValidationException"


def test_good_names_are_taken_and_case_counts(ssm: StrictSSM) -> None:
    """API: names are case sensitive."""
    for name in ("plain", "/a", "/A", "/a/B_c.d-e/0"):
        assert put(ssm, name)["Version"] == 1


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ssm-x", "ValidationException"),
        ("/SSM/x", "ValidationException"),
        ("awsome", "AccessDeniedException"),
        ("/Aws/x", "AccessDeniedException"),
    ],
)
def test_reserved_prefixes_are_refused(ssm: StrictSSM, name: str, code: str) -> None:
    """API: no aws or ssm in front, whatever the case; seen: which code each gives."""
    assert refusal(put, ssm, name) == code


def test_a_name_has_15_levels_at_most(ssm: StrictSSM) -> None:
    """API: HierarchyLevelLimitExceededException."""
    put(ssm, "/l" * 15)
    assert refusal(put, ssm, "/l" * 16) == "HierarchyLevelLimitExceededException"


def test_a_name_has_1011_characters_at_most_with_the_arn_before_it(ssm: StrictSSM) -> None:
    """API: the 1011 characters include those of the ARN that precede the name."""
    room = 1011 - len("arn:aws:ssm:us-east-1:123456789012:parameter/")
    put(ssm, "/" + "n" * room)
    assert refusal(put, ssm, "/" + "n" * (room + 1)) == "ValidationException"


def test_a_description_has_1024_characters_at_most(ssm: StrictSSM) -> None:
    """API: ParameterDescription."""
    put(ssm, "/a", Description="d" * 1024)
    assert refusal(put, ssm, "/b", Description="d" * 1025) == "ValidationException"


def test_a_parameter_is_created_with_a_type_and_keeps_it(ssm: StrictSSM) -> None:
    """API: Type is needed to create, not to update; a change is HierarchyTypeMismatchException."""
    assert refusal(ssm.put_parameter, Name="/app/a", Value="v") == "ValidationException"
    assert refusal(put, ssm, Type="Text") == "ValidationException"
    put(ssm)
    ssm.put_parameter(Name="/app/a", Value="w", Overwrite=True)
    assert read(ssm)["Type"] == "String"
    changed = refusal(put, ssm, Type="SecureString", Overwrite=True)
    assert changed == "HierarchyTypeMismatchException"


def test_an_advanced_parameter_stays_advanced(ssm: StrictSSM) -> None:
    """API: a standard parameter can become advanced, never the other way round."""
    put(ssm)
    assert put(ssm, Overwrite=True, Tier="Advanced")["Tier"] == "Advanced"
    assert refusal(put, ssm, Overwrite=True, Tier="Standard") == "ValidationException"
    assert refusal(put, ssm, Overwrite=True) == "ValidationException"
    assert put(ssm, Overwrite=True, Tier="Intelligent-Tiering")["Tier"] == "Advanced"


def test_an_unset_tier_follows_the_account(clock: FrozenClock) -> None:
    """API: the default tier configuration applies to requests without a tier."""
    assert put(StrictSSM(clock, default_tier="Advanced"))["Tier"] == "Advanced"
    by_need = StrictSSM(clock, default_tier="Intelligent-Tiering", standard_limit=1)
    assert put(by_need, "/large", "x" * 4097)["Tier"] == "Advanced"
    assert put(by_need, "/small")["Tier"] == "Standard"
    assert put(by_need, "/one-too-many")["Tier"] == "Advanced"
    with pytest.raises(ValueError, match="default_tier='Gold'"):
        StrictSSM(clock, default_tier="Gold")


def test_an_unknown_tier_is_refused(ssm: StrictSSM) -> None:
    """API: ParameterTier."""
    assert refusal(put, ssm, Tier="Gold") == "ValidationException"


def test_each_tier_has_a_limit_of_its_own(clock: FrozenClock) -> None:
    """Guide: 10,000 standard and 100,000 advanced parameters; ParameterLimitExceeded."""
    ssm = StrictSSM(clock, standard_limit=2, advanced_limit=1)
    put(ssm, "/a")
    put(ssm, "/b")
    assert refusal(put, ssm, "/c") == "ParameterLimitExceeded"
    put(ssm, "/a", Overwrite=True)
    put(ssm, "/b", Overwrite=True, Tier="Advanced")
    put(ssm, "/c")
    assert refusal(put, ssm, "/c", Overwrite=True, Tier="Advanced") == "ParameterLimitExceeded"
    ssm.delete_parameter(Name="/b")
    assert put(ssm, "/d", Tier="Advanced")["Version"] == 1


def test_ten_thousand_standard_parameters_by_default(ssm: StrictSSM) -> None:
    for number in range(10_000):
        put(ssm, f"/{number}")
    assert refusal(put, ssm, "/x") == "ParameterLimitExceeded"


def test_a_secure_string_needs_a_key_that_exists(clock: FrozenClock) -> None:
    """API: KeyId, with the account's own key by default; InvalidKeyId."""
    ssm = StrictSSM(clock, kms_keys={"alias/aws/ssm", "alias/mine"})
    put(ssm, "/default", Type="SecureString")
    put(ssm, "/mine", Type="SecureString", KeyId="alias/mine")
    unknown = refusal(put, ssm, "/other", Type="SecureString", KeyId="alias/other")
    assert unknown == "InvalidKeyId"
    assert refusal(put, ssm, "/plain", KeyId="alias/mine") == "ValidationException"
    ssm.kms_keys.remove("alias/mine")
    assert refusal(read, ssm, "/mine", WithDecryption=True) == "InvalidKeyId"
    assert read(ssm, "/default", WithDecryption=True)["Value"] == "v"


def test_a_secure_string_is_readable_with_decryption_only(ssm: StrictSSM) -> None:
    """API: WithDecryption; ignored for String."""
    put(ssm, value="secret", Type="SecureString")
    put(ssm, "/plain", "open")
    assert "secret" not in read(ssm)["Value"]
    assert read(ssm, WithDecryption=True)["Value"] == "secret"
    answer = ssm.get_parameters(Names=["/app/a", "/plain"], WithDecryption=True)
    assert [item["Value"] for item in answer["Parameters"]] == ["secret", "open"]


# Reading and deleting.


def test_a_missing_parameter_is_not_found(ssm: StrictSSM) -> None:
    """API: ParameterNotFound for GetParameter and DeleteParameter."""
    assert refusal(read, ssm) == "ParameterNotFound"
    assert refusal(ssm.delete_parameter, Name="/app/a") == "ParameterNotFound"
    assert refusal(read, ssm, "/app/") == "ValidationException"


def test_entries_and_answers_are_dated_by_the_stores_clock(clock: FrozenClock) -> None:
    """API: LastModifiedDate, to the millisecond; HTTP: Date, to the second, rounded down."""
    clock = FrozenClock(wall=1_750_000_000.9876)
    ssm = StrictSSM(clock)
    answer = put(ssm)
    assert answer["ResponseMetadata"]["HTTPHeaders"]["date"] == "Sun, 15 Jun 2025 15:06:40 GMT"
    clock.advance(60)
    with pytest.raises(ClientError) as caught:
        put(ssm)
    date = parsedate_to_datetime(caught.value.response["ResponseMetadata"]["HTTPHeaders"]["date"])
    assert date == datetime(2025, 6, 15, 15, 7, 40, tzinfo=timezone.utc)
    modified = read(ssm)["LastModifiedDate"]
    assert modified == datetime(2025, 6, 15, 15, 6, 40, 987_000, tzinfo=timezone.utc)
    assert modified.utcoffset() == timedelta(0)


def test_each_version_has_a_date_of_its_own(ssm: StrictSSM, clock: FrozenClock) -> None:
    put(ssm)
    clock.advance(2.5)
    put(ssm, Overwrite=True)
    first, second = read(ssm, "/app/a:1"), read(ssm)
    assert second["LastModifiedDate"] - first["LastModifiedDate"] == timedelta(seconds=2.5)


def test_a_batch_read_tells_what_is_missing(ssm: StrictSSM) -> None:
    """API: InvalidParameters; selectors work in batches too."""
    put(ssm, "/b")
    put(ssm, "/a", "old")
    put(ssm, "/a", "new", Overwrite=True)
    answer = ssm.get_parameters(Names=["/b", "/none", "/a:1", "/a:9"])
    assert [(item["Name"], item["Value"]) for item in answer["Parameters"]] == [
        ("/a", "old"),
        ("/b", "v"),
    ]
    assert answer["InvalidParameters"] == ["/a:9", "/none"]


def test_a_batch_delete_tells_what_is_missing(ssm: StrictSSM) -> None:
    """API: DeletedParameters and InvalidParameters."""
    put(ssm, "/a")
    answer = ssm.delete_parameters(Names=["/none", "/a"])
    assert (answer["DeletedParameters"], answer["InvalidParameters"]) == (["/a"], ["/none"])
    assert refusal(read, ssm, "/a") == "ParameterNotFound"
    assert refusal(put, ssm, "/a") == "TooManyUpdates"


@pytest.mark.parametrize("method", ["get_parameters", "delete_parameters"])
def test_a_batch_has_ten_names_at_most(ssm: StrictSSM, method: str) -> None:
    """API: ParameterNameList, 1 to 10."""
    names = [f"/{number}" for number in range(11)]
    assert refusal(getattr(ssm, method), Names=names) == "ValidationException"
    assert getattr(ssm, method)(Names=names[:10])["InvalidParameters"] == sorted(names[:10])


def test_what_boto3_would_not_send_is_not_sent(ssm: StrictSSM) -> None:
    """boto3 checks members and their types before it sends."""
    for members in (
        {"Name": "/a"},
        {"Name": "/a", "Value": "v", "Typ": "String"},
        {"Name": "/a", "Value": "v", "Overwrite": "no"},
        {"Name": "/a", "Value": "v", "Description": None},
    ):
        with pytest.raises(ParamValidationError):
            ssm.put_parameter(**members)
    with pytest.raises(ParamValidationError, match="StrictSSM does not support Tags"):
        put(ssm, Tags=[{"Key": "k", "Value": "v"}])
    assert ssm.calls == []


# Listing.


@pytest.fixture
def tree(ssm: StrictSSM) -> StrictSSM:
    for name in ("/app/a", "/app/b/c", "/app/b/d", "/apple", "/other", "plain"):
        put(ssm, name, Description="about " + name)
    return ssm


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({"Key": "Path", "Option": "Recursive", "Values": ["/app"]}, ["/app/a", "/app/b/c", "/app/b/d"]),
        ({"Key": "Path", "Option": "OneLevel", "Values": ["/app"]}, ["/app/a"]),
        ({"Key": "Path", "Values": ["/"]}, ["/apple", "/other"]),
        ({"Key": "Name", "Option": "BeginsWith", "Values": ["/app"]},
         ["/app/a", "/app/b/c", "/app/b/d", "/apple"]),
        ({"Key": "Name", "Option": "Equals", "Values": ["/app", "plain"]}, ["plain"]),
        ({"Key": "Name", "Values": ["/other"]}, ["/other"]),
    ],
)  # fmt: skip
def test_describe_filters(tree: StrictSSM, chosen: dict[str, Any], names: list[str]) -> None:
    """API: ParameterStringFilter."""
    (found,) = pages(tree.describe_parameters, ParameterFilters=[chosen])
    assert found == names


def test_all_filters_have_to_pass(tree: StrictSSM) -> None:
    filters = [
        {"Key": "Path", "Option": "Recursive", "Values": ["/app"]},
        {"Key": "Name", "Option": "BeginsWith", "Values": ["/app/b"]},
    ]
    (found,) = pages(tree.describe_parameters, ParameterFilters=filters)
    assert found == ["/app/b/c", "/app/b/d"]


@pytest.mark.parametrize(
    ("chosen", "code"),
    [
        ({"Key": "Colour", "Values": ["x"]}, "InvalidFilterKey"),
        ({"Key": "Path", "Option": "Equals", "Values": ["/a"]}, "InvalidFilterOption"),
        ({"Key": "Name"}, "InvalidFilterValue"),
        ({"Key": "Path", "Values": ["a"]}, "ValidationException"),
        ({"Key": "Path", "Values": ["/a//b"]}, "ValidationException"),
    ],
)
def test_bad_filters_are_refused(ssm: StrictSSM, chosen: dict[str, Any], code: str) -> None:
    """API: the errors of DescribeParameters."""
    assert refusal(ssm.describe_parameters, ParameterFilters=[chosen]) == code


def test_describe_gives_no_values(ssm: StrictSSM, clock: FrozenClock) -> None:
    """API: ParameterMetadata."""
    put(ssm, value="secret", Description="first")
    clock.advance(5)
    put(ssm, value="secret", Overwrite=True, Tier="Advanced")
    answer = ssm.describe_parameters()
    (item,) = answer["Parameters"]
    assert "secret" not in repr(answer)
    assert (item["Type"], item["Tier"], item["Version"]) == ("String", "Advanced", 2)
    assert item["Description"] == "first"
    assert item["LastModifiedDate"] == datetime.fromtimestamp(clock.wall(), timezone.utc)


def test_describe_gives_50_a_page(ssm: StrictSSM) -> None:
    """API: MaxResults 1 to 50."""
    for number in range(101):
        put(ssm, f"/p/{number:03}")
    sizes = [len(found) for found in pages(ssm.describe_parameters)]
    assert sizes == [50, 50, 1]
    assert refusal(ssm.describe_parameters, MaxResults=51) == "ValidationException"
    assert refusal(ssm.describe_parameters, NextToken="x") == "InvalidNextToken"


def test_by_path_gives_values_ten_a_page(ssm: StrictSSM) -> None:
    """API: GetParametersByPath, MaxResults 1 to 10, one level unless Recursive."""
    for number in range(12):
        put(ssm, f"/p/{number:02}")
    put(ssm, "/p/below/x", "deep")
    by_path = ssm.get_parameters_by_path
    assert [len(found) for found in pages(by_path, Path="/p")] == [10, 2]
    assert [len(found) for found in pages(by_path, Path="/p", Recursive=True)] == [10, 3]
    assert by_path(Path="/p/below")["Parameters"][0]["Value"] == "deep"
    assert by_path(Path="/nothing")["Parameters"] == []
    assert refusal(by_path, Path="/p", MaxResults=11) == "ValidationException"
    assert refusal(by_path, Path="p") == "ValidationException"


def test_a_page_does_not_skip_what_deletes_move_up(ssm: StrictSSM) -> None:
    for number in range(4):
        put(ssm, f"/p/{number}")
    first = ssm.describe_parameters(MaxResults=2)
    ssm.delete_parameters(Names=[item["Name"] for item in first["Parameters"]])
    second = ssm.describe_parameters(MaxResults=2, NextToken=first["NextToken"])
    assert [item["Name"] for item in second["Parameters"]] == ["/p/2", "/p/3"]


def test_pages_can_be_empty_with_a_token(clock: FrozenClock) -> None:
    """API: a page may have fewer results than asked for, even none, and a NextToken."""
    ssm = StrictSSM(clock, empty_pages=True)
    for number in range(3):
        put(ssm, f"/p/{number}")
    expected = [[], ["/p/0", "/p/1"], [], ["/p/2"]]
    assert list(pages(ssm.describe_parameters, MaxResults=2)) == expected
    assert list(pages(ssm.get_parameters_by_path, Path="/p", MaxResults=2)) == expected


def test_listings_can_be_behind(clock: FrozenClock) -> None:
    """Seen: DescribeParameters lags by seconds."""
    ssm = StrictSSM(clock, listing_lag=3)

    def listed() -> list[int]:
        return [item["Version"] for item in ssm.describe_parameters()["Parameters"]]

    put(ssm)
    assert listed() == []
    clock.advance(2)
    put(ssm, Overwrite=True)
    put(ssm, Overwrite=True)
    clock.advance(1)
    assert listed() == [1]
    clock.advance(2)
    assert listed() == [3]
    ssm.delete_parameter(Name="/app/a")
    assert listed() == [3]
    clock.advance(3)
    assert listed() == []


# Consistency, quotas, settings.


def test_a_scheduled_read_is_as_of_before_the_last_write(ssm: StrictSSM) -> None:
    """Seen: ParameterNotFound right after a create; no consistency is promised."""
    put(ssm)
    ssm.stale_next("/app/a")
    assert refusal(read, ssm) == "ParameterNotFound"
    assert read(ssm)["Version"] == 1
    put(ssm, Overwrite=True)
    ssm.stale_next("/app/a", times=3)
    assert read(ssm)["Version"] == 1
    assert refusal(read, ssm, "/app/a:2") == "ParameterVersionNotFound"
    assert ssm.get_parameters(Names=["/app/a"])["Parameters"][0]["Version"] == 1
    ssm.delete_parameter(Name="/app/a")
    ssm.stale_next("/app/a")
    assert read(ssm)["Version"] == 2
    assert refusal(read, ssm) == "ParameterNotFound"


def test_stale_reads_by_function_and_by_chance(clock: FrozenClock) -> None:
    by_name = StrictSSM(clock, stale_reads=lambda name: name == "/old")
    for name in ("/old", "/new"):
        put(by_name, name)
    assert refusal(read, by_name, "/old") == "ParameterNotFound"
    assert read(by_name, "/new")["Version"] == 1

    def missed(seed: int) -> list[bool]:
        by_chance = StrictSSM(clock, stale_reads=0.3, seed=seed)
        put(by_chance)
        return [by_chance.get_parameters(Names=["/app/a"])["Parameters"] == [] for _ in range(200)]

    assert 20 < sum(missed(1)) < 100
    assert missed(1) == missed(1) != missed(2)


def test_writes_never_act_on_stale_state(clock: FrozenClock) -> None:
    """API: create-if-absent and version numbers are exact."""
    ssm = StrictSSM(clock, stale_reads=1.0)
    put(ssm)
    assert refusal(put, ssm) == "ParameterAlreadyExists"
    assert put(ssm, Overwrite=True)["Version"] == 2


def test_calls_beyond_the_quota_are_throttled(clock: FrozenClock) -> None:
    """Seen: 40 reads of all kinds and 3 writes a second by default; ThrottlingException."""
    ssm = StrictSSM(clock, read_quota=3, write_quota=1, delete_quota=1, list_quota=1)
    put(ssm)
    read(ssm)
    ssm.get_parameters(Names=["/app/a"])
    ssm.get_parameters_by_path(Path="/app")
    ssm.describe_parameters()
    assert refusal(put, ssm, Overwrite=True) == "ThrottlingException"
    assert refusal(read, ssm) == "ThrottlingException"
    assert refusal(ssm.describe_parameters) == "ThrottlingException"
    clock.advance(0.9)
    assert refusal(read, ssm) == "ThrottlingException"
    clock.advance(0.1)
    assert read(ssm)["Version"] == 1
    ssm.delete_parameter(Name="/app/a")
    assert refusal(ssm.delete_parameters, Names=["/app/a"]) == "ThrottlingException"


def test_the_accounts_settings_can_be_read(clock: FrozenClock) -> None:
    """API: GetServiceSetting; ServiceSettingNotFound."""

    def setting(ssm: StrictSSM, name: str) -> str:
        value: str = ssm.get_service_setting(SettingId=name)["ServiceSetting"]["SettingValue"]
        return value

    throughput = "/ssm/parameter-store/high-throughput-enabled"
    ssm = StrictSSM(clock, high_throughput=True, default_tier="Advanced")
    assert setting(StrictSSM(clock), throughput) == "false"
    assert setting(ssm, throughput) == "true"
    assert setting(ssm, f"arn:aws:ssm:us-east-1:123456789012:servicesetting{throughput}") == "true"
    assert setting(ssm, "/ssm/parameter-store/default-parameter-tier") == "Advanced"
    assert refusal(ssm.get_service_setting, SettingId="/ssm/x") == "ServiceSettingNotFound"


# Faults.


@pytest.mark.parametrize(
    ("fault", "code", "status"),
    [
        (Fault.throttle(), "ThrottlingException", 400),
        (Fault.server_error(), "InternalServerError", 500),
        (Fault.denied(), "AccessDeniedException", 400),
        (Fault.too_many_updates(), "TooManyUpdates", 400),
        (Fault.expired_signature(), "InvalidSignatureException", 400),
        (Fault.kms_key_not_found(), "InvalidKeyId", 400),
        (Fault.kms_key_disabled(), "InvalidKeyId", 400),
        (Fault.kms_denied(), "AccessDeniedException", 400),
        (Fault.refused("Odd", "text", status=418), "Odd", 418),
    ],
)
def test_a_refusing_fault_is_an_answer_and_applies_nothing(
    ssm: StrictSSM, fault: Fault, code: str, status: int
) -> None:
    ssm.inject("PutParameter", fault)
    with pytest.raises(ClientError) as caught:
        put(ssm)
    response = caught.value.response
    assert response["Error"]["Code"] == code
    assert response["Error"]["Message"] == fault.message
    assert response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert "date" in response["ResponseMetadata"]["HTTPHeaders"]
    assert put(ssm)["Version"] == 1


def test_a_server_error_may_come_after_the_write(ssm: StrictSSM) -> None:
    ssm.inject("PutParameter", Fault.server_error(applied=True))
    assert refusal(put, ssm) == "InternalServerError"
    assert read(ssm)["Version"] == 1


def test_a_lost_response_is_applied(ssm: StrictSSM) -> None:
    ssm.inject("PutParameter", Fault.lost_response())
    with pytest.raises(ConnectionClosedError):
        put(ssm)
    assert read(ssm)["Version"] == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [(Fault.connect_timeout(), ConnectTimeoutError), (Fault.not_sent(), EndpointConnectionError)],
)
def test_an_unsent_call_is_not_applied(
    ssm: StrictSSM, fault: Fault, error: type[Exception]
) -> None:
    ssm.inject("PutParameter", fault)
    with pytest.raises(error):
        put(ssm)
    assert refusal(read, ssm) == "ParameterNotFound"


def test_a_resent_create_is_refused_by_its_own_first_write(ssm: StrictSSM) -> None:
    """Measured: the SDK's retry of a create reports ParameterAlreadyExists for our own write."""
    ssm.inject("PutParameter", Fault.lost_response(resent=True))
    assert refusal(put, ssm) == "ParameterAlreadyExists"
    assert ssm.calls == [("PutParameter", "/app/a")] * 2
    assert read(ssm)["Version"] == 1


def test_a_resent_overwrite_writes_twice(ssm: StrictSSM) -> None:
    """Measured: of an overwrite, the SDK's retry writes twice."""
    put(ssm)
    ssm.inject("PutParameter", Fault.lost_response(resent=True))
    answer = put(ssm, Overwrite=True)
    assert answer["Version"] == 3
    assert answer["ResponseMetadata"]["RetryAttempts"] == 1


def test_others_can_act_between_a_call_and_its_resending(
    ssm: StrictSSM, clock: FrozenClock
) -> None:
    put(ssm, value="first")
    ssm.inject("DeleteParameter", Fault.lost_response(resent=True))
    deletes: list[str] = []

    def between(operation: str, request: Any) -> None:
        if operation == "DeleteParameter":
            deletes.append(request["Name"])
            if len(deletes) == 2:
                clock.advance(30)
                put(ssm, value="second")

    ssm.before_call = between
    ssm.delete_parameter(Name="/app/a")
    assert deletes == ["/app/a"] * 2
    assert refusal(read, ssm) == "ParameterNotFound"


def test_a_handler_can_forbid_the_resending(ssm: StrictSSM) -> None:
    """botocore emits before-send for each sending; what a handler raises ends the call."""

    class Once(Exception):
        pass

    sent: list[str] = []

    def once(event_name: str, **_: Any) -> None:
        if sent:
            raise Once
        sent.append(event_name)

    put(ssm)
    ssm.meta.events.register_first("before-send.ssm.DeleteParameters", once)
    ssm.inject("DeleteParameters", Fault.lost_response(resent=True))
    with pytest.raises(Once):
        ssm.delete_parameters(Names=["/app/a"])
    assert sent == ["before-send.ssm.DeleteParameters"]
    assert [call for call in ssm.calls if call[0] == "DeleteParameters"] == [
        ("DeleteParameters", "/app/a")
    ]
    assert refusal(read, ssm) == "ParameterNotFound"


def test_a_slow_call_is_applied_when_it_arrives(ssm: StrictSSM, clock: FrozenClock) -> None:
    sent = clock.wall()
    ssm.inject("PutParameter", replace(Fault.lost_response(), delay=7))
    with pytest.raises(ConnectionClosedError):
        put(ssm)
    ssm.inject("GetParameter", Fault.slow(2))
    assert read(ssm)["LastModifiedDate"].timestamp() == sent + 7
    assert clock.wall() == sent + 9


def test_a_slow_call_does_not_hold_up_the_others(ssm: StrictSSM, clock: FrozenClock) -> None:
    arrived, go_on = threading.Event(), threading.Event()

    def wait(seconds: float) -> None:
        arrived.set()
        assert go_on.wait(10)

    clock.sleep = wait  # type: ignore[method-assign]
    ssm.inject("PutParameter", Fault.slow(1))
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(put, ssm, Overwrite=True)
        assert arrived.wait(10)
        assert put(ssm)["Version"] == 1
        go_on.set()
        assert slow.result()["Version"] == 2


def test_faults_hit_the_calls_they_are_meant_for(ssm: StrictSSM) -> None:
    ssm.inject("PutParameter", Fault.throttle(), times=2, after=2, name_contains="/b")
    put(ssm, "/a")
    put(ssm, "/b")
    put(ssm, "/b", Overwrite=True)
    assert refusal(put, ssm, "/b", Overwrite=True) == "ThrottlingException"
    put(ssm, "/a", Overwrite=True)
    read(ssm, "/b")
    assert refusal(put, ssm, "/b", Overwrite=True) == "ThrottlingException"
    assert put(ssm, "/b", Overwrite=True)["Version"] == 3


def test_faults_come_one_after_the_other(ssm: StrictSSM) -> None:
    ssm.inject(ANY, Fault.throttle())
    ssm.inject(ANY, Fault.denied())
    assert refusal(ssm.describe_parameters) == "ThrottlingException"
    assert refusal(put, ssm) == "AccessDeniedException"
    put(ssm)


def test_a_fault_for_nothing_is_refused(ssm: StrictSSM) -> None:
    with pytest.raises(ValueError, match="no operation 'put_parameter'"):
        ssm.inject("put_parameter", Fault.throttle())
    with pytest.raises(ValueError, match="times=0"):
        ssm.inject("PutParameter", Fault.throttle(), times=0)


def test_calls_are_counted_with_their_names(ssm: StrictSSM) -> None:
    put(ssm)
    ssm.get_parameters(Names=["/b", "/a"])
    ssm.describe_parameters(ParameterFilters=[{"Key": "Path", "Values": ["/app"]}])
    ssm.describe_parameters()
    ssm.get_parameters_by_path(Path="/app")
    assert ssm.calls == [
        ("PutParameter", "/app/a"),
        ("GetParameters", "/b", "/a"),
        ("DescribeParameters", "/app"),
        ("DescribeParameters",),
        ("GetParametersByPath", "/app"),
    ]


def test_before_call_can_crash_a_call(ssm: StrictSSM) -> None:
    def crash(operation: str, request: Any) -> None:
        raise KeyboardInterrupt(f"{operation} {request['Name']}")

    ssm.before_call = crash
    with pytest.raises(KeyboardInterrupt, match="PutParameter /app/a"):
        put(ssm)
    assert ssm.calls == []
    ssm.before_call = None
    assert refusal(read, ssm) == "ParameterNotFound"


def test_before_call_may_use_the_store_itself(ssm: StrictSSM) -> None:
    def first(operation: str, request: Any) -> None:
        ssm.before_call = None
        put(ssm, value="first")

    ssm.before_call = first
    assert refusal(put, ssm, value="second") == "ParameterAlreadyExists"
    assert read(ssm)["Value"] == "first"


# The clock.


def test_a_frozen_clock_moves_only_when_told(clock: FrozenClock) -> None:
    monotonic, wall = clock.monotonic(), clock.wall()
    assert (clock.monotonic(), clock.wall()) == (monotonic, wall)
    clock.advance(1.5)
    clock.sleep(2)
    assert (clock.monotonic(), clock.wall()) == (monotonic + 3.5, wall + 3.5)
    with pytest.raises(ValueError, match="only moves forward"):
        clock.advance(-1)
    assert FrozenClock(wall=7).wall() == 7


def test_a_frozen_clocks_chance_is_settled(clock: FrozenClock) -> None:
    assert clock.jitter(4) == 2
    clock.next_jitter = 3
    assert (clock.jitter(4), clock.jitter(1)) == (3, 1)


# The server.


@pytest.fixture
def server(clock: FrozenClock) -> Iterator[StrictSSMServer]:
    with StrictSSMServer(StrictSSM(clock)) as running:
        yield running


@pytest.fixture
def client(server: StrictSSMServer) -> Iterator[Any]:
    made = ssm_client_for(server.url, retries={"total_max_attempts": 1}, max_pool_connections=32)
    yield made
    made.close()


def test_a_real_client_sees_what_the_fake_says(
    server: StrictSSMServer, client: Any, clock: FrozenClock
) -> None:
    clock.advance(0.123)
    answer = put(client, Description="d")
    assert (answer["Version"], answer["Tier"]) == (1, "Standard")
    assert answer["ResponseMetadata"]["HTTPHeaders"]["date"] == "Sun, 15 Jun 2025 15:06:40 GMT"
    clock.advance(1)
    put(client, value="w", Overwrite=True)
    assert read(client, "/app/a:1")["Value"] == "v"
    item = read(client)
    assert item == read(server.ssm)
    assert item["LastModifiedDate"].timestamp() == 1_750_000_001.123
    described = client.describe_parameters(
        ParameterFilters=[{"Key": "Path", "Option": "Recursive", "Values": ["/app"]}]
    )
    assert described["Parameters"] == server.ssm.describe_parameters()["Parameters"]
    assert len(client.get_parameters_by_path(Path="/app")["Parameters"]) == 1
    assert client.get_parameters(Names=["/app/a", "/x"])["InvalidParameters"] == ["/x"]
    assert client.delete_parameters(Names=["/app/a"])["DeletedParameters"] == ["/app/a"]
    setting = client.get_service_setting(SettingId="/ssm/parameter-store/high-throughput-enabled")
    assert setting["ServiceSetting"]["SettingValue"] == "false"
    put(client, "/b")
    client.delete_parameter(Name="/b")
    assert client.describe_parameters()["Parameters"] == []


def test_a_real_client_raises_the_fakes_errors(server: StrictSSMServer, client: Any) -> None:
    put(client)
    with pytest.raises(client.exceptions.ParameterAlreadyExists) as caught:
        put(client)
    metadata = caught.value.response["ResponseMetadata"]
    assert metadata["HTTPHeaders"]["date"] == "Sun, 15 Jun 2025 15:06:40 GMT"
    assert refusal(read, client, "/none") == "ParameterNotFound"
    assert refusal(read, client, "/app/a:9") == "ParameterVersionNotFound"
    assert refusal(put, client, "/b", "{{x}}") == "ValidationException"
    assert refusal(put, client, "/b", Tags=[]) == "ValidationException"
    assert refusal(client.get_parameter_history, Name="/b") == "UnknownOperationException"
    server.ssm.inject("GetParameter", Fault.server_error())
    with pytest.raises(ClientError) as caught:
        read(client)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500


def test_a_fault_without_an_answer_closes_the_connection(
    server: StrictSSMServer, client: Any
) -> None:
    for fault in (Fault.lost_response(), Fault.not_sent()):
        server.ssm.inject("PutParameter", fault)
    with pytest.raises(ConnectionClosedError):
        put(client, "/lost")
    with pytest.raises(ConnectionClosedError):
        put(client, "/unsent")
    assert read(client, "/lost")["Version"] == 1
    assert refusal(read, client, "/unsent") == "ParameterNotFound"


def test_the_sdks_own_retry_meets_its_own_write(server: StrictSSMServer) -> None:
    """Measured: botocore sends a lost create again and reports ParameterAlreadyExists."""
    client = ssm_client_for(server.url, retries={"total_max_attempts": 2, "mode": "standard"})
    server.ssm.inject("PutParameter", Fault.lost_response())
    assert refusal(put, client) == "ParameterAlreadyExists"
    assert server.ssm.calls == [("PutParameter", "/app/a")] * 2
    client.close()


def test_32_racing_creates_over_http_have_one_winner(client: Any) -> None:
    """API: create-if-absent is atomic."""
    for number in range(3):
        assert winners(lambda name=f"/race/{number}": put(client, name)) == 1  # type: ignore[misc]


def test_a_stopped_server_answers_nobody() -> None:
    with StrictSSMServer() as running:
        client = ssm_client_for(running.url, retries={"total_max_attempts": 1})
        put(client)
    with pytest.raises((EndpointConnectionError, ConnectionClosedError)):
        read(client)
    client.close()


def test_what_is_no_call_is_refused(server: StrictSSMServer) -> None:
    assert "UnknownOperationException" in request("POST", server.url + "/", {})


def test_the_server_runs_as_a_process_of_its_own() -> None:
    port = free_port()
    command = [sys.executable, "-m", "idemguard.testing.ssm_server", "--port", str(port)]
    env = {**os.environ, **DUMMY_AWS, "PYTHONPATH": os.getcwd()}
    with serving(command, env, lambda: accepts(port)) as running:
        client = ssm_client_for(f"http://127.0.0.1:{port}")
        assert put(client)["Version"] == 1
        assert running.output() == f"http://127.0.0.1:{port}\n"
        client.close()
