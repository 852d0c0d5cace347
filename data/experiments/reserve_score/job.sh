# One boot. GATE, SKIP, PROACTIVE and PROGRAMS are set in lines above; rr and thp lie in PROGRAMS.
# Reads fill memory, atomic requests fill the reserve beside them and end, a minute of huge-page faults
# follows, then a burst of atomic requests.
sysctl -w vm.highatomic_gate_order=$GATE vm.compaction_skip_highatomic=$SKIP vm.compaction_proactiveness=$PROACTIVE
echo always > /sys/kernel/mm/transparent_hugepage/enabled
echo madvise > /sys/kernel/mm/transparent_hugepage/defrag
churn=/sys/kernel/debug/atomic_churn
state() { echo "== $1"; cat /proc/vmstat /proc/pagetypeinfo $churn/stat; }
state start
for i in 1 2 3 4; do $PROGRAMS/rr /mnt/disk/big 10000 30 0 & done; wait
for i in 1 2 3 4; do $PROGRAMS/rr /mnt/disk/big 10000 15 0 & done
echo 256 > $churn/slots; echo 1000 > $churn/period_us
wait; echo 0 > $churn/period_us; sleep 1
state quiet
for i in 1 2; do $PROGRAMS/rr /mnt/disk/big 10000 60 1000 & done
$PROGRAMS/thp 60 5 60 &
wait
state end
for i in 1 2; do $PROGRAMS/rr /mnt/disk/big 10000 10 1000 & done
echo 200 > $churn/period_us
wait; echo 0 > $churn/period_us; sleep 1
state burst
