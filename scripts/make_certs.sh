#!/usr/bin/env bash
# Creates a private certificate authority for one job, and a certificate with a key for each part of the job.
# usage: scripts/make_certs.sh --out=DIR --job=NAME [--ps=HOST[:PORT],...] [--workers=N [--clones=M|any]]
#                              [--evaluators] [--admin] [--days=30] [--new_authority | --forget_old_authority]
#   --ps          hosts of the ps tasks in order: names (a leading *. stands for one label) or addresses. Task i gets
#                 ps-<i>.pem, which is valid for its host and for localhost; servers on unix sockets use it as well.
#   --workers     worker K gets worker-<K>.pem, for the worker_ids K*M to K*M+M-1 of its M clones (--clones, default 1).
#                 With --clones=any it is valid for every worker_id, for jobs whose workers and clones change in number.
#   --evaluators  also issues evaluator.pem    --admin  also issues admin.pem, for psctl
#   --days        how long the certificates are valid; the authority itself is valid for ten years.
#   --new_authority         signs with a new authority; ca.pem then holds both, so that old certificates stay valid.
#   --forget_old_authority  reduces ca.pem to the newest authority; certificates that older ones signed become invalid.
# To renew certificates, run the script again: it issues the requested certificates with new keys and renames them into
# DIR, and running programs load them within seconds. DIR/authority/ca.key can sign a certificate for any role: keep
# DIR/authority away from the job's hosts.
set -euo pipefail

usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"
  exit "$1"
}
die() {
  echo "make_certs: $1" >&2
  exit "${2:-64}"
}

out='' job='' hosts='' workers=0 clones=1 evaluators=0 admin=0 days=30 new_authority=0 forget=0
for argument in "$@"; do
  case "$argument" in
    --out=*) out=${argument#*=} ;;
    --job=*) job=${argument#*=} ;;
    --ps=*) hosts=${argument#*=} ;;
    --workers=*) workers=${argument#*=} ;;
    --clones=*) clones=${argument#*=} ;;
    --evaluators) evaluators=1 ;;
    --admin) admin=1 ;;
    --days=*) days=${argument#*=} ;;
    --new_authority) new_authority=1 ;;
    --forget_old_authority) forget=1 ;;
    --help) usage 0 ;;
    *) echo "make_certs: unknown argument $argument" >&2; usage 64 >&2 ;;
  esac
done
number='^(0|[1-9][0-9]{0,5})$'
[ -n "$out" ] || die "--out=DIR is required"
[[ $job =~ ^[A-Za-z0-9._-]{1,63}$ ]] || die "--job=$job: expected 1 to 63 letters, digits, dots, dashes, underscores"
[[ $workers =~ $number ]] || die "--workers=$workers: expected a number"
[[ $clones == any || ($clones =~ $number && $clones != 0) ]] || die "--clones=$clones: expected a number from 1, or any"
[[ $days =~ $number && $days != 0 ]] || die "--days=$days: expected a number from 1"
[ $((new_authority + forget)) -lt 2 ] || die "--new_authority and --forget_old_authority cannot be given together"
command -v openssl > /dev/null || die "openssl is missing: apt-get install openssl" 66

umask 077
authority=$out/authority
mkdir -p "$authority"
chmod 755 "$out"
if [ -e "$authority/job" ] && [ "$(cat "$authority/job")" != "$job" ]; then
  die "$out belongs to job $(cat "$authority/job"), not $job: use one folder per job"
fi
scratch=$(mktemp -d "$authority/new.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
openssl_errors=$scratch/errors
run_openssl() {
  if ! openssl "$@" 2> "$openssl_errors"; then
    sed 's/^/make_certs: openssl: /' "$openssl_errors" >&2
    exit 70
  fi
}
new_key() { run_openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

former=''
if [ ! -e "$authority/ca.key" ] || [ $new_authority = 1 ]; then
  [ ! -e "$out/ca.pem" ] || former=$(cat "$out/ca.pem")
  new_key "$scratch/ca.key"
  # X.509 allows 64 characters in each of these names.
  run_openssl req -x509 -new -key "$scratch/ca.key" -sha256 -days 3650 \
    -subj "/O=Pushpull/OU=$job/CN=authority of $(date -u +%Y-%m-%dT%H:%M:%SZ)" \
    -addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign,cRLSign \
    -out "$scratch/ca.pem"
  { cat "$scratch/ca.pem"; [ -z "$former" ] || echo "$former"; } > "$scratch/bundle"
  chmod 644 "$scratch/ca.pem" "$scratch/bundle"
  echo "$job" > "$authority/job"
  mv "$scratch/ca.key" "$authority/ca.key"
  mv "$scratch/ca.pem" "$authority/ca.pem"
  mv "$scratch/bundle" "$out/ca.pem"
  echo "make_certs: $authority/ca.key: a new authority of job $job; $out/ca.pem holds $(grep -c BEGIN "$out/ca.pem")"
fi
if [ $forget = 1 ]; then
  install -m 644 "$authority/ca.pem" "$scratch/bundle"
  mv "$scratch/bundle" "$out/ca.pem"
  echo "make_certs: $out/ca.pem holds the newest authority only"
fi

# issue NAME IDENTITY USAGES [SUBJECT_ALTERNATIVE_NAME...]: writes NAME.pem and NAME.key into $out.
issue() {
  local name=$1 identity=$2 usages=$3
  shift 3
  local uri=spiffe://pushpull/$job/$identity names
  names=$(printf ',%s' "URI:$uri" "$@")
  new_key "$scratch/key"
  run_openssl req -new -key "$scratch/key" -subj "/O=Pushpull/CN=$name" -out "$scratch/request"
  cat > "$scratch/extensions" << END
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=$usages
subjectAltName=${names:1}
END
  run_openssl x509 -req -in "$scratch/request" -CA "$authority/ca.pem" -CAkey "$authority/ca.key" -sha256 \
    -set_serial "0x$(openssl rand -hex 16)" -days "$days" -extfile "$scratch/extensions" -out "$scratch/pem"
  chmod 644 "$scratch/pem"
  # The two renames are not atomic. A program that reads the files between them reads again a second later.
  mv "$scratch/pem" "$out/$name.pem"
  mv "$scratch/key" "$out/$name.key"
  echo "make_certs: $out/$name.pem and .key: $uri, $days days"
}

task=0
IFS=, read -r -a host_list <<< "$hosts"
for host in "${host_list[@]}"; do
  if [[ $host =~ ^\[(.*)\](:[0-9]+)?$ ]]; then
    host=${BASH_REMATCH[1]}
  elif [[ $host =~ ^([^:]*):[0-9]+$ ]]; then
    host=${BASH_REMATCH[1]}
  fi
  if [[ $host =~ ^[0-9.]+$ || $host == *:* ]]; then
    entry=IP:$host
  elif [[ $host =~ ^(\*\.)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$ ]]; then
    entry=DNS:$host
  else
    die "--ps=$hosts: \"$host\" is not a host name or address"
  fi
  issue "ps-$task" ps serverAuth,clientAuth "$entry" DNS:localhost IP:127.0.0.1 IP:::1
  task=$((task + 1))
done
for ((worker = 0; worker < workers; ++worker)); do
  if [ "$clones" = any ]; then
    ids=any
  elif [ "$clones" = 1 ]; then
    ids=$worker
  else
    ids=$((worker * clones))-$((worker * clones + clones - 1))
  fi
  issue "worker-$worker" "worker/$ids" clientAuth
done
[ $evaluators = 0 ] || issue evaluator evaluator clientAuth
[ $admin = 0 ] || issue admin admin clientAuth
