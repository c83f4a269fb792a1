"""What the documentation says of Powertools' Idempotency utility, run with the version it names."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from aws_lambda_powertools.utilities.idempotency import (
    BasePersistenceLayer,
    IdempotencyConfig,
    idempotent,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyItemAlreadyExistsError,
    IdempotencyItemNotFoundError,
    IdempotencyPersistenceLayerError,
)
from aws_lambda_powertools.utilities.idempotency.persistence.datarecord import DataRecord

# It warns of a missing key, and of a context that tells no time left.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

ROOT = Path(__file__).parent.parent


class MemoryLayer(BasePersistenceLayer):
    """The least that a store of Powertools' is."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.records: dict[str, DataRecord] = {}

    def _get_record(self, idempotency_key: str) -> DataRecord:
        if idempotency_key not in self.records:
            raise IdempotencyItemNotFoundError
        return self.records[idempotency_key]

    def _put_record(self, data_record: DataRecord) -> None:
        met = self.records.get(data_record.idempotency_key)
        if met is not None:
            raise IdempotencyItemAlreadyExistsError(old_data_record=met)
        self.records[data_record.idempotency_key] = data_record

    def _update_record(self, data_record: DataRecord) -> None:
        self.records[data_record.idempotency_key] = data_record

    def _delete_record(self, data_record: DataRecord) -> None:
        self.records.pop(data_record.idempotency_key, None)


class Handler:
    """A handler under Powertools' decorator, on a store of its own."""

    def __init__(self, work: Any, store: MemoryLayer | None = None) -> None:
        self.runs = 0
        self.store = store or MemoryLayer()
        config = IdempotencyConfig(event_key_jmespath="id")

        def handler(event: Any, context: Any) -> Any:
            self.runs += 1
            return work()

        # Its type takes any call for one that configures.
        decorate: Any = idempotent
        self.deliver = decorate(handler, persistence_store=self.store, config=config)

    @property
    def statuses(self) -> list[str]:
        return [record.status for record in self.store.records.values()]


def test_the_documents_name_the_version_that_is_run_here() -> None:
    for page in ("README.md", "docs/howto/from-powertools.md"):
        assert f"Powertools {version('aws-lambda-powertools')}" in (ROOT / page).read_text()


@pytest.mark.parametrize("result", [0, False, "", [], {}], ids=repr)
def test_a_falsy_result_is_replayed_as_none(result: object) -> None:
    handler = Handler(lambda: result)
    assert handler.deliver({"id": 1}, None) == result
    assert handler.deliver({"id": 1}, None) is None
    assert handler.runs == 1


def test_an_event_without_a_key_runs_each_time() -> None:
    handler = Handler(lambda: 1)
    handler.deliver({}, None)
    handler.deliver({}, None)
    assert handler.runs == 2


def test_system_exit_leaves_the_record_in_progress() -> None:
    def leave() -> None:
        raise SystemExit

    handler = Handler(leave)
    with pytest.raises(SystemExit):
        handler.deliver({"id": 1}, None)
    assert handler.statuses == ["INPROGRESS"]


def test_a_result_that_cannot_be_stored_raises_after_the_work_and_stays_in_progress() -> None:
    handler = Handler(lambda: {1, 2})
    with pytest.raises(IdempotencyPersistenceLayerError):
        handler.deliver({"id": 1}, None)
    assert handler.runs == 1
    assert handler.statuses == ["INPROGRESS"]


def test_a_second_configuration_on_one_store_is_ignored() -> None:
    store, ran = MemoryLayer(), list[str]()

    def function(name: str, key: str) -> Any:
        def work(event: Any) -> None:
            ran.append(name)

        work.__qualname__ = name
        config = IdempotencyConfig(event_key_jmespath=key)
        decorate: Any = idempotent_function
        return decorate(work, data_keyword_argument="event", persistence_store=store, config=config)

    first, second = function("first", key="a"), function("second", key="b")
    first(event={"a": 1, "b": 1})
    second(event={"a": 1, "b": 1})
    second(event={"a": 2, "b": 1})
    assert ran == ["first", "second", "second"]


def test_a_late_failure_deletes_the_record_of_the_attempt_that_took_over() -> None:
    store = MemoryLayer()

    def taken_over_meanwhile() -> None:
        [key] = store.records
        store.records[key] = DataRecord(key, status="COMPLETED", response_data='"done"')
        raise TimeoutError

    handler = Handler(taken_over_meanwhile, store)
    with pytest.raises(TimeoutError):
        handler.deliver({"id": 1}, None)
    assert not store.records


def test_an_error_of_the_store_replaces_the_works_own() -> None:
    class Failing(MemoryLayer):
        def _delete_record(self, data_record: DataRecord) -> None:
            raise ConnectionError

    def fail() -> None:
        raise ValueError("of the work")

    with pytest.raises(IdempotencyPersistenceLayerError):
        Handler(fail, Failing()).deliver({"id": 1}, None)
