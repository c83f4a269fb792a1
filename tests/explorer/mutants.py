"""The code with one guard taken out at a time, and the scenario in which that must be found."""

from __future__ import annotations

from . import priors as found
from .mutation import BOTH_RUN, Edit, Mutant
from .properties import Property
from .scenarios import ANSWERS, Fault, Scenario

_SSM = "idemguard.ledgers.ssm"
_LEDGER = f"{_SSM}:SSMLedger"

# Scenarios. Each is small enough to be searched whole; the mutants need no more.

ALONE = Scenario(
    "one delivery, an answer lost",
    actors=("deliver",),
    faults=(*ANSWERS, Fault.DELAYED),
    fault_budget=2,
)
TAKERS = Scenario("two deliveries, the holder died", prior=found.stale_claim)
SLOW_TAKER = Scenario(
    "two deliveries, the holder died, half a minute passes",
    prior=found.stale_claim,
    jumps=(31.0,),
    jump_budget=1,
    preemptions=2,
)
LATE_HOLDER = Scenario(
    "two deliveries, the lease ends in mid-work",
    faults=(Fault.WORK_FAILS,),
    fault_budget=1,
    jumps=(61.0,),
    jump_budget=1,
    preemptions=2,
)
LATE_HOLDER_UNSURE = Scenario(
    "two deliveries, the lease ends in mid-work, a read is stale or an answer lost",
    faults=(Fault.STALE, Fault.LOST),
    fault_budget=1,
    stale_depth=3,
    jumps=(61.0,),
    jump_budget=1,
    preemptions=2,
    somebody_must_run=False,
)
BURIED = Scenario(
    "one delivery, the completion buried under noise",
    actors=("deliver",),
    prior=found.buried,
    history=3,
    somebody_must_run=False,
)
SWEPT = Scenario(
    "two deliveries and a sweeper, the record expired",
    actors=("deliver", "sweep", "deliver"),
    prior=found.expired,
    reuse_wait=0.0,
    preemptions=2,
)
SWEPT_UNSURE = Scenario(
    "a sweeper whose answers are lost, two deliveries, the record expired",
    actors=("sweep", "deliver", "deliver"),
    prior=found.expired,
    faults=(Fault.LOST, Fault.RESENT),
    fault_budget=1,
    reuse_wait=0.0,
    preemptions=2,
)
HELD_UP_SWEEPER = Scenario(
    "a sweeper that oversleeps, and a delivery, the record expired",
    actors=("sweep", "deliver"),
    prior=found.expired,
    jumps=(181.0,),
    jump_budget=1,
    preemptions=2,
    reuse_wait=0.0,
)
SLOW_DELETE = Scenario(
    "a sweeper that oversleeps and whose delete is slow, and a delivery, the record expired",
    actors=("sweep", "deliver"),
    prior=found.expired,
    faults=(Fault.DELAYED,),
    fault_budget=1,
    only="DeleteParameters",
    jumps=(170.0, 11.0),
    jump_budget=2,
    preemptions=1,
    reuse_wait=0.0,
)
SWEPT_WALK = Scenario(
    "three deliveries and a sweeper, noise on an expired record",
    actors=("deliver", "sweep", "deliver", "deliver"),
    prior=found.expired_and_noisy,
    faults=(Fault.WORK_FAILS,),
    fault_budget=1,
    reuse_wait=0.0,
    preemptions=2,
)
FORGOTTEN_HOLDER = Scenario(
    "a holder past retention, a sweeper, a delivery",
    actors=("deliver", "sweep", "deliver"),
    jumps=(161.0,),
    jump_budget=1,
    reuse_wait=0.0,
    preemptions=2,
)


def _edit(where: str, *changes: tuple[str, str]) -> Edit:
    return Edit(where, changes)


MUTANTS = (
    Mutant(
        "no own token in the claim",
        (
            _edit(
                f"{_LEDGER}.create",
                (
                    "return entry\n",
                    "return Entry(entry.name, entry.record.ended(entry.record.state, token='?'), "
                    "entry.age, entry.mark)\n",
                ),
            ),
        ),
        ALONE,
        frozenset({Property.SOMEBODY_RUNS}),
    ),
    Mutant(
        "a holder does not look whose claim it meets",
        (
            _edit(
                "idemguard.holding:after_refusal",
                ("met.token == wanted.token", "met.state is State.CLAIMED"),
            ),
        ),
        LATE_HOLDER,
    ),
    Mutant(
        "no version check by the writer: whoever lost believes that it won",
        (_edit(f"{_LEDGER}.replace", ("landed.newest == mark.newest + 1 and ", "")),),
        TAKERS,
    ),
    Mutant(
        "no version check by the reader: overwrite, then read back",
        (_edit(f"{_SSM}:_counts", ('ticket["p"] != version.number - 1', "False")),),
        TAKERS,
    ),
    Mutant(
        "a takeover whose ticket is not what it was decided on",
        (
            _edit(
                f"{_LEDGER}.replace",
                (
                    "prev=mark.newest, seen=seen",
                    "prev=self._store.get(self._full(name), deadline=deadline)[0].number, seen=seen",
                ),
                ("landed.newest == mark.newest + 1 and ", ""),
            ),
        ),
        TAKERS,
    ),
    Mutant(
        "no 30 s window for the reader",
        (_edit(f"{_SSM}:_counts", ("abs(version.modified - seen) <= WINDOW", "True")),),
        SWEPT,
    ),
    Mutant(
        "no 30 s window for the writer",
        (_edit(f"{_LEDGER}.replace", (" and abs(landed.date - seen) < _SURE", "")),),
        SLOW_TAKER,
        BOTH_RUN | {Property.ENDS_COMPLETED},
    ),
    Mutant(
        "no second look after a walk",
        (_edit(f"{_LEDGER}._judge", ("again != newest", "False")),),
        SWEPT_WALK,
    ),
    Mutant(
        "release deletes",
        (
            _edit(
                f"{_LEDGER}.replace",
                (
                    "name, mark = expected.name, _mark_of(expected)\n",
                    "name, mark = expected.name, _mark_of(expected)\n"
                    "    if record.state is State.RELEASED:\n"
                    "        now = self.read(name, deadline=deadline)\n"
                    "        if now is None or now.record.token != record.token:\n"
                    "            return now\n"
                    "        self._store.delete_once([self._full(name)], deadline=deadline)\n"
                    "        return Entry(name, record, 0.0, mark)\n",
                ),
            ),
        ),
        LATE_HOLDER,
    ),
    Mutant(
        "no completion after the lease",
        (_edit("idemguard.holding:may_write", ("record.horizon", "record.lease")),),
        LATE_HOLDER,
        frozenset({Property.ENDS_COMPLETED}),
    ),
    Mutant(
        "a holder writes after its horizon",
        (_edit("idemguard.holding:may_write", ("held_for < record.horizon", "True")),),
        FORGOTTEN_HOLDER,
    ),
    Mutant(
        "a holder that cannot tell whose claim stands writes although its lease is over",
        (
            _edit(
                "idemguard.holding:Holding._write",
                ("entry.record, self.held_for())", "entry.record, 0.0)"),
            ),
        ),
        LATE_HOLDER_UNSURE,
    ),
    Mutant(
        "a lease counted from when its holder learned of it",
        (
            _edit(
                "idemguard.holding:Holding.__init__",
                ("clock.monotonic() - entry.age", "clock.monotonic()"),
                ("clock.wall() - entry.age", "clock.wall()"),
            ),
        ),
        LATE_HOLDER_UNSURE,
        frozenset({Property.TRUE_LEASE}),
    ),
    Mutant(
        "a holder loses its claim over a stale read",
        (_edit(f"{_LEDGER}._look", ("_mark_of(entry).newest >= least", "True")),),
        LATE_HOLDER_UNSURE,
        frozenset({Property.ENDS_COMPLETED}),
    ),
    Mutant(
        "purged history is vacant",
        (_edit(f"{_LEDGER}._judge", ("record = _unknown(longest)", "record = VACANT")),),
        BURIED,
    ),
    Mutant(
        "a sweep without a bar",
        (
            _edit(
                "idemguard.sweeping:Sweeping._bar",
                (
                    "standing = self._ledger.replace(entry, record, deadline=self._by())",
                    "standing, record = entry, entry.record",
                ),
            ),
            _edit(
                f"{_LEDGER}.remove",
                ("and entry.record.lease - entry.age >= _DELETE_MARGIN", ""),
            ),
        ),
        SWEPT,
    ),
    Mutant(
        "a sweep without a wait",
        (_edit("idemguard.sweeping:_Bars.__init__", ("self._delay = delay", "self._delay = 0.0")),),
        SWEPT,
    ),
    Mutant(
        "a sweep without a second read",
        (
            _edit(
                f"{_LEDGER}.remove", ("self.read_many(list(bars), deadline=deadline)", "dict(bars)")
            ),
        ),
        HELD_UP_SWEEPER,
    ),
    Mutant(
        "a sweep that deletes when its bar is nearly over",
        (
            _edit(
                f"{_LEDGER}.remove",
                (
                    "entry.record.lease - entry.age >= _DELETE_MARGIN",
                    "entry.age <= entry.record.lease",
                ),
            ),
        ),
        SLOW_DELETE,
    ),
    Mutant(
        "the SDK sends a delete again",
        (_edit("idemguard.ledgers.aws_client:_refuse_second", ("if count:", "if False:")),),
        SWEPT_UNSURE,
    ),
    Mutant(
        "the store sends a delete again",
        (
            _edit(
                "idemguard.ledgers.aws_calls:Calls._call",
                (
                    "if once or pause >= deadline.remaining()",
                    "if pause >= deadline.remaining()",
                ),
            ),
        ),
        SWEPT_UNSURE,
    ),
)
