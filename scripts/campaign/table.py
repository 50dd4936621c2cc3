"""The campaign's result table: faults injected, runs, outcomes and recovery times."""
import collections
import dataclasses
import statistics

HEAD = ("fault", "injected", "runs", "outcome", "worst recovery")


@dataclasses.dataclass
class Row:
    """Counts of one fault, such as "SIGKILL server", of a kind, such as `kill`."""
    injected: int = 0
    recoveries_s: list = dataclasses.field(default_factory=list)

    def recovery(self):
        if not self.recoveries_s:
            return "-"
        worst = f"{max(self.recoveries_s):.2f} s"
        return worst if len(self.recoveries_s) == 1 else f"{worst} (median {statistics.median(self.recoveries_s):.2f} s)"


@dataclasses.dataclass
class Kind:
    """The results of all runs of one kind of fault."""
    rows: dict = dataclasses.field(default_factory=dict)
    runs: int = 0
    violations: list = dataclasses.field(default_factory=list)  # (run, text)
    skipped: str = ""  # why the kind was not run; empty if it was
    figures: list = dataclasses.field(default_factory=list)
    notes: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # tolerated events

    def injected(self):
        return sum(row.injected for row in self.rows.values())

    def row(self, fault):
        return self.rows.setdefault(fault, Row())


class Table:

    def __init__(self):
        self.kinds = {}

    def kind(self, name):
        return self.kinds.setdefault(name, Kind())

    def injected(self, kind, fault, times=1):
        self.kind(kind).row(fault).injected += times

    def recovered(self, kind, fault, seconds):
        """Adds a recovery time: seconds from the end of the fault to the next applied step."""
        self.kind(kind).row(fault).recoveries_s.append(seconds)

    def violations(self):
        return sum(len(kind.violations) for kind in self.kinds.values())

    def _lines(self):
        yield HEAD
        for name, kind in self.kinds.items():
            outcome = kind.skipped and f"skipped: {kind.skipped}" or (
                f"{len(kind.violations)} VIOLATIONS" if kind.violations else "ok" if kind.runs else "not run")
            worst = [max(row.recoveries_s) for row in kind.rows.values() if row.recoveries_s]
            yield name, str(kind.injected()), str(kind.runs), outcome, f"{max(worst):.2f} s" if worst else "-"
            for fault, row in sorted(kind.rows.items()):
                yield f"  {fault}", str(row.injected), "", "", row.recovery()

    def text(self):
        lines = list(self._lines())
        widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
        out = []
        for line in lines:
            cells = [word.rjust(width) if column in (1, 2) else word.ljust(width)
                     for column, (word, width) in enumerate(zip(line, widths))]
            out.append("  ".join(cells).rstrip())
        for name, kind in self.kinds.items():
            out += [f"{name}: {figure}" for figure in kind.figures]
            out += [f"{name}: {times} times: {note}" for note, times in sorted(kind.notes.items())]
            for run, text in kind.violations:
                out.append(f"VIOLATION in {name}, run {run}: {text.splitlines()[0]}")
        return "\n".join(out)
