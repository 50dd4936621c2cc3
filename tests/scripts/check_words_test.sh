#!/usr/bin/env bash
# Plants retired words in a small tree and expects scripts/check_words.sh to name their places.
# usage: check_words_test.sh SOURCE_DIR
set -uo pipefail
check=$1/scripts/check_words.sh
source "$1/tests/scripts/planted_lines.sh"

mkdir -p "$tree/ps_server/store" "$tree/docs"
echo '// Each slot variable of the optimizer.' > "$tree/ps_server/store/optimizer.h"
echo '| picture | image |' > "$tree/docs/GLOSSARY.md"
expect_clean "$check"

plant worker/data/a.h 'int64_t num_pictures = 0;'
plant deploy/a.md 'ps_worker_up'
plant deploy/prometheus/a.yml 'expr: ps_worker_up == 0'
plant scripts/campaign/run '# Watching a run'
plant ps_server/core/b.h '// Answers the calls of an operator.'
plant ps_server/core/c.h 'class StepRound;'
plant ps_server/transport/a.h 'bool IsBarred();'
plant ps_server/monitoring/a.cc 'Monitor watcher_;'
plant worker/client/a.h '// Called by the compute thread.'
plant kernels/cpu/a.cc 'constexpr int kMostTiles = 256;'
plant docs/b.md 'Most rooms build into a library of their own.'
plant common/b.h '// An array with a guard behind it.'
plant common/wire/a.cc 'ArrivalPace pace;'
plant ps_server/transport/a.h 'bool MakeRoom(LogLimiter* pace);'
plant ps_server/runtime/b.cc 'LOG(INFO) << "fine-tuning " << report;'
plant README.md '## Watching a run'
plant docs/a.md 'the opening bytes of a connection'
plant ps_server/runtime/a.cc 'GrantSeals seals;'
plant worker/train/a.cc 'TakeBatchBack();'
plant kernels/a.cc 'WhatIsWrong(x);'
plant common/a.h '#include "common/rpc/a.h"'
plant ps_server/store/a.h '// Of one shard.'
plant ps_server/core/a.cc 'StrFormat("%s: worker %d is here", who, id);'
plant common/wire/a.cc 'StrCat("worker ", request.worker_id(), " is here");'
plant ps_server/core/a.h 'uint32_t slot = 0;'
plant worker/model/b.h 'int residual = kNone;'
plant worker/model/a.h 'const VariableSlot& slot;'
plant worker/train/a.py '# the slots of a clone'

expect_all_caught "$check"
