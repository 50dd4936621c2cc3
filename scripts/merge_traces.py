#!/usr/bin/env python3
"""Puts traces of --trace=FILE together, so that one image shows the server and all workers.

usage: merge_traces.py TRACE... --output=ALL.json

Then open ALL.json in https://ui.perfetto.dev or chrome://tracing. All traces of a job have one clock (ps task 0's), so
nothing is shifted. Traces without an end, which killed processes leave, are fine: what is cut off in their last line is
left out.
"""

import argparse
import json
import sys


def read_events(path):
    """The events of a trace: a JSON array with one event per line, whose end may be missing."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\n")
    if lines[0].strip() != "[":
        raise ValueError(f"{path} is no trace of ours: its first line is {lines[0][:40]!r}, expected '['")
    events = []
    for number, line in enumerate(lines[1:], start=2):
        text = line.strip().rstrip(",")
        if text in ("", "]"):
            continue
        try:
            events.append(json.loads(text))
        except json.JSONDecodeError as error:
            if number == len(lines):
                break  # cut off
            raise ValueError(f"{path}:{number}: {error}") from None
    return events


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--output", required=True)
    options = parser.parse_args(arguments)
    try:
        events = [event for path in options.traces for event in read_events(path)]
    except (OSError, ValueError) as error:
        print(f"merge_traces: {error}", file=sys.stderr)
        return 65
    with open(options.output, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(event) for event in events) + "\n]\n")
    print(f"{options.output}: {len(events)} events of {len(options.traces)} traces")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
