# kept_612: 6.12.117, 1,400 MiB, ANON=500; kept_73: 7.3.4, 900 MiB, ANON=250; both two CPUs emulated by qemu with -icount shift=3
mount -t tmpfs none /tmp
echo always > /sys/kernel/mm/transparent_hugepage/enabled
echo madvise > /sys/kernel/mm/transparent_hugepage/defrag
echo "for i in 1 2; do rr /mnt/disk/big 10000 20 0 & done; churn 15 3 $ANON /mnt/disk/big 9000 & wait" > /mnt/out/setup.sh
echo "churn 12 3 $ANON /mnt/disk/big 9000 & rr /mnt/disk/big 10000 12 600 & thp 12 20 40 & wait" > /mnt/out/work.sh
cd /mnt/out; pagealloc record -o /tmp/recording -- sh -e work.sh   # with setup.sh run once the ring buffers exist
cp -r /tmp/recording /mnt/out/
