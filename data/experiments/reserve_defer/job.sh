# One boot. DEFRAG, SETTINGS (sysctls of the side), ADVISED (huge pages a second that are advised, or 0) and PROGRAMS
# are set in a line above; rr and thp, linked statically, lie in PROGRAMS. Reads fill memory, atomic requests fill the
# reserve beside them, a minute of huge-page faults follows, and the same atomic requests again. Everything that runs,
# and what is written, is in the guest's memory, as virtual time races on while all wait for the host.
if [ ! -e /tmp/busybox ]; then
    mount -t tmpfs none /tmp; cp $PROGRAMS/rr $PROGRAMS/thp $(command -v busybox) /tmp
    for name in cat grep sleep sysctl; do ln -s busybox /tmp/$name; done
    PATH=/tmp /tmp/busybox sh $0 > /tmp/log 2>&1
    exec cat /tmp/log
fi
sysctl -w $SETTINGS
huge=/sys/kernel/mm/transparent_hugepage
echo always > $huge/enabled; echo $DEFRAG > $huge/defrag
grep . $huge/enabled $huge/defrag $huge/khugepaged/*
churn=/sys/kernel/debug/atomic_churn
state() { echo "== $1"; cat /proc/uptime /proc/vmstat /proc/pagetypeinfo $churn/stat; }
reads() { for i in 1 2 3 4; do /tmp/rr /mnt/disk/big 10000 $1 0 & done; wait; }
atomics() { echo 256 > $churn/slots; echo 1000 > $churn/period_us; reads $1; echo 0 > $churn/period_us; sleep 1; }
state start
reads 40
state full
atomics 15
state quiet
for i in 1 2; do /tmp/rr /mnt/disk/big 10000 60 1000 & done
if [ $ADVISED != 0 ]; then /tmp/thp 60 $ADVISED 60 advise & fi
/tmp/thp 60 5 300 &
wait
state end
atomics 15
state burst
