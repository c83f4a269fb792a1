"""The operations of the fake Parameter Store, on one account in one Region.

Each takes the moment of the call (seconds since the epoch) and the members of the request, and
answers with the members of the response. Not safe among threads: the fake's lock guards it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from . import ssm_rules as rules
from .ssm_history import History, Parameter, Version
from .ssm_limits import Staleness
from .ssm_listing import below, check_filters, page, passes
from .ssm_rules import Refusal

_DEFAULT_KEY = "alias/aws/ssm"
_SETTINGS = "/ssm/parameter-store/"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass
class Account:
    """What the account holds and how it is set; StrictSSM documents the settings."""

    default_tier: str
    kms_keys: set[str]
    limits: Mapping[str, int]
    staleness: Staleness
    listing_lag: float
    empty_pages: bool
    high_throughput: bool
    arn: str
    history: History = field(init=False)

    def __post_init__(self) -> None:
        if self.default_tier not in rules.TIERS:
            raise ValueError(f"default_tier={self.default_tier!r}: use {', '.join(rules.TIERS)}")
        self.history = History(self.listing_lag)

    def put_parameter(
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
        old = self.history.current(Name)
        tier = self._tier(Tier, Value, old)
        rules.check_size(Value, tier)
        if old is None:
            self._check_creation(Name, Type, now)
        elif not Overwrite:
            raise Refusal("ParameterAlreadyExists", "it exists, and Overwrite is not set")
        else:
            _check_overwrite(old, Type, tier)
        if (old is None or old.newest.tier != tier) and self._is_full(tier):
            raise Refusal("ParameterLimitExceeded", f"{self.limits[tier]} of tier {tier} exist")
        before = old.newest if old else None
        kind = Type or (before.type if before else "")
        key_id = (KeyId or _DEFAULT_KEY) if kind == rules.SECURE else None
        self._check_key(key_id)
        version = Version(
            number=before.number + 1 if before else 1,
            value=Value,
            type=kind,
            tier=tier,
            key_id=key_id,
            # Not documented; emulators agree that an overwrite without one keeps the old one.
            description=before.description if before and Description is None else Description,
            modified=_EPOCH + timedelta(milliseconds=round(now * 1e6) // 1000),
        )
        kept = old.versions[1 - rules.VERSIONS_KEPT :] if old else ()
        labels = old.labels if old else {}
        self.history.write(Name, Parameter((*kept, version), labels), now)
        return {"Version": version.number, "Tier": tier}

    def get_parameter(
        self, now: float, *, Name: str, WithDecryption: bool = False
    ) -> dict[str, Any]:
        name, selector = _split(Name)
        parameter = self._read(name)
        if parameter is None:
            raise Refusal("ParameterNotFound")
        version = parameter.select(selector)
        return {"Parameter": self._shown(name, selector, version, WithDecryption)}

    def get_parameters(
        self, now: float, *, Names: Sequence[str], WithDecryption: bool = False
    ) -> dict[str, Any]:
        rules.check_batch(Names)
        found: list[dict[str, Any]] = []
        missing: list[str] = []
        # In an order of its own: AWS promises none.
        for given in sorted(set(Names)):
            name, selector = _split(given)
            parameter = self._read(name)
            try:
                version = parameter.select(selector) if parameter else None
            except Refusal:
                version = None
            if version is None:
                missing.append(given)
            else:
                found.append(self._shown(name, selector, version, WithDecryption))
        return {"Parameters": found, "InvalidParameters": missing}

    def get_parameters_by_path(
        self,
        now: float,
        *,
        Path: str,
        Recursive: bool = False,
        WithDecryption: bool = False,
        MaxResults: int = rules.PATH_PAGE,
        NextToken: str | None = None,
    ) -> dict[str, Any]:
        rules.check_path(Path)
        rules.check_page_size(MaxResults, rules.PATH_PAGE)
        there = {
            name: parameter
            for name in self.history.names()
            if below(name, Path, recursive=Recursive) and (parameter := self._read(name))
        }
        chosen, token = page(
            list(there), size=MaxResults, token=NextToken, with_empty=self.empty_pages
        )
        shown = [self._shown(name, "", there[name].newest, WithDecryption) for name in chosen]
        return {"Parameters": shown} | ({"NextToken": token} if token else {})

    def delete_parameter(self, now: float, *, Name: str) -> dict[str, Any]:
        rules.check_name(Name)
        if self.history.current(Name) is None:
            raise Refusal("ParameterNotFound")
        self.history.write(Name, None, now)
        return {}

    def delete_parameters(self, now: float, *, Names: Sequence[str]) -> dict[str, Any]:
        rules.check_batch(Names)
        for name in Names:
            rules.check_name(name)
        names = sorted(set(Names))
        deleted = [name for name in names if self.history.current(name) is not None]
        for name in deleted:
            self.history.write(name, None, now)
        missing = [name for name in names if name not in deleted]
        return {"DeletedParameters": deleted, "InvalidParameters": missing}

    def describe_parameters(
        self,
        now: float,
        *,
        ParameterFilters: Sequence[Mapping[str, Any]] = (),
        MaxResults: int = rules.DESCRIBE_PAGE,
        NextToken: str | None = None,
    ) -> dict[str, Any]:
        check_filters(ParameterFilters)
        rules.check_page_size(MaxResults, rules.DESCRIBE_PAGE)
        there = {
            name: parameter
            for name in self.history.names()
            if passes(name, ParameterFilters)
            and (parameter := self.history.as_of(name, now - self.listing_lag))
        }
        chosen, token = page(
            list(there), size=MaxResults, token=NextToken, with_empty=self.empty_pages
        )
        described = [self._described(name, there[name].newest) for name in chosen]
        return {"Parameters": described} | ({"NextToken": token} if token else {})

    def label_parameter_version(
        self, now: float, *, Name: str, Labels: Sequence[str], ParameterVersion: int | None = None
    ) -> dict[str, Any]:
        parameter = self.history.current(Name)
        if parameter is None:
            raise Refusal("ParameterNotFound")
        number = parameter.select("" if ParameterVersion is None else str(ParameterVersion)).number
        labels = {**parameter.labels, **dict.fromkeys(Labels, number)}
        self.history.write(Name, replace(parameter, labels=labels), now)
        return {"InvalidLabels": [], "ParameterVersion": number}

    def get_service_setting(self, now: float, *, SettingId: str) -> dict[str, Any]:
        setting = _SETTINGS + SettingId.partition(_SETTINGS)[2]
        values = {
            f"{_SETTINGS}high-throughput-enabled": "true" if self.high_throughput else "false",
            f"{_SETTINGS}default-parameter-tier": self.default_tier,
        }
        if setting not in values:
            raise Refusal("ServiceSettingNotFound", "no such setting of Parameter Store")
        arn = f"{self.arn}servicesetting{setting}"
        return {
            "ServiceSetting": {"SettingId": setting, "SettingValue": values[setting], "ARN": arn}
        }

    def _tier(self, asked: str | None, value: str, old: Parameter | None) -> str:
        tier = asked or self.default_tier
        if tier != rules.INTELLIGENT:
            return tier
        advanced = (
            len(value.encode()) > rules.VALUE_BYTES[rules.STANDARD]
            or (old is not None and old.newest.tier == rules.ADVANCED)
            or (old is None and self._is_full(rules.STANDARD))
        )
        return rules.ADVANCED if advanced else rules.STANDARD

    def _is_full(self, tier: str) -> bool:
        return self.history.count(tier) >= self.limits[tier]

    def _check_creation(self, name: str, kind: str | None, now: float) -> None:
        if kind is None:
            raise rules.invalid("a parameter is created with a type")
        deleted = self.history.deleted_at(name)
        if deleted is not None and now - deleted < rules.REUSE_WAIT:
            # AWS sends no text with this code.
            raise Refusal("TooManyUpdates")

    def _check_key(self, key_id: str | None) -> None:
        if key_id is not None and key_id not in self.kms_keys:
            raise Refusal("InvalidKeyId", f"no KMS key {key_id}")

    def _read(self, name: str) -> Parameter | None:
        if self.staleness.hits(name):
            return self.history.before_last(name)
        return self.history.current(name)

    def _arn_of(self, name: str) -> str:
        return f"{self.arn}parameter/{name.removeprefix('/')}"

    def _shown(self, name: str, selector: str, version: Version, decrypt: bool) -> dict[str, Any]:
        value = version.value
        if version.type == rules.SECURE and decrypt:
            self._check_key(version.key_id)
        elif version.type == rules.SECURE:
            digest = hashlib.sha256(f"{name}:{version.number}:{value}".encode()).digest()
            value = base64.b64encode(b"AQICAH" + digest).decode()
        shown = {
            "Name": name,
            "Type": version.type,
            "Value": value,
            "Version": version.number,
            "LastModifiedDate": version.modified,
            "ARN": self._arn_of(name),
            "DataType": "text",
        }
        return shown | ({"Selector": f":{selector}"} if selector else {})

    def _described(self, name: str, version: Version) -> dict[str, Any]:
        optional = {"KeyId": version.key_id, "Description": version.description}
        return {
            "Name": name,
            "ARN": self._arn_of(name),
            "Type": version.type,
            "LastModifiedDate": version.modified,
            "Version": version.number,
            "Tier": version.tier,
            "Policies": [],
            "DataType": "text",
            **{member: value for member, value in optional.items() if value},
        }


#: Each operation by its AWS name.
OPERATIONS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "PutParameter": Account.put_parameter,
    "GetParameter": Account.get_parameter,
    "GetParameters": Account.get_parameters,
    "GetParametersByPath": Account.get_parameters_by_path,
    "DeleteParameter": Account.delete_parameter,
    "DeleteParameters": Account.delete_parameters,
    "DescribeParameters": Account.describe_parameters,
    "LabelParameterVersion": Account.label_parameter_version,
    "GetServiceSetting": Account.get_service_setting,
}


def named_in(request: Mapping[str, Any]) -> tuple[str, ...]:
    """The names, paths or filter values of a request."""
    if "Names" in request:
        return tuple(request["Names"])
    if "ParameterFilters" in request:
        return tuple(
            value for given in request["ParameterFilters"] for value in given.get("Values", ())
        )
    single = request.get("Name") or request.get("Path") or request.get("SettingId")
    return (single,) if single else ()


def _check_overwrite(old: Parameter, kind: str | None, tier: str) -> None:
    newest = old.newest
    if kind is not None and kind != newest.type:
        raise Refusal("HierarchyTypeMismatchException", f"{newest.type} cannot become {kind}")
    if newest.tier == rules.ADVANCED and tier == rules.STANDARD:
        raise rules.invalid("an advanced parameter cannot become a standard one")
    oldest = old.versions[0].number
    if len(old.versions) == rules.VERSIONS_KEPT and oldest in old.labels.values():
        raise Refusal("ParameterMaxVersionLimitExceeded", f"version {oldest} has a label")


def _split(name: str) -> tuple[str, str]:
    bare, _, selector = name.partition(":")
    rules.check_name(bare)
    return bare, selector
