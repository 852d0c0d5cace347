# One boot. MODE, MIN_FREE (kB; 0: as booted) and PROGRAMS are set in a line above; thp lies in PROGRAMS. The disk holds
# fs, net, kernel, include and mm of a Linux 6.12 source. Four rounds: parts of it copied, read and deleted beside
# huge-page faults, of which 50 are kept, with all of it read first.
mkdir -p /mnt/d; umount /mnt/disk; mount -o noatime /dev/vda /mnt/d; mount -t tmpfs -o size=64m none /tmp
echo always > /sys/kernel/mm/transparent_hugepage/enabled; echo always > /sys/kernel/mm/transparent_hugepage/defrag
sysctl -w vm.defrag_mode=$MODE
[ $MIN_FREE = 0 ] || sysctl -w vm.min_free_kbytes=$MIN_FREE
cat /proc/sys/vm/min_free_kbytes
state() { echo "== $1"; cat /proc/uptime /proc/vmstat /proc/pagetypeinfo; }
find /mnt/d -type f | xargs -n 300 cat > /dev/null
for round in 1 2 3 4; do
    state $round
    $PROGRAMS/thp 20 15 50 > /dev/null & faults=$!
    (cp -r /mnt/d/fs /mnt/d/w$round; cp -r /mnt/d/net /mnt/d/n$round; rm -rf /mnt/d/w$((round - 1)) /mnt/d/n$((round - 1))) > /dev/null 2>&1 & copies=$!
    (find /mnt/d/kernel /mnt/d/include /mnt/d/mm -type f | xargs -n 300 cat | wc -c) > /dev/null 2>&1 & reads=$!
    wait $faults; wait $copies; wait $reads
done
state end
