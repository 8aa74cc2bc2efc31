#!/usr/bin/env bash
# One engine, one worker, and three agents with three different cards: prints the skills of each, and stops everything on exit.
#
#   run.sh           prints the cards and exits
#   run.sh --stay    keeps running until Ctrl-C
#
# Needs `attache` and `iii-a2a` (built if they are not), Python with requirements.txt of ../python, and curl.
set -euo pipefail
cd "$(dirname "$0")"

ENGINE_PORT=${ENGINE_PORT:-49134}
HTTP_PORT=${HTTP_PORT:-3111}
FIRST_PORT=${FIRST_PORT:-8081}
PYTHON=${PYTHON:-python3}
export III_URL="ws://127.0.0.1:$ENGINE_PORT"

if [[ -z ${ATTACHE:-} || -z ${III_A2A:-} ]]; then
  root=$(cd ../../.. && pwd)
  cargo build --release --quiet --manifest-path "$root/Cargo.toml" -p attache -p iii-a2a
  ATTACHE=${ATTACHE:-$root/target/release/attache}
  III_A2A=${III_A2A:-$root/target/release/iii-a2a}
fi
"$PYTHON" -c 'import iii' 2>/dev/null ||
  { echo "error: $PYTHON has no iii-sdk: run \`pip install -r ../python/requirements.txt\`" >&2; exit 1; }

log=$(mktemp -d)
pids=()
stop() {
  kill "${pids[@]}" 2>/dev/null || true
  wait "${pids[@]}" 2>/dev/null || true
  rm -rf "$log"
}
trap stop EXIT
trap 'exit 130' INT TERM

start() { # NAME COMMAND...
  local name=$1
  shift
  "$@" >"$log/$name" 2>&1 &
  pids+=($!)
}

skills() { # PORT
  curl -sf "http://127.0.0.1:$1/.well-known/agent-card.json" |
    "$PYTHON" -c 'import json, sys; print(" ".join(skill["id"] for skill in json.load(sys.stdin)["skills"]))'
}

start engine "$ATTACHE" serve --listen "127.0.0.1:$HTTP_PORT" --engine-listen "127.0.0.1:$ENGINE_PORT" --store memory:
start worker "$PYTHON" worker.py
port=$FIRST_PORT
for tier in public partner ops; do
  # In production: behind a proxy that admits only this audience, with the address of the proxy as --base-url.
  start "$tier" "$III_A2A" --tier "$tier" --listen "127.0.0.1:$port" --base-url "http://127.0.0.1:$port" --store memory: \
    --no-delegation
  port=$((port + 1))
done

port=$FIRST_PORT
for tier in public partner ops; do
  for _ in $(seq 300); do
    found=$(skills "$port" 2>/dev/null || true)
    [[ -n $found ]] && break
    sleep 0.1
  done
  [[ -n $found ]] || { echo "error: no skills for $tier; the logs are:" >&2; cat "$log"/* >&2; exit 1; }
  echo "$tier http://127.0.0.1:$port $found"
  port=$((port + 1))
done

[[ ${1:-} == --stay ]] && wait
exit 0
