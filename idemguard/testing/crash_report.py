"""What crashes did to a handler's effects, and whether that is good enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

from .deliveries import Deliveries
from .effects import Effect, calls_of, counted, counts_of
from .text_table import table


@dataclass(frozen=True, slots=True)
class CrashRun:
    """One place at which the first attempt was killed, and what became of the event.

    Attributes:
        killed: where, such as ``"after effect 'charge'"``.
        deliveries: the killed one, and the redeliveries after it.
        effects: all effects, of all attempts.
        open: how many effects of each name had been done and could not have been written down yet:
            nothing else was done, begun or written between the effect and the kill.
        answered: whether a redelivery was answered in the end.
    """

    killed: str
    deliveries: Deliveries
    effects: Sequence[Effect]
    open: Counter[str]
    answered: bool

    @property
    def counts(self) -> Counter[str]:
        """How often each effect was done, by name: requests with one effect key are done once."""
        return counts_of(list(self.effects))

    @property
    def calls(self) -> Counter[str]:
        """How often each effect was asked for, by name."""
        return calls_of(list(self.effects))

    @property
    def result(self) -> Any:
        """What the last redelivery returned."""
        return self.deliveries[-1].result


class CrashReport(Sequence[CrashRun]):
    """What became of an event for each place at which its first attempt was killed.

    Attributes:
        undisturbed: the effects of one delivery without a crash, which is what "once" means.
        runs: one for each place.
    """

    def __init__(self, undisturbed: Sequence[Effect], runs: Sequence[CrashRun]) -> None:
        self.undisturbed = list(undisturbed)
        self.runs = list(runs)

    @overload
    def __getitem__(self, index: int) -> CrashRun: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CrashRun]: ...
    def __getitem__(self, index: int | slice) -> CrashRun | Sequence[CrashRun]:
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        worst = self.worst()
        return f"<{len(self)} crashes; worst: {worst.killed}: {counted(list(worst.effects))}>"

    def __str__(self) -> str:
        return self.table()

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """How often each effect was done, for each place of the kill."""
        return {run.killed: run.counts for run in self.runs}

    def worst(self) -> CrashRun:
        """The run that is farthest from once, unanswered ones before all others."""
        once = counts_of(self.undisturbed)

        def distance(run: CrashRun) -> tuple[bool, int]:
            counts = run.counts
            return not run.answered, sum(abs(counts[at] - once[at]) for at in counts | once)

        return max(self.runs, key=distance)

    def table(self) -> str:
        """One line for each place of the kill."""
        return table(
            ("killed", "then", "effects"),
            [
                ("never", "", counted(self.undisturbed)),
                *(
                    (
                        run.killed,
                        ", ".join(str(delivered) for delivered in run.deliveries[1:]),
                        counted(list(run.effects)),
                    )
                    for run in self.runs
                ),
            ],
        )

    def assert_once(self, *names: str, allow_open: bool = False) -> None:
        """Check that every crash left each effect done as often as one undisturbed delivery does it.

        Requests with one effect key count once, for the service behind them drops the repeats.

        No ledger can make any other effect safe in one place: killed right after the effect, before
        it could be written down, the next attempt repeats it. A step makes that window small; only
        an effect key closes it, with a service that drops repeats. Where there is none, and a repeat
        out of this window is acceptable, say so with `allow_open`.

        Args:
            names: the effects to look at; all by default.
            allow_open: let pass an effect that was repeated since the kill fell between it and the
                first thing done, begun or written after it.

        Raises:
            AssertionError: an effect was repeated or lost, or the event was never answered. The text
                names each effect, each place, and what helps.
        """
        __tracebackhide__ = True  # pytest then points at the test
        once = counts_of(self.undisturbed)
        if unknown := [name for name in names if not once[name]]:
            raise AssertionError(
                f"no effect {', '.join(map(repr, unknown))} in a delivery without a crash; recorded "
                f"were: {', '.join(sorted(once)) or 'none'}"
            )
        if not once:
            raise AssertionError(
                "no effect was recorded: pass effects=, and record, wrap or watch what the handler "
                "does"
            )
        complaints = [
            f"The event was never answered when the attempt was killed {run.killed}: {run.deliveries!r}"
            for run in self.runs
            if not run.answered
        ]
        every = set(once).union(*(run.counts for run in self.runs))
        helps: set[str] = set()
        for name in names or sorted(every):
            for count, runs in self._not_once(name, once[name], allow_open).items():
                complaints.append(
                    f"{name!r} was done {_times(count)}, not {_times(once[name])}, when the attempt "
                    "was killed"
                )
                for run in runs:
                    only_key = 0 < count - once[name] <= run.open[name]
                    complaints.append(f"    {run.killed}" + (" *" if only_key else ""))
                    helps.add(_LOST if count < once[name] else _OPEN if only_key else _REPEATED)
        if complaints:
            raise AssertionError("\n".join([*complaints, *sorted(helps)]))

    def _not_once(self, name: str, once: int, allow_open: bool) -> dict[int, list[CrashRun]]:
        """The runs that did the effect more or less often, by how often they did it."""
        found: dict[int, list[CrashRun]] = {}
        for run in self.runs:
            count = run.counts[name]
            if count != once and not (allow_open and 0 < count - once <= run.open[name]):
                found.setdefault(count, []).append(run)
        return dict(sorted(found.items()))


# In the order in which they are shown.
_OPEN = (
    "* Between an effect and the note of it lies a moment that no ledger can close. Send an "
    "effect_key() along to a service that drops repeats, and record it with key=; or accept the "
    "repeat: assert_once(allow_open=True)."
)
_LOST = (
    "A lost effect: something said that it was done before it was. Do it first, and let its step or "
    "the completion say so."
)
_REPEATED = (
    "A repeated effect, though something else was begun, done or written after it: give it a step "
    "of its own, step(name, function, ...), so that the next attempt knows that it is done."
)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
