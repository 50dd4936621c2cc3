"""Parses the part of PromQL that deploy/ uses: checks that an expression is well-formed and finds the metrics it names.

Standard library only. It is a substitute for promtool, which is not installed everywhere.
"""
import re

TOKEN = re.compile(r"""
    (?P<space>\s+)
  | (?P<duration>\[[^\]]*\])
  | (?P<number>(\d+(\.\d+)?|\.\d+)([eE][+-]?\d+)?(?![a-zA-Z0-9_]))
  | (?P<time>\d+(ms|[smhdwy])(?![a-zA-Z0-9_]))
  | (?P<string>"([^"\\]|\\.)*"|'([^'\\]|\\.)*')
  | (?P<name>[a-zA-Z_:$][a-zA-Z0-9_:$]*)
  | (?P<operator>=~|!~|==|!=|<=|>=|[-+*/%^<>=(){},])
""", re.VERBOSE)
DURATION = re.compile(r"\[(\d+(ms|[smhdwy])|\$__rate_interval)\]")
RANGE_FUNCTIONS = {"rate", "irate", "increase", "delta", "deriv", "changes", "avg_over_time",
                   "max_over_time", "min_over_time"}
FUNCTIONS = RANGE_FUNCTIONS | {"time", "histogram_quantile", "clamp_min", "clamp_max", "abs", "vector", "scalar"}
AGGREGATIONS = {"sum", "avg", "min", "max", "count", "topk", "bottomk"}
SET_OPERATORS = {"and", "or", "unless"}
COMPARISONS = {"==", "!=", "<=", ">=", "<", ">"}
# Binary operators by precedence, lowest first.
LEVELS = [{"or"}, {"and", "unless"}, COMPARISONS, {"+", "-"}, {"*", "/", "%"}, {"^"}]


class QueryError(ValueError):
    """The expression is not well-formed. The message names the expression and the place."""


class _Reader:
    """A recursive-descent parser. Its methods return the kind of an expression: "scalar", "vector" or "range"."""

    def __init__(self, text):
        self.text, self.at, self.tokens, self.metrics = text, 0, [], set()
        place = 0
        while place < len(text):
            match = TOKEN.match(text, place)
            if not match:
                self.fail(f"unexpected {text[place]!r}")
            if match.lastgroup != "space":
                kind = next(k for k, v in match.groupdict().items() if v is not None)
                self.tokens.append((kind, match[0]))
            place = match.end()

    def fail(self, why):
        raise QueryError(f"{self.text!r}, token {self.at}: {why}")

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self, text=None, kind=None):
        token = self.peek()
        if (text is not None and token[1] != text) or (kind is not None and token[0] != kind):
            self.fail(f"expected {text or kind}, got {token[1]!r}")
        self.at += 1
        return token[1]

    def names(self):
        """Reads a list of label names such as (a, b)."""
        self.take("(")
        while self.peek()[1] != ")":
            self.take(kind="name")
            if self.peek()[1] != ")":
                self.take(",")
        self.take(")")

    def binary(self, level=0):
        if level == len(LEVELS):
            return self.unary()
        kind = self.binary(level + 1)
        while self.peek()[1] in LEVELS[level]:
            operator = self.take()
            if self.peek()[1] == "bool" and operator in COMPARISONS:
                self.take()
            if self.peek()[1] in ("on", "ignoring"):
                self.take()
                self.names()
                if self.peek()[1] in ("group_left", "group_right"):
                    self.take()
                    if self.peek()[1] == "(":
                        self.names()
            other = self.binary(level + 1)
            if "range" in (kind, other):
                self.fail(f"{operator} over a range")
            if operator in SET_OPERATORS and "scalar" in (kind, other):
                self.fail(f"{operator} needs vectors")
            kind = "scalar" if kind == other == "scalar" else "vector"
        return kind

    def unary(self):
        if self.peek()[1] in ("-", "+"):
            self.take()
        kind, text = self.peek()
        if text == "(":
            self.take()
            result = self.binary()
            self.take(")")
        elif kind == "number":
            self.take()
            return "scalar"
        elif kind == "name":
            self.take()
            if text in AGGREGATIONS:
                result = self.aggregation()
            elif self.peek()[1] == "(":
                result = self.call(text)
            else:
                result = self.selector(text)
        else:
            self.fail(f"unexpected {text!r}")
        if self.peek()[1] == "offset":
            self.take()
            self.take(kind="time")
        return result

    def grouping(self):
        if self.peek()[1] in ("by", "without"):
            self.take()
            self.names()

    def aggregation(self):
        self.grouping()
        self.arguments()
        self.grouping()
        return "vector"

    def arguments(self):
        kinds = []
        self.take("(")
        while self.peek()[1] != ")":
            kinds.append(self.binary())
            if self.peek()[1] != ")":
                self.take(",")
        self.take(")")
        return kinds

    def call(self, name):
        if name not in FUNCTIONS:
            self.fail(f"no function {name}")
        kinds = self.arguments()
        if name in RANGE_FUNCTIONS and kinds != ["range"]:
            self.fail(f"{name} needs a range such as [5m]")
        if name not in RANGE_FUNCTIONS and "range" in kinds:
            self.fail(f"{name} takes no range")
        if name == "time":
            return "scalar"
        return "vector"

    def selector(self, name):
        if name in SET_OPERATORS | {"by", "on", "offset"}:
            self.fail(f"expected a metric, got {name}")
        self.metrics.add(name)
        if self.peek()[1] == "{":
            self.take()
            while self.peek()[1] != "}":
                self.take(kind="name")
                if self.take(kind="operator") not in ("=", "!=", "=~", "!~"):
                    self.fail("expected a label matcher")
                self.take(kind="string")
                if self.peek()[1] != "}":
                    self.take(",")
            self.take("}")
        if self.peek()[0] == "duration":
            text = self.take()
            if not DURATION.fullmatch(text):
                self.fail(f"not a duration: {text}")
            return "range"
        return "vector"


def metrics_of(expression):
    """Returns the names of the metrics in the expression. Raises QueryError if it is not well-formed."""
    reader = _Reader(expression)
    if reader.binary() == "range":
        reader.fail("the result is a range")
    if reader.peek()[0] != "end":
        reader.fail(f"unexpected {reader.peek()[1]!r}")
    return reader.metrics
