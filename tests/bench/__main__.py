"""`make bench`: cold start, calls and CPU per delivery, beside the Idempotency utility of Powertools."""

from __future__ import annotations

import os
from typing import Any

from tests.bench.batch import overlap
from tests.bench.network import Parameters, Table, answer_with
from tests.bench.timing import Row, compare, compare_processes, timed
from tests.servers import DUMMY_AWS


class _Context:
    function_name = "bench"
    aws_request_id = "r"

    def get_remaining_time_in_millis(self) -> int:
        return 30_000


CONTEXT = _Context()
SMALL = {"lines": ["x" * 50] * 90}
LARGE = {"rows": [{"n": n, "tags": ["a", "b", {"deep": [n] * 4}]} for n in range(18_000)]}


def _ours(**options: Any) -> tuple[Any, list[str]]:
    from idemguard import idempotent
    from idemguard.clock import SYSTEM_CLOCK, Deadline
    from idemguard.ledgers.ssm import SSMLedger
    from idemguard.ledgers.ssm_client import ClientMaker

    client = ClientMaker(region="eu-west-1", endpoint_url=None)(Deadline.after(SYSTEM_CLOCK, 10))
    calls = answer_with(client, Parameters())

    @idempotent(key="id", ledger=SSMLedger(client), operation="bench", **options)
    def handler(event: dict[str, Any], context: object) -> dict[str, int]:
        return {"statusCode": 200}

    return handler, calls


def _peer(cached: bool) -> tuple[Any, list[str]]:
    import boto3
    from aws_lambda_powertools.utilities.idempotency import (
        DynamoDBPersistenceLayer,
        IdempotencyConfig,
        idempotent,
    )
    from aws_lambda_powertools.utilities.typing import LambdaContext

    client = boto3.client("dynamodb", region_name="eu-west-1")
    calls = answer_with(client, Table())
    layer = DynamoDBPersistenceLayer("bench", boto3_client=client)
    config = IdempotencyConfig(event_key_jmespath="id", use_local_cache=cached)

    @idempotent(persistence_store=layer, config=config)
    def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
        return {"statusCode": 200}

    return handler, calls


def _event(number: int, payload: dict[str, Any] = SMALL) -> dict[str, Any]:
    return {"id": f"order-{number}", **payload}


def cold_start() -> list[Row]:
    """Fresh processes."""
    return [
        compare_processes(
            "import idemguard / import jmespath",
            timed("", "import idemguard"),
            timed("", "import jmespath"),
            target="2.00",
        ),
        compare_processes(
            "import idemguard / import the peer's decorator",
            timed("", "from idemguard import idempotent"),
            timed("", "from aws_lambda_powertools.utilities.idempotency import idempotent"),
            target="",
        ),
        compare_processes(
            "the ledger's own client / boto3.client('ssm')",
            timed(
                "import boto3\nfrom idemguard.clock import SYSTEM_CLOCK, Deadline\n"
                "from idemguard.ledgers.ssm_client import ClientMaker",
                "ClientMaker(region=None, endpoint_url=None)(Deadline.after(SYSTEM_CLOCK, 10))",
            ),
            timed("import boto3", "boto3.client('ssm')"),
            target="0.20",
        ),
    ]


def deliveries() -> list[Row]:
    """CPU with the network taken away."""
    handler, calls = _ours(local_cache=False)
    peer, peer_calls = _peer(cached=False)
    rows = [
        compare(
            "first delivery, 5 KB / the peer's",
            lambda n: handler(_event(n), CONTEXT),
            lambda n: peer(_event(n), CONTEXT),
            target="0.65",
        )
    ]
    for name, made, counted in (("ours", handler, calls), ("peer", peer, peer_calls)):
        before = len(counted)
        made(_event(-1), CONTEXT)
        made(_event(-1), CONTEXT)
        first, again = counted[before : before + 2], counted[before + 2 :]
        rows.append(
            Row(f"calls, {name}", ", ".join(first), "duplicate: " + ", ".join(again), None, "")
        )
    rows.append(
        compare(
            "duplicate, read from the ledger / the peer's first",
            lambda n: handler(_event(-1), CONTEXT),
            lambda n: peer(_event(100_000 + n), CONTEXT),
            target="0.70",
        )
    )
    warm, warm_calls = _ours()
    warm(_event(0), CONTEXT)
    before = len(warm_calls)
    rows.append(
        compare(
            "duplicate in the same container / the peer's first",
            lambda n: warm(_event(0), CONTEXT),
            lambda n: peer(_event(200_000 + n), CONTEXT),
            target="0.02",
        )
    )
    made = len(warm_calls) - before
    rows.append(Row("calls of a duplicate in the same container", str(made), "", None, "0"))
    large = {**LARGE}
    rows.append(
        compare(
            "first delivery, 1 MB nested / our own at 5 KB",
            lambda n: handler({"id": f"large-{n}", **large}, CONTEXT),
            lambda n: handler(_event(300_000 + n), CONTEXT),
            target="1.05",
        )
    )
    return rows


def main() -> None:
    """Print the table."""
    os.environ.update(DUMMY_AWS)
    rows = [*cold_start(), *deliveries()]
    rows.append(overlap())
    print(f"{'measured':52} {'ours':>24} {'peer':>30} {'ratio':>6} {'aim':>5}")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        print(f"{row.what:52} {row.ours:>24} {row.peer:>30} {ratio:>6} {row.target:>5}")


if __name__ == "__main__":
    main()
