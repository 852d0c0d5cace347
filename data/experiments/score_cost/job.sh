# One boot: faults and loops of requests, five rounds. PROGRAMS is set in a line above; fault_loop, linked statically, lies there.
mount -t tmpfs none /tmp; cp $PROGRAMS/fault_loop $(command -v busybox) /tmp
cat > /tmp/rounds <<'END'
echo 0 > /proc/sys/vm/compaction_proactiveness
for round in 1 2 3 4 5; do
    echo "round $round"
    /tmp/fault_loop 40 64
    /tmp/busybox cat /sys/kernel/debug/alloc_loop
done
END
/tmp/busybox sh /tmp/rounds > /tmp/log 2>&1
cat /tmp/log
