#!/bin/bash
#SBATCH --job-name=dsf-figure1
#SBATCH --array=0-7
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#SBATCH --output="/scratch/ada/my runs/results/slurm/%A_%a.log"
#SBATCH --partition=gpu
#SBATCH --account=physics
#SBATCH --time=4:00:00
#SBATCH --mem=8G
#SBATCH --cpus-per-task=4
#SBATCH --gres=gpu:1
#SBATCH --qos=long
#SBATCH --constraint=a100|h100

# One shard of a sweep. Shortly before the time is up the runs are left behind checkpoints, and the task queues again;
# it does as well where Slurm takes its place away. What is done is never trained twice.
cd -- '/scratch/ada/my runs' || exit
child= warned=
trap 'warned=1; [ -n "$child" ] && kill -TERM "$child" 2>/dev/null' USR1 USR2
trap '[ -n "$child" ] && kill -TERM "$child" 2>/dev/null' TERM
/opt/dsf/dsf sweep experiments/figure1.toml --device cuda --lr 1e-3,2e-3 --out 'it'\''s' --threads "$SLURM_CPUS_PER_TASK" --shard "$((SLURM_ARRAY_TASK_ID + 1))/8" & child=$!
while :; do wait "$child"; code=$?; kill -0 "$child" 2>/dev/null || break; done
if [ "$code" -eq 75 ] && [ -n "$warned" ]; then
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" && sleep 60
fi
# 69: this shard is done, others are not yet.
[ "$code" -eq 69 ] && code=0
exit "$code"
