#!/bin/bash
#SBATCH --job-name=dsf-figure1-report
#SBATCH --open-mode=append
#SBATCH --output="/scratch/ada/my runs/results/slurm/report-%j.log"
#SBATCH --partition=gpu
#SBATCH --account=physics
#SBATCH --time=30
#SBATCH --qos=long
#SBATCH --constraint=a100|h100

cd -- '/scratch/ada/my runs' || exit
/opt/dsf/dsf sweep status experiments/figure1.toml --device cuda --lr 1e-3,2e-3 --out 'it'\''s'
/opt/dsf/dsf report --experiment experiments/figure1.toml 'it'\''s'
