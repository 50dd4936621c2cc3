#!/usr/bin/env python3
"""Merges traces that were written with --trace=FILE, so that one view shows the server and all workers.

usage: merge_traces.py TRACE... --output=ALL.json

Open ALL.json in https://ui.perfetto.dev or chrome://tracing. All traces of a job use the clock of ps task 0, so no
times are shifted. The trace of a killed process may lack its end; an incomplete last line is left out.
"""

import argparse
import json
import sys


def read_events(path):
    """Returns the events of a trace, a JSON array with one event per line whose end may be missing.

    Raises ValueError if the file is not a trace.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\n")
    if lines[0].strip() != "[":
        raise ValueError(f"{path} is not a trace of Pushpull: its first line is {lines[0][:40]!r}, expected '['")
    events = []
    for number, line in enumerate(lines[1:], start=2):
        text = line.strip().rstrip(",")
        if text in ("", "]"):
            continue
        try:
            events.append(json.loads(text))
        except json.JSONDecodeError as error:
            if number == len(lines):
                break  # the last line is incomplete
            raise ValueError(f"{path}:{number}: {error}") from None
    return events


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--output", required=True)
    options = parser.parse_args(arguments)
    try:
        events = [event for path in options.traces for event in read_events(path)]
        with open(options.output, "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(json.dumps(event) for event in events) + "\n]\n")
    except FileNotFoundError as error:
        print(f"merge_traces: {error}", file=sys.stderr)
        return 66
    except (OSError, ValueError) as error:
        print(f"merge_traces: {error}", file=sys.stderr)
        return 65
    print(f"{options.output}: {len(events)} events from {len(options.traces)} traces")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
