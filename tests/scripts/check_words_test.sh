#!/usr/bin/env bash
# Plants one retired word at a time in a small tree and expects scripts/check_words.sh to name its place.
# usage: check_words_test.sh SOURCE_DIR
set -uo pipefail
check=$1/scripts/check_words.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# expect_caught FILE LINE: writes the line into the file and expects that the check fails and names FILE:1.
expect_caught() {
  rm -rf "${tree:?}"/*
  mkdir -p "$tree/$(dirname "$1")"
  echo "$2" > "$tree/$1"
  local output
  if output=$("$check" "$tree") || ! grep -q "^$1:1: " <<< "$output"; then
    echo "FAILED: not caught in $1: $2; got: $output"
    failures=$((failures + 1))
  fi
}

mkdir -p "$tree/ps_server/store" "$tree/docs"
echo '// Each slot variable of the optimizer.' > "$tree/ps_server/store/optimizer.h"
echo '| picture | image |' > "$tree/docs/GLOSSARY.md"
if ! "$check" "$tree" > /dev/null; then
  echo "FAILED: a clean tree is refused: $("$check" "$tree")"
  failures=$((failures + 1))
fi
expect_caught worker/data/a.h 'int64_t num_pictures = 0;'
expect_caught deploy/a.md 'ps_worker_up'
expect_caught deploy/prometheus/a.yml 'expr: ps_worker_up == 0'
expect_caught scripts/campaign/run '# Watching a run'
expect_caught ps_server/core/b.h '// Answers the calls of an operator.'
expect_caught ps_server/core/c.h 'class StepRound;'
expect_caught ps_server/transport/a.h 'bool IsBarred();'
expect_caught ps_server/monitoring/a.cc 'Monitor watcher_;'
expect_caught worker/client/a.h '// Called by the compute thread.'
expect_caught kernels/cpu/a.cc 'constexpr int kMostTiles = 256;'
expect_caught docs/b.md 'Most rooms build into a library of their own.'
expect_caught common/b.h '// An array with a guard behind it.'
expect_caught common/wire/a.cc 'ArrivalPace pace;'
expect_caught ps_server/transport/a.h 'bool MakeRoom(LogLimiter* pace);'
expect_caught ps_server/runtime/b.cc 'LOG(INFO) << "fine-tuning " << report;'
expect_caught README.md '## Watching a run'
expect_caught docs/a.md 'the opening bytes of a connection'
expect_caught ps_server/runtime/a.cc 'GrantSeals seals;'
expect_caught worker/train/a.cc 'TakeBatchBack();'
expect_caught kernels/a.cc 'WhatIsWrong(x);'
expect_caught common/a.h '#include "common/rpc/a.h"'
expect_caught ps_server/store/a.h '// Of one shard.'
expect_caught ps_server/core/a.cc 'StrFormat("%s: worker %d is here", who, id);'
expect_caught common/wire/a.cc 'StrCat("worker ", request.worker_id(), " is here");'
expect_caught ps_server/core/a.h 'uint32_t slot = 0;'
expect_caught worker/model/b.h 'int residual = kNone;'
expect_caught worker/model/a.h 'const VariableSlot& slot;'
expect_caught worker/train/a.py '# the slots of a clone'

[ $failures -eq 0 ] || exit 1
echo "all retired words were caught"
