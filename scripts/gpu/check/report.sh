# shellcheck shell=bash disable=SC2034,SC2154
# The table of check.sh, the time that is left, and its processes. A script that sources this file sets `here`, the
# folder of the bundle, and calls begin_report.

# begin_report SECONDS CHECK,...: creates the folders of the results. SECONDS is the time for everything. The second
# argument names the checks that were requested, separated by commas; empty: all.
begin_report() {
  seconds=$1
  only=${2:+,$2,}
  bin=$here/bin
  python=${PYTHON:-python3}
  patience=${PATIENCE:-1}
  [ -z "${OUT:-}" ] || mkdir -p "$OUT" || exit 66
  work=$(mktemp -d)
  results=${OUT:-$work}/check.txt
  logs=${OUT:-$work}/logs
  mkdir -p "$logs" || exit 66
  begun=$SECONDS
  failures=0
  trap end_processes EXIT
  trap 'exit 143' INT TERM
}

# Ends all processes that the script has started, however the script ends.
end_processes() {
  local pid
  for pid in $(jobs -pr); do kill -TERM "$pid" 2> /dev/null; done
  wait
  rm -rf "$work"
}

# line CHECK FIGURE BAR RESULT: adds a line to the table.
line() { printf '%-30s | %-60s | %-24s | %s\n' "$1" "$2" "$3" "$4" >> "$results"; }
# row CHECK FIGURE BAR RESULT: adds a row to the table and prints it. A RESULT that begins with FAIL counts as failure.
row() {
  line "$@"
  case "$4" in FAIL*) failures=$((failures + 1)) ;; esac
  printf '%-30s %-48s %-26s %s\n' "$1" "$2" "$3" "$4"
}

# left: prints the seconds that are left.
left() { echo $((seconds - (SECONDS - begun))); }
# wanted NAME SECONDS: succeeds if the check was requested and SECONDS are left for it.
wanted() {
  [[ -z $only || $only == *,$1,* ]] || return 1
  [ "$(left)" -ge "$2" ] && return 0
  row "$1" "" "" "skipped (only $(left) s are left)"
  return 1
}

# start SECONDS LOG COMMAND...: starts the command in the background, with its output in LOG, for at most SECONDS, times
# PATIENCE, and no longer than the time that is left. Sets `started` to a process that ends when the command does, with its exit code
# (124: it ran out of time), and that passes a SIGTERM on to it.
start() {
  local limit=$(($1 * patience)) log=$2 rest
  rest=$(left)
  shift 2
  [ "$rest" -lt "$limit" ] && limit=$rest
  timeout --kill-after=5 "$((limit > 1 ? limit : 1))" "$@" > "$log" 2>&1 &
  started=$!
}
# limited SECONDS LOG COMMAND...: runs the command as `start` does and returns its exit code. While bash waits for a
# process in the background, a signal ends the script at once.
limited() {
  start "$@"
  wait "$started"
}
# background FUNCTION ARGUMENT...: runs the function in a subshell, which ends its processes when it is ended. Sets
# `started` to the subshell.
background() {
  (
    trap 'kill -TERM $(jobs -pr) 2> /dev/null; wait' EXIT
    trap 'exit 143' INT TERM
    "$@"
  ) &
  started=$!
}

# why CODE LOG: prints the RESULT of a failed command from its exit code and its log.
why() {
  case "$1" in
    124) echo "FAIL (out of time)" ;;
    137) echo "FAIL (killed, or out of time)" ;;
    *) echo "FAIL (exit code $1: $(grep -vE '^\s*$' "$2" | tail -n 1 | cut -c1-90))" ;;
  esac
}
# holds EXPRESSION: succeeds if awk finds the numeric expression true.
holds() { awk "BEGIN { exit !($1) }"; }
# verdict EXPRESSION: prints "ok" if the numeric expression is true, and "FAIL" otherwise.
verdict() { if holds "$1"; then echo ok; else echo FAIL; fi; }
# value FILE KEY PATTERN: prints the NUMBER of KEY=NUMBER in the first line that matches the pattern.
value() { grep -m 1 "$3" "$1" | grep -oE "(^| )$2=[0-9.]+" | cut -d= -f2; }
# figure NAME ARGUMENT...: prints a figure that figures.py computes.
figure() { "$python" "$here/check/figures.py" "$@" 2>> "$logs/figures.log"; }
# tool NAME: prints the path of a program of CUDA's toolkit; nothing if it is not here.
tool() {
  command -v "$1" || find /usr/local/cuda*/bin /opt/nvidia -name "$1" -type f 2> /dev/null | head -n 1
}
