#!/usr/bin/env bash
# Tunes a preset with a Slurm array, one GPU a task, and merges what the tasks found:
#   JOB=$(sbatch --parsable --array=0-3 examples/fleet/slurm.sh)
#   sbatch --dependency=afterok:$JOB --gres=none examples/fleet/slurm.sh merge
# All nodes of the array need the same GPU model; SHARED has to be a folder that they share.
#SBATCH --job-name=attune
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=16
#SBATCH --time=01:00:00
set -euo pipefail

PRESET=${PRESET:-gemma4-31b}
SHARED=${SHARED:-$PWD/attune-fleet}
ATTUNE=${ATTUNE:-attune}
umask 077
mkdir -p "$SHARED/shards"

if [ "${1:-tune}" = merge ]; then
  "$ATTUNE" cache merge "$SHARED"/shards/*.db --into "$SHARED/tuned.db"
  "$ATTUNE" cache verify "$SHARED/tuned.db"
  exit 0
fi

# A cache of the task's own on local disk; the exported file is complete or not there.
LOCAL=$(mktemp -d)
trap 'rm -rf "$LOCAL"' EXIT
SHARD=$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT
"$ATTUNE" tune --preset "$PRESET" --shard "$SHARD" --cache "$LOCAL/tune.db"
"$ATTUNE" tune --preset "$PRESET" --shard "$SHARD" --cache "$LOCAL/tune.db" --check
OUT=$SHARED/shards/$SLURM_ARRAY_TASK_ID.db
rm -f "$OUT"
"$ATTUNE" cache export "$OUT" --cache "$LOCAL/tune.db"
