#!/usr/bin/env bash
# Plants reflowed lists in a small tree and expects scripts/check_comments.sh to name their place.
# usage: check_comments_test.sh SOURCE_DIR
set -uo pipefail
check=$1/scripts/check_comments.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/common"
failures=0

# expect_caught: writes stdin into a file and expects that the check fails and names its second line.
expect_caught() {
  cat > "$tree/common/a.h"
  local output
  if output=$("$check" "$tree") || ! grep -q '^common/a.h:2: ' <<< "$output"; then
    echo "FAILED: not caught: $(cat "$tree/common/a.h"); got: $output"
    failures=$((failures + 1))
  fi
}
expect_caught << 'LIST'
//   INVALID_ARGUMENT: a file is not PEM; the key is encrypted or belongs to another certificate;
//   the
//     certificate is not valid.
LIST
expect_caught << 'LIST'
  // 1. Sorts the anchors by falling loss: the one that loss_type names, or with kBoth the sum of
  // both,
  //    weighted by classification_weight.
LIST

cat > "$tree/common/a.h" << 'LIST'
// A paragraph may end with a short line, also before a list or a formula that continues it. It ends
// here:
//   NOT_FOUND: a file does not exist, and this sentence goes on in the next line, where the rest
//     of it is.
// - The same with a dash, whose rest
//   is below.
// Then one number holds, which is
// the sum
//   a + b
// clang-format off
//   table    first row
//   second   row
//     with a note
// clang-format on
LIST
if ! output=$("$check" "$tree"); then
  echo "FAILED: a clean tree is refused: $output"
  failures=$((failures + 1))
fi

[ $failures -eq 0 ] || exit 1
echo "all reflowed lists were caught"
