# How the unchanged side was recorded for the predictions, in place of the part of job.sh between its states
# "full" and "end": `pagealloc record` with three events, no probes and large buffers, so that recording slows the
# guest least. FROM=load records from the first atomic request on, FROM=idle from the moment the reserve is idle.
load='for i in 1 2 3 4; do $PROGRAMS/rr /mnt/disk/big 10000 15 0 & done
echo 256 > $churn/slots; echo 1000 > $churn/period_us
wait; echo 0 > $churn/period_us; sleep 1'
faults='for i in 1 2; do $PROGRAMS/rr /mnt/disk/big 10000 60 1000 & done
$PROGRAMS/thp 60 5 60 &
wait'
if [ $FROM = load ]; then work="$load; $faults"; else work=$faults; eval "$load"; fi
export PROGRAMS churn=/sys/kernel/debug/atomic_churn
pagealloc record -o recording --events kmem:mm_page_alloc,kmem:mm_page_free,kmem:mm_page_free_batched \
    --no-lock --no-probes --interval 2 --buffer 32M -- sh -c "$work"
