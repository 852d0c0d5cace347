# One boot. LOAD (whole, crumbs or throughout), DEFRAG, GATE, SKIP and PROGRAMS are set in a line above; rr and thp
# lie in PROGRAMS. Reads fill memory, atomic requests fill the reserve beside them, a minute of huge-page faults
# follows, then bursts of atomic requests of each order.
sysctl -w vm.highatomic_gate_order=$GATE vm.compaction_skip_highatomic=$SKIP
echo always > /sys/kernel/mm/transparent_hugepage/enabled
echo $DEFRAG > /sys/kernel/mm/transparent_hugepage/defrag
churn=/sys/kernel/debug/atomic_churn
state() { echo "== $1"; cat /proc/uptime /proc/vmstat /proc/pagetypeinfo $churn/stat $churn/burst_stat; }
state start
cat /proc/sys/vm/min_free_kbytes
for i in 1 2 3 4; do $PROGRAMS/rr /mnt/disk/big 10000 45 0 & done; wait
state full
for i in 1 2 3 4; do $PROGRAMS/rr /mnt/disk/big 10000 15 0 & done
echo 256 > $churn/slots; echo 1000 > $churn/period_us
wait
case $LOAD in
whole) echo 0 > $churn/period_us;;
crumbs) echo 8 > $churn/keep; echo 0 > $churn/period_us;;
esac
sleep 1
state quiet
for i in 1 2; do $PROGRAMS/rr /mnt/disk/big 10000 60 1000 & done
$PROGRAMS/thp 60 5 60 &
wait
state end
echo 0 > $churn/keep; echo 0 > $churn/period_us
sysctl -w vm.min_free_kbytes=5700
for i in 1 2; do $PROGRAMS/rr /mnt/disk/big 10000 4 0 & done; wait
for i in 1 2; do $PROGRAMS/rr /mnt/disk/big 10000 18 1000 & done
state low
for round in 1 2 3 4; do for order in 0 1 2 3; do
    echo $order > $churn/burst_order; echo $((4096 >> order)) > $churn/burst; sleep 1
done; done
wait
state burst
