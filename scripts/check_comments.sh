#!/usr/bin/env bash
# Finds lists in comments that clang-format has reflowed: it breaks an item that is too long and leaves a line of one or
# two words at the item's own indentation, above the deeper indented rest of the item.
# usage: scripts/check_comments.sh [ROOT]      exit code 1 and one line per violation: FILE:LINE: what is there
set -uo pipefail
root=${1:-$(dirname "$0")/..}
CDPATH='' cd "$root" || exit 64

mapfile -t sources < <(find common kernels ps_server scripts tests worker -type f \
  \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) 2> /dev/null | sort)
# The item's first line stands deeper than a paragraph, or begins with a dash or a number.
violations=$(awk '
  function text(line) { sub(/^ *\/\/ */, "", line); return line }
  function indent(line) { sub(/^ *\/\//, "", line); match(line, /^ */); return RLENGTH }
  function words(line, parts) { return split(text(line), parts, " ") }
  function begins_item(line) { return indent(line) > 1 || text(line) ~ /^(-|[0-9]+\.) / }
  FNR == 1 { item = rest = ""; formatted = 1 }
  /clang-format off/ { formatted = 0 }
  /clang-format on/ { formatted = 1 }
  {
    line = formatted && $0 ~ /^ *\/\/ *[^ ]/ ? $0 : ""
    if (item != "" && rest != "" && line != "" && begins_item(item) && words(rest) <= 2 &&
        indent(rest) == indent(item) && indent(line) > indent(rest)) {
      print FILENAME ":" FNR - 1 ": \"" text(rest) "\" is what is left of the line above: break that line earlier"
    }
    item = rest
    rest = line
  }' "${sources[@]}" /dev/null)

if [ -n "$violations" ]; then
  echo "$violations"
  echo "comments: $(wc -l <<< "$violations") lists that were reflowed"
  exit 1
fi
echo "comments: ok"
