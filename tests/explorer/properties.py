"""What must hold in every schedule, told by the work and the store alone, never by the ledger's code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from idemguard import Outcome
from idemguard.lifecycle import LONGEST_LEASE

from .world import Version, World

_CLAIMED, _COMPLETED, _RELEASED, _FAILED, _SWEPT = "c", "d", "r", "f", "s"


class Property(Enum):
    """The promises."""

    ONE_HOLDER = "at most one live holder"
    DONE_ONCE = "no run after a completed one until retention ends"
    ONLY_WINNERS_RUN = "whoever lost never believes that it won"
    NO_ERASURE = "nobody replaces or deletes a record that somebody else may still rely on"
    ENDS_COMPLETED = "nobody crashed and the work succeeded: the record ends completed"
    SOMEBODY_RUNS = "nobody crashed and nobody held the key: somebody ran the work"
    NEVER_BLOCKED = "after enough time a fresh delivery executes or replays"
    TRUE_REPLAY = "a replay gives the result of a run that succeeded"
    RISING_FENCE = "the fencing token rises with every claim of a record"
    TRUE_LEASE = "a holder never believes that its lease lasts longer than others believe"
    NO_SURPRISE = "nothing but the documented errors comes out"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise."""

    broken: Property
    how: str

    def __str__(self) -> str:
        return f"{self.broken.value}: {self.how}"


@dataclass(slots=True)
class _Work:
    token: str
    began: float
    until: float
    landed: float
    horizon: float


class Monitor:
    """Watches one schedule; `violation` is the first broken promise."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.violation: Violation | None = None
        self.begun = 0
        self._at_work: dict[int, _Work] = {}
        self._succeeded: dict[int, _Work] = {}
        # Completed records that counted or that somebody was told of: token, when, retention.
        self._done: dict[str, tuple[float, float]] = {}
        self._after_unknown: set[str] = set()
        # By the creation of the parameter they belong to: version and fence of each claim.
        self._fences: dict[int, dict[int, int]] = {}
        self._results = {-1}
        self._crashed = False
        self._work_failed = False
        self._ledger_failed = False
        #: A read said that a version is gone which is not: to the reader, the history was purged.
        self.history_denied = False

    def break_(self, broken: Property, how: str) -> None:
        """Take note of a broken promise."""
        if self.violation is None:
            self.violation = Violation(broken, how)

    def ground(self) -> int:
        """A number that is the same where the same promises stand."""
        return hash(
            (
                tuple(sorted(self._done.values())),
                self._crashed,
                self._work_failed,
                self._ledger_failed,
                self.history_denied,
                len(self._after_unknown),
                self.begun,
            )
        )

    # What the store does.

    def wrote(self, version: Version, before: Version | None, newest: Version | None) -> None:
        """`version` landed while `before` was the head and `newest` the newest version."""
        if not version.counts:
            return
        if version.state == _COMPLETED:
            self._done.setdefault(version.token, (version.modified, version.retention))
        if before is None:
            return
        if before.token == version.token:
            if before.state != _CLAIMED and before.state != version.state:
                self.break_(Property.NO_ERASURE, f"an ended record became {version.state}")
            return
        over = _is_over(before, version.modified)
        if newest is not None and before not in self.world.past[-1][1]:
            # Its entry was purged: nobody can know whose it is, and the longest lease must pass.
            self._after_unknown.add(version.token)
            over = over or newest.age(version.modified) >= LONGEST_LEASE
        if version.state not in (_CLAIMED, _SWEPT) or not over:
            self.break_(
                Property.NO_ERASURE,
                f"a record in state {before.state}, {before.age(version.modified):.1f} s old, was "
                f"replaced by another's in state {version.state}",
            )

    def deleted(self, before: Version | None) -> None:
        """The parameter was deleted while `before` was the head."""
        if before is not None and before.state != _SWEPT and not _is_over(before, self.world.now):
            self.break_(
                Property.NO_ERASURE,
                f"a record in state {before.state}, {before.age(self.world.now):.1f} s old, was "
                "deleted",
            )

    # What the deliveries do.

    def work_begins(
        self, actor: int, token: str, fence: int, remaining: float, now: float, limit: float | None
    ) -> None:
        """An actor starts the work under a claim.

        Args:
            actor: its number.
            token, fence: the claim's.
            remaining: seconds of lease that it believes to have.
            now: the time on its machine.
            limit: when it is stopped at the latest.
        """
        self.begun += 1
        claims = [v for v in self.world.ever if v.token == token and v.counts]
        if not claims:
            self.break_(
                Property.ONLY_WINNERS_RUN, f"actor {actor} runs without a claim that counts"
            )
            return
        claim = claims[-1]
        ends = claim.modified + claim.lease
        # The age of an entry is known to the second.
        if now + remaining > ends + 1:
            self.break_(Property.TRUE_LEASE, f"{now + remaining - ends:.1f} s longer")
        until = ends if limit is None else limit
        work = _Work(token, now, until, claim.modified, max(claim.lease, claim.retention))
        if now < until:
            self._alone(actor, work)
        self._at_work[actor] = work
        if token not in self._after_unknown:
            self._rises(claim, fence)

    def work_succeeds(self, actor: int, now: float) -> None:
        """An actor's work is done."""
        work = self._at_work.pop(actor)
        self._results.add(actor)
        if now < work.landed + work.horizon:
            self._succeeded[actor] = work

    def work_fails(self, actor: int) -> None:
        """An actor's work raised."""
        del self._at_work[actor]
        self._work_failed = True

    def crashed(self, actor: int) -> None:
        """An actor is gone."""
        self._at_work.pop(actor, None)
        self._crashed = True

    def delivered(self, actor: int, now: float, *, ledger_failed: bool, lease_lost: bool) -> None:
        """A delivery ended; whether a ledger error came in between, and whether it lost its lease."""
        self._ledger_failed |= ledger_failed
        work = self._succeeded.get(actor)
        if work is not None and lease_lost:
            if now >= work.landed + work.horizon or self._has_successor(work):
                # Past its horizon nobody may write: the name may be another's by now. Before that,
                # it is for the successor to complete.
                del self._succeeded[actor]
            return
        if work is None or ledger_failed:
            return
        # Told that it is completed: then it is, whatever the entries look like.
        landed = [v for v in self.world.ever if v.token == work.token and v.state == _COMPLETED]
        if not landed:
            self.break_(
                Property.ENDS_COMPLETED, f"actor {actor} believes in a completion never made"
            )
            return
        self._done.setdefault(work.token, (landed[0].modified, landed[0].retention))

    def answered(self, actor: int, result: object, outcome: Outcome) -> None:
        """A delivery came to an outcome with this result."""
        if outcome is not Outcome.SKIPPED_COMPLETED:
            return
        if not isinstance(result, dict) or result.get("by") not in self._results:
            self.break_(Property.TRUE_REPLAY, f"actor {actor} got {result!r:.40}")

    def surprised(self, actor: str, error: Exception) -> None:
        """Something undocumented came out of a delivery or a sweep."""
        self.break_(Property.NO_SURPRISE, f"{actor} raised {type(error).__name__}: {error}")

    # What is left.

    def ended(self, *, somebody_must_run: bool) -> None:
        """Everybody has ended."""
        if self._crashed or self._ledger_failed:
            return
        barred = any(version.state == _SWEPT for version in self.world.ever)
        if somebody_must_run and not self.begun and not barred:
            self.break_(Property.SOMEBODY_RUNS, "all deliveries ended and none ran")
        if not self._succeeded or self._work_failed:
            return
        head, now = self.world.head, self.world.now
        if self.history_denied or (head is not None and head not in self.world.kept):
            # Purged, or so it seemed: a late holder cannot know whose claim it would write over.
            return
        expired = any(now >= landed + retention for landed, retention in self._done.values())
        if (head is None or head.state != _COMPLETED) and not expired:
            state = head.state if head else "none"
            self.break_(
                Property.ENDS_COMPLETED, f"the work succeeded, the record is in state {state}"
            )

    def probed(self, outcome: str) -> None:
        """What a fresh delivery came to after enough time."""
        accepted = (Outcome.EXECUTED.value, Outcome.SKIPPED_COMPLETED.value, "FailedForGood")
        if outcome not in accepted:
            self.break_(Property.NEVER_BLOCKED, f"a fresh delivery came to {outcome}")

    def _has_successor(self, work: _Work) -> bool:
        return any(
            version.counts
            and version.state == _CLAIMED
            and version.token != work.token
            and version.modified >= work.landed
            for version in self.world.ever
        )

    def _alone(self, actor: int, work: _Work) -> None:
        """A holder that begins within its lease; a late one has promised nothing."""
        for other, theirs in self._at_work.items():
            if work.began < theirs.until:
                self.break_(Property.ONE_HOLDER, f"actor {actor} runs beside actor {other}")
        for landed, retention in self._done.values():
            if work.began < landed + retention and work.token not in self._after_unknown:
                self.break_(
                    Property.DONE_ONCE,
                    f"actor {actor} runs {work.began - landed:.1f} s after it was completed",
                )

    def _rises(self, claim: Version, fence: int) -> None:
        # Numbered from the creation of the parameter: after a sweep the fence starts anew.
        fences = self._fences.setdefault(claim.life, {})
        for number, other in fences.items():
            if (number < claim.number) != (other < fence):
                self.break_(
                    Property.RISING_FENCE, f"{fence} at {claim.number}, {other} at {number}"
                )
        fences[claim.number] = fence


def _is_over(head: Version, now: float) -> bool:
    """Whether anybody may act on the key although `head` stands."""
    if head.state in (_CLAIMED, _SWEPT):
        return head.age(now) >= head.lease
    return head.state == _RELEASED or head.age(now) >= head.retention
