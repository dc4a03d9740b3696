#!/usr/bin/env bash
# The article's experiments on the embedded default, one after another; docs/results.md shows what came out.
#
#   scripts/reproduce_article.sh                      # all of it, two runs at once
#   STEPS=800 JOBS=4 scripts/reproduce_article.sh     # as long as the article's, four at once
#   scripts/reproduce_article.sh plan                 # only say what it would take
#   scripts/reproduce_article.sh recorded eps         # only some of its parts
#
# Stop it at any time: the same command again does only what is missing. What was frozen with one version of
# the code is to be finished with that version, since arms of different code are not compared.
set -euo pipefail
cd "$(dirname "$0")/.."

STEPS=${STEPS:-500}      # X4: 500 to 1,000
SEEDS=${SEEDS:-1,2,3}    # X5
JOBS=${JOBS:-2}
OUT=${OUT:-multirun_outputs/article}
PYTHON=${PYTHON:-python}

common=("steps=$STEPS" "hydra/launcher=joblib" "hydra.launcher.n_jobs=$JOBS")
parts=(recorded rate eps advantage order)
plan_only=false
if [ "${1:-}" = plan ]; then plan_only=true; shift; fi
[ $# -eq 0 ] || parts=("$@")

arguments() {  # what a part passes to grpo_ablate
  case $1 in
    recorded)  # E, C2, S1, A2, G9: five arms, the stack of two among them
      echo "+suite=recorded seed=$SEEDS output_dir=$OUT/recorded" ;;
    rate)  # stage 5's check of the rate (A9): does no-std want another one?
      echo "baseline=standard +experiment=no_std,lr_double,no_std+lr_double seed=$SEEDS output_dir=$OUT/rate -m" ;;
    eps)  # C5
      echo "+suite=eps_sweep seed=$SEEDS output_dir=$OUT/eps" ;;
    advantage)  # A1 to A5
      echo "+experiment=baseline,group_std,constant_std,ema_std,smooth_std seed=$SEEDS output_dir=$OUT/advantage -m" ;;
    *) echo "unknown part $1; choose from: recorded rate eps advantage order" >&2; exit 2 ;;
  esac
}

share() {  # the rate's study has two arms of the recorded one: complete runs are copied, not run again
  for arm in standard standard+no_std; do
    if [ -d "$OUT/recorded/$arm" ] && [ ! -d "$OUT/rate/$arm" ]; then
      mkdir -p "$OUT/rate" && cp -r "$OUT/recorded/$arm" "$OUT/rate/"
    fi
  done
}

run() { echo "+ $PYTHON -m grpo_ablate $*" >&2; "$PYTHON" -m grpo_ablate "$@"; }

for part in "${parts[@]}"; do
  echo "== $part: what it takes"
  if [ "$part" = order ]; then
    run order "seed=$SEEDS" "output_dir=$OUT/order" "${common[@]}" --dry-run
  else
    read -ra typed <<<"$(arguments "$part")"
    run plan "${typed[@]}" "${common[@]}"
  fi
done
$plan_only && exit 0

for part in "${parts[@]}"; do
  [ "$part" != rate ] || share
  if [ "$part" = order ]; then
    run order "seed=$SEEDS" "output_dir=$OUT/order" "${common[@]}"
  else
    read -ra typed <<<"$(arguments "$part")"
    run "${typed[@]}" "${common[@]}"
  fi
done
if [ -d "$OUT/recorded" ]; then
  run probe baseline=standard "+experiment=clip_higher,dynamic_sampling,no_std,clip_higher+dynamic_sampling" \
    "steps=$STEPS" "output_dir=$OUT/recorded"
fi
"$PYTHON" scripts/results keep "$OUT" docs/results
"$PYTHON" scripts/results docs/results
