"""Runs the fault campaign: chooses the next kind of fault until the time is over, then prints a table."""
import argparse
import importlib
import pathlib
import signal
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests" / "e2e"), str(HERE.parents[1] / "tests" / "cluster")]
import engine  # pylint: disable=wrong-import-position
import processes  # pylint: disable=wrong-import-position
from table import Table  # pylint: disable=wrong-import-position

# After this many violations a kind is not run again, because further runs would tell nothing new.
MAX_VIOLATIONS = 5
INCOMPLETE = 3  # a kind that can run here had no run or no fault
USAGE_ERROR = 64
MISSING = 66


def find_kinds():
    """Returns one instance of every kind of fault in faults/, by name."""
    kinds = {}
    for path in sorted((HERE / "faults").glob("*.py")):
        module = importlib.import_module(f"faults.{path.stem}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, engine.Fault) and value.NAME \
                    and value.__module__ == module.__name__:
                kinds[value.NAME] = value()
    return kinds


class Campaign:

    def __init__(self, folder, seed, minutes, repeats, mode="", every_kind=False):
        self.folder = folder
        self.seed = seed
        self.mode = mode  # mode of the disturbed jobs, "sync" or "async"; empty for both
        self.repeats = repeats  # whether a single run is repeated (--run)
        self.every_kind = every_kind  # whether each kind has a run even after the deadline (--every_kind)
        self.is_short = minutes < engine.SHORT_MINUTES and not repeats
        self.deadline = time.monotonic() + 60 * minutes
        self.table = Table()
        self.references = engine.References(folder)

    def command(self, name, index):
        """Returns the command that repeats a run."""
        mode = f" --mode={self.mode}" if self.mode else ""
        return f"scripts/campaign/run --only={name} --seed={self.seed} --run={index}{mode}"

    def run_once(self, kind, index):
        """Carries out one run, prints its outcome, and returns how long it took, in seconds."""
        run = engine.Run(self, kind, index)
        begin = time.monotonic()
        kept = engine.carry_out(run)
        took = time.monotonic() - begin
        print(f"{kind.NAME} run {index}: {run.injections} faults in {took:.1f} s: "
              f"{'ok' if kept else f'VIOLATION, see {run.folder}'}", flush=True)
        return took

    def run_until_deadline(self, kinds, first):
        """Carries out runs until the time is over, numbered from `first` for each kind. The next run is always of the
        kind that has had the least time so far. With --every_kind a kind is tried up to three times, even after the
        deadline, until it has injected a fault."""
        spent = {name: 0.0 for name in kinds}
        longest = {name: 0.0 for name in kinds}
        runs = {name: first for name in kinds}
        while spent:
            left = self.deadline - time.monotonic()
            due = [name for name in spent
                   if self.every_kind and runs[name] < first + 3 and not self.table.kind(name).injected()]
            if left <= 0 and not due:
                break
            name = min(due if left <= 0 else spent, key=spent.get)
            is_due = name in due
            if left < longest[name] / 2 and not is_due:
                del spent[name]  # another run of this kind would go on long after the end
                continue
            took = self.run_once(kinds[name], runs[name])
            if len(self.table.kind(name).violations) >= MAX_VIOLATIONS:
                print(f"{name}: {MAX_VIOLATIONS} violations, not run again", flush=True)
                del spent[name]
                continue
            runs[name] += 1
            spent[name] += took
            longest[name] = max(longest[name], took)


def parse(arguments, kinds):
    parser = argparse.ArgumentParser(prog="scripts/campaign/run", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="time for all runs together (default 2)")
    parser.add_argument("--every_kind", action="store_true",
                        help="give each kind one run with a fault, even if that takes longer than --minutes")
    parser.add_argument("--only", default="", help=f"kinds of faults to run, comma-separated: {', '.join(kinds)}")
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices (default 1)")
    parser.add_argument("--run", type=int, default=None, help="repeat only this run of the kind named by --only")
    parser.add_argument("--first", type=int, default=0,
                        help="number of each kind's first run, to continue an earlier campaign (default 0)")
    parser.add_argument("--mode", choices=("sync", "async"), default="",
                        help="disturb only jobs of this mode, and leave out the kinds that have none (default: both modes)")
    parser.add_argument("--out", type=pathlib.Path, default=None,
                        help="where to keep the folders of failed runs (default: a new temporary folder)")
    values = parser.parse_args(arguments)
    wanted = [name for name in values.only.split(",") if name]
    unknown = [name for name in wanted if name not in kinds]
    if unknown:
        parser.exit(USAGE_ERROR, f"unknown kind {unknown[0]}, expected one of {', '.join(kinds)}\n")
    without_mode = [name for name in wanted if not kinds[name].shapes(values.mode)]
    if without_mode:
        parser.exit(USAGE_ERROR, f"--mode={values.mode}: these kinds have no {values.mode} jobs: "
                                 f"{', '.join(without_mode)}\n")
    if values.run is not None and len(wanted) != 1:
        parser.exit(USAGE_ERROR, "--run needs --only with one kind\n")
    return values, wanted


def main(arguments):
    kinds = find_kinds()
    values, wanted = parse(arguments, kinds)
    if not (processes.BIN / "ps_server").exists():
        print(f"no ps_server in {processes.BIN}: build first, or set PUSHPULL_BIN_DIR", file=sys.stderr)
        return MISSING
    # SIGTERM raises SystemExit, so that an interrupted campaign ends its processes and prints its table too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = values.out or pathlib.Path(tempfile.mkdtemp(prefix="pushpull-campaign-"))
    folder.mkdir(parents=True, exist_ok=True)
    chosen = {name: kind for name, kind in kinds.items()
              if name in wanted or (not wanted and not kind.ONLY_WHEN_NAMED)}
    campaign = Campaign(folder, values.seed, values.minutes, values.run is not None, values.mode,
                        values.every_kind)
    ready = {}
    for name, kind in chosen.items():
        without_mode = "" if kind.shapes(values.mode) else f"has no {values.mode} jobs"
        campaign.table.kind(name).skipped = without_mode or kind.missing()
        if not campaign.table.kind(name).skipped:
            ready[name] = kind
    print(f"campaign: seed {values.seed}, {values.minutes:g} minutes, {', '.join(ready)}; folder {folder}", flush=True)
    begin = time.monotonic()
    stopped = 0
    try:
        if values.run is not None:
            for kind in ready.values():
                campaign.run_once(kind, values.run)
        else:
            campaign.run_until_deadline(ready, values.first)
    except (KeyboardInterrupt, SystemExit) as end:
        stopped = end.code if isinstance(end, SystemExit) else 128 + signal.SIGINT
        print("stopped before the end", flush=True)
    print(f"\nseed {values.seed}, {(time.monotonic() - begin) / 60:.1f} minutes\n{campaign.table.text()}", flush=True)
    if campaign.table.violations():
        for name, kind in campaign.table.kinds.items():
            for index, _ in kind.violations:
                print(f"repeat: {campaign.command(name, index)}")
        print(f"folders of the failed runs: {folder}")
        return 1
    try:
        folder.rmdir()
    except OSError:
        pass
    idle = [name for name in ready if not campaign.table.kind(name).injected()]
    if idle and not stopped:
        print(f"no fault was injected by {', '.join(idle)}: give it more --minutes, or --every_kind")
        return INCOMPLETE
    return stopped


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
