#!/usr/bin/env bash
# Rejects the retired words of docs/GLOSSARY.md, so that each thing keeps one name.
# usage: scripts/check_words.sh [ROOT]      exit code 1 and one line per violation: FILE:LINE: what to write instead
set -uo pipefail
root=${1:-$(dirname "$0")/..}
CDPATH='' cd "$root" || exit 64

violations=0
# retired ADVICE PATTERN PATH...: no line of a file below the paths may match the extended regular expression.
retired() {
  local advice=$1 pattern=$2 hits
  shift 2
  hits=$(grep -rnIE "$pattern" "$@" --exclude-dir=__pycache__ --exclude-dir=golden \
    --exclude=GLOSSARY.md --exclude=CHANGELOG.md --exclude=check_words.sh --exclude=check_words_test.sh \
    2> /dev/null | sed -E "s|^([^:]+:[0-9]+):.*|\1: $advice|")
  if [ -n "$hits" ]; then
    echo "$hits"
    violations=$((violations + $(wc -l <<< "$hits")))
  fi
}
folders=(README.md SECURITY.md CONTRIBUTING.md CMakeLists.txt common deploy docs kernels protos ps_server python scripts tests worker)

retired "say image" '[Pp]icture' "${folders[@]}"
retired "say rate limiter" 'ArrivalPace|arrival_pace|arrival pace|Limiter[*&]? pace' "${folders[@]}"
retired "say connection preface" 'OpeningBytes|opening_bytes|opening bytes' "${folders[@]}"
retired "say MAC of a grant" 'GrantSeal|grant_seal' "${folders[@]}"
retired "say CancelBatch" 'TakeBatchBack' "${folders[@]}"
retired "say Problem" 'WhatIsWrong' "${folders[@]}"
retired "say warm start" 'FineTuning|LoadFineTune|[Ff]ine-tun' "${folders[@]}"
retired "say monitoring" '[Ww]atching' "${folders[@]}"
retired "the module has another name" 'ps_server/(watch|service)/|common/(rpc|fine_tune)/|tests/testutil' "${folders[@]}"
# A worker is the parent process, which has no number in the protocol: a worker_id belongs to a clone.
retired "say clone" '"([^"]*[^"[:alnum:]])?worker (%d|\{|", *[[:alnum:]_.]*worker)' ps_server common/wire tests/ps_server
retired "say clone" 'ps_worker_[a-z]|late_workers|worker_loss' README.md deploy docs protos ps_server tests
# An operator is what a node of a network computes; C++ has operators, too.
retired "say administrator" '[Oo]perators?([^]=(<*+[:alnum:]_[]|$)' ps_server common/wire tests/ps_server SECURITY.md docs/PROTOCOL.md
retired "say monitoring" 'TlsFilesWatch|Monitor watcher' "${folders[@]}"
retired "say blocked" '[^[:alnum:]][Bb]arred|IsBarred|CutAndBar' "${folders[@]}"
retired "say training thread" '[Cc]ompute thread' "${folders[@]}"
retired "say kMax or kMin" 'k(Most|Least|Fewest)[A-Z]' "${folders[@]}"
# A round is a step of local steps; the benchmarks of the exchange have rounds of their own.
retired "say step, iteration or group" 'StepRound|round_wait|ImagesPerRound|Each round pulls' "${folders[@]}"
retired "say skip" 'ResidualSource|residual_source|[Rr]esidual links?|([.>]|int |bool )residual([^[:alnum:]_]|$)' \
  worker/model kernels scripts/bench tests/worker/model tests/kernels
retired "say BfloatAsFloat, WideTag, kPanelAlignment or merge_pairs" \
  'WideBfloat16|WideMath|WidenedPair|Panels\([a-z_]+, /\*wide' "${folders[@]}"
retired "say module" '([^[:alnum:]_]|^)[Rr]ooms([^[:alnum:]_]|$)|([^[:alnum:]_]|^)(a|the|this|each|one|per|own) room (of|named|is|has|links)' \
  "${folders[@]}"
# "Behind" stays for what is hidden or late: a server behind a router, a clock that is behind.
retired "say after" '[^k] [Bb]ehind (it|them|=|what)([^[:alnum:]]|$)' "${folders[@]}"
retired "begin with what it is, not with Of" '(//|#) Of ' "${folders[@]}"
# "Slot" means an optimizer's slot variable. These folders deal with replicas, so the word would be ambiguous there.
retired "say replica" '([^_[:alnum:]]|^)[Ss]lots?([^_[:alnum:]]|$)' \
  ps_server/core ps_server/psctl worker/data worker/train
retired "say place" '([^_[:alnum:]]|^)([Ss]lots?|VariableSlot|FindSlot)([^_[:alnum:]]|$)' worker/model tests/worker/model

if [ $violations -gt 0 ]; then
  echo "words: $violations retired words"
  exit 1
fi
echo "words: ok"
