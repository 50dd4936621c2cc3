#!/usr/bin/env bash
# Computes the learning curves on the CPU with which check.sh compares those of the GPUs, so that no time on a GPU host is
# spent on them. Runs in the folder that bundle.sh packs, and takes minutes.
# usage: ./references.sh [NAME...]
#   NAME  mobilenet or ssd; default: both
# Writes references/NAME.config and references/NAME.losses in its folder. check.sh uses them if it trains with the same
# config. Environment: DATA and SHORTEN, as for check.sh.
# Exit code: 0; 1 if a training failed, whose logs then lie in references/logs.
set -uo pipefail
here=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=SCRIPTDIR/check/report.sh
. "$here/check/report.sh"
# shellcheck source=SCRIPTDIR/check/training.sh
. "$here/check/training.sh"

reference_seconds=7200
OUT=$here/references begin_report "$reference_seconds" ""
begin_training
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(mobilenet ssd)
for name in "${names[@]}"; do
  if ! train_reference "$name"; then
    echo "references: the training of $name failed: $(tail -n 1 "$logs/${name}_cpu.worker.log")" >&2
    exit 1
  fi
  cp "$work/$name.losses" "$here/references/$name.losses"
  cp "$work/${name}_cpu.config" "$here/references/$name.config"
  echo "references: $name: final loss $(figure final "$work/$name.losses"), $((SECONDS - begun)) s"
done
rm -rf "$logs"
