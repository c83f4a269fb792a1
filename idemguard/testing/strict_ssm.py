"""A fake of SSM Parameter Store that refuses what AWS refuses, in process and without a network.

It stands where a boto3 SSM client stands: the same methods, keyword arguments, answers and errors.
Where AWS promises nothing (fresh reads, the order of listings, full pages), it can be told to behave
at its worst. What it refuses is in `ssm_rules`, what can be made to go wrong in `ssm_faults`.
"""

from __future__ import annotations

import base64
import hashlib
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from email.utils import formatdate
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
)
from botocore.hooks import HierarchicalEmitter

from ..clock import SYSTEM_CLOCK, Clock
from . import ssm_rules as rules
from .ssm_faults import ANY, Fault, FaultPlan, Transport
from .ssm_history import History, Parameter, Version
from .ssm_listing import below, check_filters, page, passes
from .ssm_rules import Refusal

_TRANSPORT_ERRORS: dict[Transport, Any] = {
    Transport.CLOSED: ConnectionClosedError,
    Transport.CONNECT_TIMEOUT: ConnectTimeoutError,
    Transport.UNREACHABLE: EndpointConnectionError,
}

#: Which of the quotas an operation draws on; reads share one.
_QUOTAS = {
    "PutParameter": "write",
    "GetParameter": "read",
    "GetParameters": "read",
    "GetParametersByPath": "read",
    "DeleteParameter": "delete",
    "DeleteParameters": "delete",
    "DescribeParameters": "list",
}

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class StrictSSM:
    """An in-memory Parameter Store with the method surface of ``boto3.client("ssm")``.

    Safe among threads; every call is applied at once, under one lock. Time is `clock.wall()`: it
    dates the entries (milliseconds) and the answers (the ``date`` header, whole seconds).

    Args:
        clock: the store's clock; a FrozenClock lets a test move time.
        default_tier: the account's setting for a put that names no tier: ``"Standard"``,
            ``"Advanced"`` or ``"Intelligent-Tiering"``.
        kms_keys: the KMS keys that exist, as callers name them. The attribute can be changed.
        standard_limit, advanced_limit: how many parameters of each tier there may be (10,000 and
            100,000, https://docs.aws.amazon.com/general/latest/gr/ssm.html).
        stale_reads: how often a read answers as of before the name's last write: a probability,
            or a function of the name, called with the lock held. See also `stale_next`.
        seed: of the random numbers behind that probability.
        listing_lag: seconds by which DescribeParameters is behind.
        empty_pages: an empty page with a NextToken before every other page of a listing.
        write_quota, read_quota, delete_quota, list_quota: calls within any second of PutParameter;
            of GetParameter, GetParameters and GetParametersByPath together; of the deletes; of
            DescribeParameters. None: no limit.
        high_throughput: what the account's setting for higher throughput says; changes no quota.
        region, account: of the ARNs, whose length counts.

    Attributes:
        calls: ``(operation, *names)`` of each sending, also of those that a fault hit.
        before_call: called with operation and arguments before each sending, outside of the lock.
            What it raises ends the call as a crash would: nothing is sent.
        meta: ``meta.events`` emits ``before-send.ssm.OPERATION`` for each sending, as botocore's
            clients do, so that a handler there can forbid that a call is sent again.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        *,
        default_tier: str = rules.STANDARD,
        kms_keys: Iterable[str] = ("alias/aws/ssm",),
        standard_limit: int = 10_000,
        advanced_limit: int = 100_000,
        stale_reads: float | Callable[[str], bool] = 0.0,
        seed: int = 0,
        listing_lag: float = 0.0,
        empty_pages: bool = False,
        write_quota: int | None = None,
        read_quota: int | None = None,
        delete_quota: int | None = None,
        list_quota: int | None = None,
        high_throughput: bool = False,
        region: str = "us-east-1",
        account: str = "123456789012",
    ) -> None:
        if default_tier not in rules.TIERS:
            raise ValueError(f"default_tier={default_tier!r} is none of {', '.join(rules.TIERS)}")
        self.calls: list[tuple[str, ...]] = []
        self.before_call: Callable[[str, Mapping[str, Any]], None] | None = None
        self.kms_keys = set(kms_keys)
        self.meta = SimpleNamespace(events=HierarchicalEmitter())
        self._clock = clock
        self._default_tier = default_tier
        self._limits = {rules.STANDARD: standard_limit, rules.ADVANCED: advanced_limit}
        self._stale_reads = stale_reads
        self._chance = random.Random(seed)
        self._stale_next: Counter[str] = Counter()
        self._listing_lag = listing_lag
        self._empty_pages = empty_pages
        self._quotas = {
            name: _Quota(calls)
            for name, calls in {
                "write": write_quota,
                "read": read_quota,
                "delete": delete_quota,
                "list": list_quota,
            }.items()
            if calls is not None
        }
        self._high_throughput = high_throughput
        self._arn = f"arn:aws:ssm:{region}:{account}:"
        self._endpoint = f"https://ssm.{region}.amazonaws.com/"
        self._lock = threading.Lock()
        self._faults = FaultPlan()
        self._history = History(listing_lag)
        self._requests = 0
        self._handlers: dict[str, Callable[..., dict[str, Any]]] = {
            "PutParameter": self._put,
            "GetParameter": self._get,
            "GetParameters": self._get_many,
            "GetParametersByPath": self._get_by_path,
            "DeleteParameter": self._delete,
            "DeleteParameters": self._delete_many,
            "DescribeParameters": self._describe,
            "LabelParameterVersion": self._label,
            "GetServiceSetting": self._setting,
        }

    # The client's methods.

    def put_parameter(self, **request: Any) -> dict[str, Any]:
        """Create a parameter, or with Overwrite add a version."""
        return self.call("PutParameter", request)

    def get_parameter(self, **request: Any) -> dict[str, Any]:
        """The newest version of a name, or of ``name:version``."""
        return self.call("GetParameter", request)

    def get_parameters(self, **request: Any) -> dict[str, Any]:
        """Up to ten of them."""
        return self.call("GetParameters", request)

    def get_parameters_by_path(self, **request: Any) -> dict[str, Any]:
        """The parameters below a path with their values, ten a page."""
        return self.call("GetParametersByPath", request)

    def delete_parameter(self, **request: Any) -> dict[str, Any]:
        """Delete a parameter and all its versions."""
        return self.call("DeleteParameter", request)

    def delete_parameters(self, **request: Any) -> dict[str, Any]:
        """Delete up to ten of them."""
        return self.call("DeleteParameters", request)

    def describe_parameters(self, **request: Any) -> dict[str, Any]:
        """Parameters without their values, 50 a page."""
        return self.call("DescribeParameters", request)

    def label_parameter_version(self, **request: Any) -> dict[str, Any]:
        """Label a version; a label keeps it from being dropped, so it can block writes."""
        return self.call("LabelParameterVersion", request)

    def get_service_setting(self, **request: Any) -> dict[str, Any]:
        """The account's settings for higher throughput and for the default tier."""
        return self.call("GetServiceSetting", request)

    # What a test can do to it.

    def inject(
        self,
        operation: str,
        fault: Fault,
        *,
        times: int = 1,
        after: int = 0,
        name_contains: str | None = None,
    ) -> None:
        """Let `fault` hit the next `times` calls of an operation, or of `ANY`.

        Args:
            operation: as AWS spells it, such as ``"PutParameter"``.
            fault: what happens to the call.
            times: how many calls.
            after: how many calls pass unharmed before; counted from now.
            name_contains: only calls with this text in one of their names or paths.

        Raises:
            ValueError: an operation that this fake does not have, or a senseless count.
        """
        if operation != ANY and operation not in self._handlers:
            raise ValueError(f"no operation {operation!r}; there are {', '.join(self._handlers)}")
        with self._lock:
            self._faults.add(
                operation, fault, times=times, after=after, name_contains=name_contains
            )

    def stale_next(self, name: str, times: int = 1) -> None:
        """Let the next `times` reads of `name` answer as of before its last write.

        So a read right after a create gives ParameterNotFound.
        """
        with self._lock:
            self._stale_next[name] += times

    def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an operation by its AWS name; the methods above do this.

        Raises:
            ClientError: AWS refuses the call, or an injected fault says so.
            ParamValidationError: boto3 would not send the call, or the fake lacks the member.
            HTTPClientError, ConnectionError: botocore's, from an injected fault.
        """
        rules.check_shape(operation, request, self._handlers[operation])
        names = _names(request)
        resends = 0
        while True:
            # In botocore's order: whoever forbids the sending is asked before it counts as one.
            self.meta.events.emit(f"before-send.ssm.{operation}", request=None)
            if self.before_call is not None:
                self.before_call(operation, dict(request))
            with self._lock:
                self.calls.append((operation, *names))
                fault = self._faults.take(operation, names)
            if fault.delay:
                self._clock.sleep(fault.delay)
            if not fault.hides_answer:
                return self._apply(operation, request, resends)
            if fault.applied:
                with suppress(ClientError):
                    self._apply(operation, request, resends)
            if fault.resent:
                resends += 1
                continue
            if fault.transport is not None:
                raise _TRANSPORT_ERRORS[fault.transport](
                    endpoint_url=self._endpoint, error=fault.transport.value
                )
            refusal = Refusal(fault.code or "", fault.message, status=fault.status)
            with self._lock:
                raise self._error(operation, refusal, self._now(), resends)

    def _apply(self, operation: str, request: Mapping[str, Any], resends: int) -> dict[str, Any]:
        with self._lock:
            now = self._now()
            try:
                quota = self._quotas.get(_QUOTAS.get(operation, ""))
                if quota is not None:
                    quota.charge(now)
                answer = self._handlers[operation](now, **request)
            except Refusal as refusal:
                raise self._error(operation, refusal, now, resends) from None
            return {**answer, "ResponseMetadata": self._metadata(now, HTTPStatus.OK, resends)}

    def _now(self) -> float:
        # To the microsecond, so that the date header and the milliseconds of an entry that are
        # derived from it are rounded down from the same moment.
        return round(self._clock.wall(), 6)

    def _error(self, operation: str, refusal: Refusal, now: float, resends: int) -> ClientError:
        response = {
            "Error": {"Code": refusal.code, "Message": refusal.message},
            "ResponseMetadata": self._metadata(now, refusal.status, resends),
        }
        return ClientError(response, operation)

    def _metadata(self, now: float, status: int, resends: int) -> dict[str, Any]:
        self._requests += 1
        request_id = f"00000000-0000-4000-8000-{self._requests:012x}"
        return {
            "RequestId": request_id,
            "HTTPStatusCode": int(status),
            "HTTPHeaders": {
                "date": formatdate(int(now), usegmt=True),
                "content-type": "application/x-amz-json-1.1",
                "x-amzn-requestid": request_id,
            },
            "RetryAttempts": resends,
        }

    # The operations, under the lock.

    def _put(
        self,
        now: float,
        *,
        Name: str,
        Value: str,
        Type: str | None = None,
        Description: str | None = None,
        KeyId: str | None = None,
        Overwrite: bool = False,
        Tier: str | None = None,
    ) -> dict[str, Any]:
        rules.check_new_name(Name, self._arn_of(Name))
        rules.check_value(Value)
        rules.check_description(Description)
        rules.check_tier(Tier)
        rules.check_type(Type, KeyId)
        old = self._history.current(Name)
        tier = self._tier(Tier, Value, old)
        rules.check_size(Value, tier)
        if old is None:
            self._check_creation(Name, Type, now)
        elif not Overwrite:
            raise Refusal("ParameterAlreadyExists", "the parameter exists; Overwrite is not set")
        else:
            _check_overwrite(old, Type, tier)
        if (old is None or old.newest.tier != tier) and self._full(tier):
            raise Refusal("ParameterLimitExceeded", f"{self._limits[tier]} of tier {tier} exist")
        kind = Type or (old.newest.type if old else "")
        key_id = (KeyId or "alias/aws/ssm") if kind == rules.SECURE else None
        self._check_key(key_id)
        version = Version(
            number=old.newest.number + 1 if old else 1,
            value=Value,
            type=kind,
            tier=tier,
            key_id=key_id,
            description=old.newest.description if old and Description is None else Description,
            modified=_EPOCH + timedelta(milliseconds=int(round(now * 1e6) // 1000)),
        )
        kept = old.versions[1 - rules.VERSIONS_KEPT :] if old else ()
        new = Parameter((*kept, version), old.labels if old else {})
        self._history.write(Name, new, now)
        return {"Version": version.number, "Tier": tier}
