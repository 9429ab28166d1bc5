#!/usr/bin/env bash
# Sweeps on a real Slurm: a cluster of one node is started on loopback, takes arrays of shards, loses a task, is asked to
# queue another again, and ends with every run exactly once. Needs root, for the daemons, and Debian's packages of
# Slurm, which are installed if they are missing. DSF names the program [default: target/release/dsf].
set -euo pipefail
cd "$(dirname "$0")/../.."
dsf=$(realpath "${DSF:-target/release/dsf}")

skip() { echo "skipped: $1"; exit 0; }
fail() { echo "FAILED: $1" >&2; exit 1; }
part() { echo "== $1 (after $SECONDS s)"; }

[ "$(uname)" = Linux ] || skip "Slurm's daemons run on Linux"
[ "$(id -u)" = 0 ] || skip "the daemons of this cluster run as root"
missing=
for program in slurmctld slurmd sbatch munged; do
    command -v "$program" >/dev/null || missing=1
done
if [ -n "$missing" ]; then
    command -v apt-get >/dev/null || skip "Slurm is not installed, and there is no apt-get to install it"
    { apt-get update -q && apt-get install -qy --no-install-recommends slurmctld slurmd slurm-client munge; } \
        >/dev/null 2>&1 || skip "Slurm cannot be installed here"
fi

world=$(mktemp -d)
chmod 755 "$world"
pid_files=("$world/slurmd.pid" "$world/slurmctld.pid")
clean_up() {
    for file in "${pid_files[@]}"; do
        [ -s "$file" ] || continue
        pid=$(cat "$file")
        kill "$pid" 2>/dev/null || true
        for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    done
    rm -rf "$world"
}
trap clean_up EXIT

part "a cluster of one node"
mkdir -p "$world"/{state,spool,log}
cat > "$world/slurm.conf" <<CONF
ClusterName=dsf
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# A task that queues again waits this long; far too short for a real cluster.
AuthInfo=cred_expire=5
StateSaveLocation=$world/state
SlurmdSpoolDir=$world/spool
SlurmctldPidFile=$world/slurmctld.pid
SlurmdPidFile=$world/slurmd.pid
SlurmctldLogFile=$world/log/slurmctld.log
SlurmdLogFile=$world/log/slurmd.log
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=5
MinJobAge=3600
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MaxArraySize=101
NodeName=localhost NodeAddr=127.0.0.1 NodeHostname=$(hostname -s) CPUs=$(nproc) State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
CONF
export SLURM_CONF=$world/slurm.conf
grep -qw "$(hostname -s)" /etc/hosts || echo "127.0.0.1 $(hostname -s)" >> /etc/hosts
if ! munge -n >/dev/null 2>&1; then
    install -d -o munge -g munge -m 0755 /run/munge
    if [ ! -s /etc/munge/munge.key ]; then
        head -c 128 /dev/urandom > /etc/munge/munge.key
        chown munge:munge /etc/munge/munge.key
        chmod 400 /etc/munge/munge.key
    fi
    setpriv --reuid=munge --regid=munge --clear-groups munged
    pid_files+=(/run/munge/munged.pid)
fi
slurmctld -f "$SLURM_CONF"
slurmd -N localhost -f "$SLURM_CONF"
for _ in $(seq 100); do sinfo -h -o %t 2>/dev/null | grep -q idle && break; sleep 0.1; done
sinfo -h -o %t | grep -q idle || { cat "$world"/log/*.log >&2; fail "no node became idle"; }

cd "$world"
grid=(--preset smoke --mixer "ssd,softmax" --d "8,16" --n "4,8" --seeds 3 --train-examples 2000 --epochs 12
      --threads 1)
# A number that a line of JSON has under a name.
number() { sed -E 's/.*"'"$1"'":"?([0-9]+).*/\1/'; }
status() { "$dsf" sweep status "${grid[@]}" --json | number "$1"; }
wait_for() { # a condition, seconds at most, what it is
    for _ in $(seq $(($2 * 5))); do eval "$1" && return; sleep 0.2; done
    squeue --states=all >&2
    tail -n 5 results/slurm/*.log >&2 || true
    fail "$3"
}
ended() { [ -z "$(squeue -h -j "$1" -t PENDING,RUNNING,COMPLETING,REQUEUED,CONFIGURING -o %i 2>/dev/null)" ]; }
submit() { "$dsf" sweep "${grid[@]}" --executor slurm --time 5 "$@" --json | tee -a said; }
field() { tail -n 1 said | number "$1"; }

part "what the cluster refuses is refused before anything is queued"
if said=$("$dsf" sweep "${grid[@]}" --executor slurm --shards 102 2>&1); then fail "102 tasks were taken"; fi
grep -q "arrays of 101 tasks at most" <<< "$said" || fail "$said"
if said=$("$dsf" sweep "${grid[@]}" --executor slurm --gpus 7 --device cuda 2>&1); then fail "7 GPUs were found"; fi
grep -q "Slurm refuses .sbatch --test-only" <<< "$said" || fail "$said"
[ -z "$(squeue -h)" ] || fail "a refused job is queued"

part "an array over four shards, of which one is killed, one queued again, and one makes way for an urgent job"
submit --shards 4
job=$(field job) report=$(field report)
wait_for "[ \"\$(squeue -h -j $job -t RUNNING -o %i | wc -l)\" -ge 2 ]" 60 "no two tasks ran at once"
wait_for "[ \"\$(status running)\" -ge 2 ]" 60 "no two runs were seen in work"
"$dsf" sweep status "${grid[@]}"
scontrol requeue "${job}_1"
scancel --signal=KILL --full "${job}_0"
wait_for "[ \"\$(squeue -h -j $job -t RUNNING -o %i | wc -l)\" -ge 1 ]" 60 "no task ran after that"
sbatch --partition=urgent --exclusive --job-name=urgent --output=/dev/null --wrap "sleep 2" >/dev/null
wait_for "grep -q 'preempted JobId=${job}_' log/slurmctld.log" 60 "no task made way for the urgent job"
wait_for "ended $job" 300 "the array did not end"
wait_for "ended $report" 60 "the report did not end"
squeue --states=all -h -r -j "$job" -o '%i %T restarts %r' | sort
missing=$(status to_do)
finished=$(status "done")
[ "$missing" -gt 0 ] || fail "the killed task lost nothing, so that nothing can be tried again"
[ $((missing + finished)) -eq 24 ] || fail "of 24 runs $finished are done and $missing to do"
grep -q "24 runs: " results/slurm/report-"$report".log || fail "no report"

part "the same command submits what is missing, $missing of 24 runs"
touch marker
sleep 1
submit --shards 4
[ "$(field runs)" -eq "$missing" ] || fail "not $missing runs were submitted"
job=$(field job)
wait_for "ended $job" 300 "the second array did not end"
[ "$(status "done")" -eq 24 ] || fail "not all runs are done"
again=$(find results/runs -name result.json -newer marker | wc -l)
[ "$again" -eq "$missing" ] || fail "$again runs were trained, not the $missing that were missing"
[ "$(wc -l < results/mqar.csv)" -eq 25 ] || fail "the summary has not 24 rows"
squeue --states=all -h -r -j "$job" -o %T | grep -vq COMPLETED && fail "a task did not complete"
submit | grep -q '"tasks":0' || fail "something is left to do"
part "every run exactly once"
