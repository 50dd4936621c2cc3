# shellcheck shell=bash
# Sourced by tests of the scripts that look for forbidden lines. All lines are planted in one tree, because a run of such
# a script for each of them would take half a minute.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
places=()
lines=()

# plant FILE LINE: appends the line to the file, which the check must name.
plant() {
  mkdir -p "$tree/$(dirname "$1")"
  printf '%s\n' "$2" >> "$tree/$1"
  places+=("$1:$(wc -l < "$tree/$1")")
  lines+=("$2")
}

# expect_clean CHECK: expects that the check accepts the tree. Called before the first line is planted.
expect_clean() {
  local output
  output=$("$1" "$tree") && return
  echo "FAILED: a clean tree is refused: $output"
  exit 1
}

# expect_all_caught CHECK: expects that the check fails and names the place of every planted line.
expect_all_caught() {
  local output failures=0 i
  if output=$("$1" "$tree"); then
    echo "FAILED: the check accepts a tree with ${#places[@]} violations"
    exit 1
  fi
  for i in "${!places[@]}"; do
    grep -q "^${places[i]}: " <<< "$output" && continue
    echo "FAILED: not caught in ${places[i]}: ${lines[i]}"
    failures=$((failures + 1))
  done
  [ $failures -eq 0 ] || exit 1
  echo "all ${#places[@]} planted lines were caught"
}
