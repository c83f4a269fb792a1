"""A fake of SSM Parameter Store that refuses what AWS refuses, in process and without a network.

It stands where a boto3 SSM client stands: the same methods, keyword arguments, answers and errors.
Where AWS promises nothing (fresh reads and listings, full pages), it can be told to behave at its
worst. `ssm_account` holds the operations, `ssm_rules` what is refused, `ssm_faults` what can be made
to go wrong on the way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
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
from .ssm_account import OPERATIONS, Account, named_in
from .ssm_faults import ANY, Fault, FaultPlan, Transport
from .ssm_limits import Quotas, Staleness
from .ssm_rules import ADVANCED, STANDARD, Refusal, check_shape

_TRANSPORT_ERRORS: dict[Transport, Any] = {
    Transport.CLOSED: ConnectionClosedError,
    Transport.CONNECT_TIMEOUT: ConnectTimeoutError,
    Transport.UNREACHABLE: EndpointConnectionError,
}


class StrictSSM:
    """An in-memory Parameter Store with the method surface of ``boto3.client("ssm")``.

    Safe among threads; every call is applied at once, under one lock. Time is `clock.wall()`: it
    dates the entries (milliseconds) and the answers (the ``date`` header, whole seconds).

    Args:
        clock: the store's clock; a FrozenClock lets a test move time.
        default_tier: the account's setting for a put that names no tier: ``"Standard"``,
            ``"Advanced"`` or ``"Intelligent-Tiering"``.
        kms_keys: the KMS keys that exist, as callers name them.
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
        clock: the store's clock.
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
        default_tier: str = STANDARD,
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
        self.calls: list[tuple[str, ...]] = []
        self.before_call: Callable[[str, Mapping[str, Any]], None] | None = None
        self.meta = SimpleNamespace(events=HierarchicalEmitter())
        self.clock = clock
        self._account = Account(
            default_tier=default_tier,
            kms_keys=set(kms_keys),
            limits={STANDARD: standard_limit, ADVANCED: advanced_limit},
            staleness=Staleness(stale_reads, seed),
            listing_lag=listing_lag,
            empty_pages=empty_pages,
            high_throughput=high_throughput,
            arn=f"arn:aws:ssm:{region}:{account}:",
        )
        self._quotas = Quotas(
            {"write": write_quota, "read": read_quota, "delete": delete_quota, "list": list_quota}
        )
        self._endpoint = f"https://ssm.{region}.amazonaws.com/"
        self._lock = threading.Lock()
        self._faults = FaultPlan()
        self._requests = 0

    @property
    def kms_keys(self) -> set[str]:
        """The KMS keys that exist; take one away to see reads of its values fail."""
        return self._account.kms_keys

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
        if operation != ANY and operation not in OPERATIONS:
            raise ValueError(f"no operation {operation!r}; there are {', '.join(OPERATIONS)}")
        with self._lock:
            self._faults.add(
                operation, fault, times=times, after=after, name_contains=name_contains
            )

    def stale_next(self, name: str, times: int = 1) -> None:
        """Let the next `times` reads of `name` answer as of before its last write.

        So a read right after a create gives ParameterNotFound.
        """
        with self._lock:
            self._account.staleness.schedule(name, times)

    def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an operation by its AWS name; the methods above do this.

        Raises:
            ClientError: AWS refuses the call, or an injected fault says so.
            ParamValidationError: boto3 would not send the call, or the fake lacks the member.
            HTTPClientError, ConnectionError: botocore's, from an injected fault.
        """
        check_shape(operation, request, OPERATIONS[operation])
        names = named_in(request)
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
                self.clock.sleep(fault.delay)
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
                self._quotas.charge(operation, now)
                answer = OPERATIONS[operation](self._account, now, **request)
            except Refusal as refusal:
                raise self._error(operation, refusal, now, resends) from None
            return {**answer, "ResponseMetadata": self._metadata(now, HTTPStatus.OK, resends)}

    def _now(self) -> float:
        # To the microsecond, so that the date header and the milliseconds of an entry that are
        # derived from it are rounded down from the same moment.
        return round(self.clock.wall(), 6)

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
