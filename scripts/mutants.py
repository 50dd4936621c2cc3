"""Makes mutants of C++ source text: small mechanical changes that a good test notices.

mutants_of(text) yields each mutant of a file. Comments, strings and preprocessor lines are never changed, nor are
logs and CHECKs; the number of lines stays the same. A mutant need not compile.
"""
import dataclasses
import itertools
import re

SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+",
         "*": "/", "/": "*", "%": "/", "+=": "-=", "-=": "+=", "|": "&", "&": "|", "<<": ">>", ">>": "<<"}
WORDS = {"true": "false", "false": "true", "min": "max", "max": "min", "continue": "break", "break": "continue",
         "lower_bound": "upper_bound", "upper_bound": "lower_bound"}
# These statements are for readers of logs, or about invariants of the program itself.
SPEAKERS = re.compile(r"\b(?:V?LOG\w*|D?CHECK\w*|static_assert)\(")
# Statements that can be deleted: calls, assignments, ++, jumps, and guards that live as long as their block.
DELETABLE = re.compile(r"(?:return\b|continue$|break$|(?:absl::|std::)?\w*(?:MutexLock|lock_guard|unique_lock)\b"
                       r"|(?:\+\+|--|\*|\(\*)?(?!(?:if|for|while|switch|else|case|using|do|delete|typedef|goto)\b)"
                       r"[\w:.\[\]](?:[^\s=(]|\([^=]*\))*(?:\(.*\)$|\s*[-+*/%&|^]?=(?!=)|\+\+$|--$))", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Mutant:
    operator: str
    begin: int  # text[begin:end] becomes `replacement`
    end: int
    replacement: str

    def apply(self, text):
        lines_lost = text.count("\n", self.begin, self.end) - self.replacement.count("\n")
        return text[:self.begin] + self.replacement + "\n" * lines_lost + text[self.end:]

    def lines(self, text):
        """The first and last line number, from 1."""
        return text.count("\n", 0, self.begin) + 1, text.count("\n", 0, max(self.begin, self.end - 1)) + 1

    def before_and_after(self, text):
        """The changed lines as they are and as they become, with single spaces. Where the file has these lines more
        than once, those above come with them."""
        begin = text.rfind("\n", 0, self.begin) + 1
        end = text.find("\n", self.end)
        end = len(text) if end < 0 else end
        while begin > 0 and text.count(text[begin - 1:end + 1]) > 1:
            begin = text.rfind("\n", 0, begin - 1) + 1
        after = text[begin:self.begin] + self.replacement + text[self.end:end]
        return " ".join(text[begin:end].split()), " ".join(after.split())


def mask(text):
    """The text with blanks in the places of comments, preprocessor lines and statements of SPEAKERS, and with @ in the
    places of strings and characters."""
    literal = r"R\"(\w*)\(.*?\)\2\"|\"(?:\\.|[^\"\\\n])*\"|(?<!\w)'(?:\\.|[^'\\\n])*'"
    other = r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*"
    masked = re.sub(f"({literal})|{other}", lambda match: re.sub(r"[^\n]", "@" if match[1] else " ", match[0]), text,
                    flags=re.DOTALL | re.MULTILINE)
    for match in SPEAKERS.finditer(masked):
        end = masked.find(";", match.end())
        masked = masked[:match.start()] + re.sub(r"[^\n]", " ", masked[match.start():end]) + masked[end:]
    return masked


def closing(masked, opening):
    """The place of the bracket that closes the one at `opening`."""
    depth = 0
    for i in range(opening, len(masked)):
        depth += (masked[i] in "([{") - (masked[i] in ")]}")
        if depth == 0:
            return i
    return len(masked) - 1


def operand(masked, at, step):
    """How far the operand of `&&`, `||` or `?` before (step -1) or after `at` (step 1) reaches."""
    masked = masked.replace("\n", " ")
    opens, closes = ("([{", ")]}") if step > 0 else (")]}", "([{")
    depth = 0
    i = at
    while 0 <= i < len(masked):
        c = masked[i]
        ends = (" : ", " = ", " ||", "|| ", " &&", "&& ")
        if depth == 0 and (c in closes + ",;?" or masked[i - 1:i + 2] in ends or masked[i - 6:i + 1] == "return "):
            break
        depth += (c in opens) - (c in closes)
        i += step
    begin, end = (at, i) if step > 0 else (i + 1, at + 1)
    while begin < end and masked[begin].isspace():
        begin += 1
    while end > begin and masked[end - 1].isspace():
        end -= 1
    return begin, end


def mutants_of(text):
    masked = mask(text)
    seen = set()
    for mutant in itertools.chain(*(make(text, masked) for make in (conditions, operands, tokens, statements))):
        change = (mutant.begin, mutant.end, mutant.replacement)
        if mutant.replacement != text[mutant.begin:mutant.end] and change not in seen:
            seen.add(change)
            yield mutant


def conditions(text, masked):
    """Each condition never holds, or always. It is still computed, so that nothing becomes unused."""
    for match in re.finditer(r"\b(?:if|while)\s*(?:constexpr\s*)?(\()", masked):
        begin, end = match.end(), closing(masked, match.end() - 1)
        initializer = masked.rfind("; ", begin, end)
        begin = begin if initializer < 0 else initializer + 2
        declared = re.search(r"^[^=(]*?[\s&*](\w+)\s=\s", masked[begin:end])
        value = f"{text[begin:end]}; {declared[1]}" if declared else f"({text[begin:end].strip()})"
        yield Mutant("condition", begin, end, f"{value} && false")
        if masked.startswith("if", match.start()):
            yield Mutant("condition", begin, end, f"{value} || true")


def operands(text, masked):
    """One side of `&&` and `||` does not count; of `?:` one side is never taken."""
    for match in re.finditer(r"\s(&&|\|\|)\s", masked):
        neutral = "|| true" if match[1] == "&&" else "&& false"
        for begin, end in (operand(masked, match.start(1) - 1, -1), operand(masked, match.end(1), 1)):
            yield Mutant("operand", begin, end, f"({text[begin:end]} {neutral})")
    for match in re.finditer(r"\s\?\s", masked):
        begin, end = operand(masked, match.start(), -1)
        while masked[:begin].rstrip().endswith((" &&", " ||")):
            begin = operand(masked, len(masked[:begin].rstrip()) - 3, -1)[0]
        for constant in ("&& false", "|| true"):
            yield Mutant("choice", begin, end, f"({text[begin:end]}) {constant}")


def tokens(text, masked):
    for match in re.finditer(r"(?<=\s)(<=?|>=?|[=!]=|&&|\|\||[-+*/]|%|[-+]=|\||&|<<|>>)(?=\s)", masked):
        yield Mutant("swap", *match.span(1), SWAPS[match[1]])
    for match in re.finditer(rf"\b(?:{'|'.join(WORDS)})\b", masked):
        yield Mutant("swap", *match.span(), WORDS[match[0]])
    for match in re.finditer(r"(?<=\s)[-+|] (?:1|k?[A-Z]\w*)\b(?![(.:])", masked):
        yield Mutant("term", *match.span(), "")
    for match in re.finditer(r"(?<![\w.'])(?:0[xX][\da-fA-F']+|\d[\d']*)(?![\w.'])", masked):
        yield Mutant("number", *match.span(), "1" if match[0] == "0" else f"({match[0]} + 1)")
        if len(match[0]) > 1:
            yield Mutant("number", *match.span(), "1")
    for match in re.finditer(r"(?<=Idx\.|Dim\.)[xyz]\b", masked):
        yield Mutant("swap", *match.span(), "y" if match[0] == "x" else "x")
    for match in re.finditer(r"\bcase [\w:]+:(?!:)", masked):
        yield Mutant("case", *match.span(), "")
    for match in re.finditer(r"!(?=[\w(*])", masked):
        yield Mutant("negation", *match.span(), " ")
    for match in re.finditer(r"(?<![;,] )(?:\+\+|--)", masked):
        yield Mutant("swap", *match.span(), "--" if match[0] == "++" else "++")


def statements(text, masked):
    """Deletes single statements; a returned error becomes OK. What only an `if` guards is left to conditions()."""
    guarded = {closing(masked, match.end() - 1) for match in re.finditer(r"\bif\s*(?:constexpr\s*)?\(", masked)}
    for match in re.finditer(r"(?:(?<=[;{})])|(?<=\w:))\s+(?=[^\s;{}])|\belse\s+", masked):
        begin = end = match.end()
        while end < len(masked) and masked[end] not in ";}":
            end = closing(masked, end) + 1 if masked[end] in "([{" else end + 1
        if end >= len(masked) or masked[end] != ";" or not DELETABLE.match(masked[begin:end]):
            continue
        value = re.match(r"return\s+(.*)", text[begin:end], re.DOTALL)
        if value and re.match(r"(?:absl::)?\w+Error\(|(?!absl::|std::)(?:\w+::)*[A-Z]\w*\(|.*\.status\(\)$", value[1]):
            yield Mutant("error", begin, end, "return absl::OkStatus()")
        elif not value and match.start() - 1 not in guarded:
            yield Mutant("statement", begin, end, "")
