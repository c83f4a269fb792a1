"""One attempt's hold on a key, from the won claim to its end."""

from __future__ import annotations

import threading
from typing import Any

from .clock import Clock, Deadline
from .codec import Codec, compress, not_stored
from .errors import LeaseLostError, LedgerUnavailable, StepError
from .ledger import Entry, Ledger
from .lifecycle import Ending, after_refusal, may_write, widest_successor
from .outcome import Details, Hooks
from .record import Record, State

_TRIES = 8


class Holding:
    """Writes what becomes of a claim; the only place that knows the claim's current entry.

    Several threads of one attempt may use it (steps side by side); other attempts may win the key
    meanwhile, which every write finds out.
    """

    def __init__(
        self,
        ledger: Ledger,
        entry: Entry,
        *,
        details: Details,
        codec: Codec,
        hooks: Hooks,
        clock: Clock,
        deadline: Deadline | None,
    ) -> None:
        self.details = details
        self.codec = codec
        self.hooks = hooks
        self.deadline = deadline
        self._ledger = ledger
        self._entry = entry
        self._record = entry.record
        self._clock = clock
        self._lock = threading.RLock()
        # A claim that was found to be ours, its answer lost, is older than our knowledge of it.
        self._monotonic = clock.monotonic() - entry.age
        self._wall = clock.wall() - entry.age
        self._begun: set[str] = set()
        self._ended = False

    @property
    def name(self) -> str:
        """The name of the held entry."""
        return self._entry.name

    @property
    def record(self) -> Record:
        """The record as this attempt last wrote it."""
        return self._record

    @property
    def ended(self) -> bool:
        """Whether the claim has been completed, released, failed or lost."""
        return self._ended

    def holds(self, ledger: Ledger, name: str) -> bool:
        """Whether it is that name in that ledger that is still held."""
        return not self._ended and self._ledger is ledger and self.name == name

    def held_for(self) -> float:
        """Seconds since the claim was won, by the one of this machine's clocks that says more."""
        return max(self._clock.monotonic() - self._monotonic, self._clock.wall() - self._wall)

    def end(self, state: State, *, result: Any = None, error: Any = None) -> Record:
        """Complete, release or fail; returns the record written.

        A result that does not fit is compressed, then left out with a mark that says so.

        Raises:
            LeaseLostError: another attempt holds the key now.
            LedgerError: the ledger could not be written.
        """
        with self._lock:
            # Under the lock: a step that another thread is just noting belongs to what is kept.
            steps = self._record.steps if state is State.RELEASED else {}
            record = self._record.ended(state, steps=steps)
            if state is State.COMPLETED:
                record = self._fitting(record, "result", result)
            elif state is State.FAILED:
                record = self._fitting(record, "error", error)
            self._write(record)
            self._ended = True
            return record

    def begin_step(self, name: str) -> tuple[bool, Any]:
        """Whether the step was done by an earlier attempt, and its encoded result then.

        Raises:
            StepError: the name is used twice in this attempt, or the record has no room for it.
        """
        with self._lock:
            if self._ended:
                raise StepError(f"step {name!r}: the claim has ended; use steps inside the work")
            if name in self._begun:
                raise StepError(
                    f"step {name!r} is used twice in one attempt; give each its own name"
                )
            if name in self._record.steps:
                self._begun.add(name)
                return True, self._record.steps[name]
            self._begun.add(name)
            if not self._has_room(self._record):
                self._begun.discard(name)
                raise StepError(
                    f"step {name!r}: the record has no room left even to note it; use fewer steps, "
                    "return less from them, or a larger tier"
                )
            return False, None

    def end_step(self, name: str, result: Any) -> None:
        """Keep a done step's encoded result, or a mark that it was too large to keep.

        Raises:
            LeaseLostError, LedgerError: as `end`.
        """
        with self._lock:
            record = self._with_step(name, result)
            if not self._has_room(record):
                record = self._with_step(name, compress(result))
            if not self._has_room(record):
                record = self._with_step(name, not_stored("too large"))
            try:
                self._write(record)
            except BaseException:
                # It is done, whatever stopped the write: the next write carries it.
                self._record = record
                raise

    def abandon_step(self, name: str) -> None:
        """A step that failed may be tried again in this attempt."""
        with self._lock:
            self._begun.discard(name)

    def _with_step(self, name: str, result: Any) -> Record:
        steps = {**self._record.steps, name: result}
        return self._record.ended(State.CLAIMED, steps=steps)

    def _has_room(self, record: Record) -> bool:
        """Whether a record leaves room for the steps under way, and for the claims after this one."""
        marks = {name: not_stored("too large") for name in self._begun - record.steps.keys()}
        wide = widest_successor(record)
        return self._ledger.fits(wide.ended(wide.state, steps={**record.steps, **marks}))

    def _fitting(self, record: Record, part: str, value: Any) -> Record:
        whole = record.ended(record.state, **{part: value})
        if self._ledger.fits(whole):
            return whole
        compressed = record.ended(record.state, **{part: compress(value)})
        if self._ledger.fits(compressed):
            return compressed
        return record.ended(record.state, **{part: not_stored("too large")})

    def _write(self, wanted: Record) -> None:
        if self._ended:
            raise self._lost("it has already ended")
        for _ in range(_TRIES):
            if not may_write(self._record, self.held_for()):
                raise self._lost("it was held past retention and lease")
            entry = self._ledger.replace(self._entry, wanted, deadline=self.deadline)
            if entry is None:
                # Somebody deleted the record by hand: write it anew, unless it is claimed by then.
                entry = self._ledger.create(self.name, wanted, deadline=self.deadline)
            # Asked anew: the lease may have ended while the answer was waited for.
            ending = after_refusal(wanted, entry.record, self.held_for())
            if ending is Ending.DONE:
                self._entry, self._record = entry, wanted
                return
            if ending is Ending.LOST:
                self._ended = True
                raise self._lost("another attempt has taken the key over")
            self._entry = entry
        raise LedgerUnavailable(
            "others kept writing to the record; its claim could not be updated",
            **self.details.identity,
        )

    def _lost(self, why: str) -> LeaseLostError:
        return LeaseLostError(
            f"the claim is no longer held: {why}",
            **self.details.identity,
        )
