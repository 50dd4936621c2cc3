#!/usr/bin/env bash
# Checks that the tests mirror the tree. A source DIR/NAME.cc or .cu is covered if tests/DIR/NAME_test.cc exists, or if
# comment lines at its top say `// Tested by tests/FILE.` or `// Not tested: REASON`. FILE has to exist, in headers too.
# usage: scripts/check_tests.sh [ROOT]      exit code 1 and one line per violation: FILE: why
set -uo pipefail
root=${1:-$(dirname "$0")/..}
CDPATH='' cd "$root" || exit 64

violations=0
violation() {
  echo "$1"
  violations=$((violations + 1))
}
folders=(common kernels ps_server worker)
while read -r source; do
  [ -e "tests/${source%.*}_test.cc" ] || head -40 "$source" | grep -qE '^// (Tested by tests/|Not tested: .)' ||
    violation "$source: add tests/${source%.*}_test.cc, or a line '// Tested by tests/FILE.' that names its test"
done < <(find "${folders[@]}" -type f \( -name '*.cc' -o -name '*.cu' \) 2> /dev/null | sort)
while IFS=: read -r source line; do
  test=$(sed -nE 's|^// Tested by (tests/[A-Za-z0-9_/]+_test\.(cc\|py))\.$|\1|p' <<< "$line")
  [ -n "$test" ] || violation "$source: expected '// Tested by tests/FILE_test.cc.' or .py, got '$line'"
  [ -z "$test" ] || [ -e "$test" ] || violation "$source: there is no $test"
done < <(grep -rE '^// Tested by' "${folders[@]}" 2> /dev/null)

if [ $violations -gt 0 ]; then
  echo "tests: $violations violations"
  exit 1
fi
echo "tests: ok"
