# One boot. LOAD (whole, crumbs or throughout), DEFRAG, SETTINGS (sysctls of the side) and PROGRAMS are set in a line
# above; rr and thp lie in PROGRAMS. Reads fill memory, atomic requests fill the reserve beside them, and a minute of
# huge-page faults follows.
sysctl -w $SETTINGS
echo always > /sys/kernel/mm/transparent_hugepage/enabled
echo $DEFRAG > /sys/kernel/mm/transparent_hugepage/defrag
churn=/sys/kernel/debug/atomic_churn
state() { echo "== $1"; cat /proc/uptime /proc/vmstat /proc/pagetypeinfo $churn/stat; }
state start
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
