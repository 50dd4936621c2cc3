"""A strict parser of Prometheus' text exposition format 0.0.4. Standard library only.

It is stricter than Prometheus: anything that Prometheus would tolerate or silently reorder is an error here.
"""
import math
import re

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
VALUE = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]Inf|NaN")
TYPES = {"counter", "gauge", "histogram", "summary", "untyped"}


class FormatError(ValueError):
    """The text violates the format. The message names the line or the metric."""


class Family:
    """One metric: its type, help, and samples {(suffix, labels): value}, labels a sorted tuple of pairs."""

    def __init__(self, name, help_text):
        self.name, self.help, self.type, self.samples = name, help_text, None, {}

    def value(self, **labels):
        """Returns the value of the sample with exactly these labels."""
        return self.samples["", tuple(sorted(labels.items()))]


def _unescape(text, quotes, where):
    result, i = [], 0
    while i < len(text):
        if text[i] == "\\":
            following = text[i + 1:i + 2]
            if following not in ("\\", "n") + (('"',) if quotes else ()):
                raise FormatError(f"{where}: bad escape \\{following}")
            result.append({"n": "\n"}.get(following, following))
            i += 2
        else:
            result.append(text[i])
            i += 1
    return "".join(result)


def _labels(text, where):
    """Parses a text like '{a="b"} rest'. Returns (list of label pairs, rest)."""
    pairs, i = [], 1
    while text[i:i + 1] != "}":
        name = LABEL.match(text, i)
        if not name:
            raise FormatError(f"{where}: expected a label name at {text[i:]!r}")
        i = name.end()
        if text[i:i + 2] != '="':
            raise FormatError(f"{where}: expected =\" after label {name[0]}")
        end = i + 2
        while end < len(text) and text[end] != '"':
            end += 2 if text[end] == "\\" else 1
        if end >= len(text):
            raise FormatError(f"{where}: label {name[0]} does not end")
        pairs.append((name[0], _unescape(text[i + 2:end], True, where)))
        i = end + 1
        if text[i:i + 1] == ",":
            i += 1
            if text[i:i + 1] == "}":
                raise FormatError(f"{where}: a comma before }}")
        elif text[i:i + 1] != "}":
            raise FormatError(f"{where}: expected , or }} at {text[i:]!r}")
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise FormatError(f"{where}: a label twice")
    return pairs, text[i + 1:]


def _suffix(family, name):
    """Returns the suffix of a sample's name after the family's name; None if it is not a sample of the family."""
    if not name.startswith(family.name):
        return None
    suffix = name[len(family.name):]
    allowed = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}
    return suffix if suffix in allowed.get(family.type, ("",)) else None


def _check_histogram(family):
    series = {}
    for (suffix, labels), value in family.samples.items():
        rest = tuple(pair for pair in labels if pair[0] != "le")
        entry = series.setdefault(rest, {"buckets": []})
        if suffix == "_bucket":
            bound = dict(labels).get("le")
            if bound is None:
                raise FormatError(f"{family.name}: a bucket without le")
            entry["buckets"].append((math.inf if bound == "+Inf" else float(bound), value))
        else:
            entry[suffix] = value
    for labels, entry in series.items():
        where = f"{family.name}{dict(labels)}"
        bounds = [bound for bound, _ in entry["buckets"]]
        counts = [count for _, count in entry["buckets"]]
        if not bounds or bounds != sorted(set(bounds)):
            raise FormatError(f"{where}: bounds do not rise: {bounds}")
        if bounds[-1] != math.inf:
            raise FormatError(f"{where}: no bucket +Inf")
        if counts != sorted(counts):
            raise FormatError(f"{where}: counts are not cumulative: {counts}")
        if "_sum" not in entry or "_count" not in entry:
            raise FormatError(f"{where}: no _sum or _count")
        if entry["_count"] != counts[-1]:
            raise FormatError(f"{where}: _count is not the bucket +Inf")


def _check_family(family):
    if family.type is None:
        raise FormatError(f"{family.name}: HELP without TYPE")
    if (family.type == "counter") != family.name.endswith("_total"):
        raise FormatError(f"{family.name}: counters, and no others, end in _total")
    if family.type == "counter" and any(not value >= 0 for value in family.samples.values()):
        raise FormatError(f"{family.name}: a counter must not be negative")
    if family.type == "histogram":
        _check_histogram(family)


def parse(text):
    """Returns {name: Family}. Raises FormatError if the text violates the format."""
    if not text.endswith("\n"):
        raise FormatError("the last line has no line feed")
    if "\r" in text:
        raise FormatError("a carriage return")
    families, current = {}, None
    for number, line in enumerate(text[:-1].split("\n"), 1):
        where = f"line {number} {line!r}"
        if line.startswith("# HELP "):
            name, _, help_text = line[7:].partition(" ")
            if not NAME.fullmatch(name) or not help_text:
                raise FormatError(f"{where}: expected a name and a text")
            if name in families:
                raise FormatError(f"{where}: {name} appears twice")
            if current is not None:
                _check_family(current)
            current = families[name] = Family(name, _unescape(help_text, False, where))
        elif line.startswith("# TYPE "):
            name, _, kind = line[7:].partition(" ")
            if current is None or name != current.name or current.type or current.samples:
                raise FormatError(f"{where}: TYPE must follow its HELP")
            if kind not in TYPES:
                raise FormatError(f"{where}: no such type")
            current.type = kind
        elif line.startswith("#") or not line.strip():
            raise FormatError(f"{where}: neither header nor sample")
        else:
            name = NAME.match(line)
            if not name or current is None:
                raise FormatError(f"{where}: expected a sample of a family")
            pairs, rest = [], line[name.end():]
            if rest.startswith("{"):
                pairs, rest = _labels(rest, where)
            if not rest.startswith(" ") or not VALUE.fullmatch(rest[1:]):
                raise FormatError(f"{where}: expected one space and a value")
            suffix = _suffix(current, name[0])
            if suffix is None:
                raise FormatError(f"{where}: not a sample of {current.name}")
            key = suffix, tuple(sorted(pairs))
            if key in current.samples:
                raise FormatError(f"{where}: the same sample twice")
            current.samples[key] = float(rest[1:].replace("Inf", "inf"))
    if current is not None:
        _check_family(current)
    return families


def sample_names(families):
    """Returns every metric name that a query may use."""
    names = set()
    for family in families.values():
        suffixes = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",)
        names.update(family.name + suffix for suffix in suffixes)
    return names
