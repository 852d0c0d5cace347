/*
 * What the extracted functions take for granted of the rest of a kernel: words of its dialect,
 * numbers, lists, bits and per-CPU data. Nothing here decides anything about pages.
 */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
typedef unsigned int gfp_t;
typedef unsigned int isolate_mode_t;
typedef struct { long counter; } atomic_long_t;
typedef struct { int counter; } atomic_t;
typedef struct { int unused; } seqlock_t, wait_queue_head_t, nodemask_t;

#define __force
#define __bitwise
#define __percpu
#define __user
#define __init
#define __initdata
#define __meminit
#define __meminitdata
#define __ref
#define __refdata
#define __read_mostly
#define __ro_after_init
#define __maybe_unused __attribute__((unused))
#define __always_unused __attribute__((unused))
#define __must_check
#define __acquires(lock)
#define __always_inline inline __attribute__((always_inline))
#define __no_sanitize_memory
#define __no_kmsan_checks
#define noinline __attribute__((noinline))
#define noinline_for_stack noinline
#define __cacheline_group_begin(name)
#define __cacheline_group_end(name)
#define __cacheline_aligned_in_smp
#define ____cacheline_aligned_in_smp
#define ____cacheline_internodealigned_in_smp
#define CACHELINE_PADDING(name) char name[0]
#define fallthrough __attribute__((fallthrough))
#define likely(value) (value)
#define unlikely(value) (value)
#define READ_ONCE(value) (value)
#define WRITE_ONCE(place, value) ((place) = (value))
#define data_race(value) (value)
#define BUILD_BUG_ON(condition) ((void)0)
#define barrier() ((void)0)
#define smp_rmb() ((void)0)
#define smp_wmb() ((void)0)
#define __is_defined(x) ___is_defined(x)
#define ___is_defined(x) ____is_defined(__ARG_PLACEHOLDER_##x)
#define __ARG_PLACEHOLDER_1 0,
#define ____is_defined(junk) __take_second(junk 1, 0)
#define __take_second(ignored, value, ...) value
#define IS_ENABLED(option) __is_defined(option)

#define BITS_PER_LONG 64
#define BIT(number) (1UL << (number))
#define PAGE_SHIFT 12
#define PAGE_SIZE (1UL << PAGE_SHIFT)
#define SZ_256K 0x40000
#define SZ_1M 0x100000
#define HPAGE_PMD_ORDER 9
#define PMD_SHIFT 21
#define HUGETLB_PAGE_ORDER 9
#define RECLAIM_DISTANCE 30
#define SWAP_CLUSTER_MAX 32UL
#define COMPACT_CLUSTER_MAX SWAP_CLUSTER_MAX
#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define ALIGN(value, size) (((value) + (size) - 1) & ~((__typeof__(value))(size) - 1))
#define ALIGN_DOWN(value, size) ((value) & ~((__typeof__(value))(size) - 1))
#define IS_ALIGNED(value, size) (((value) & ((__typeof__(value))(size) - 1)) == 0)

#define __chosen(type, a, relation, b)                                                             \
	({                                                                                         \
		type chosen_a = (a), chosen_b = (b);                                               \
		chosen_a relation chosen_b ? chosen_a : chosen_b;                                  \
	})
#define __common(a, b) __typeof__((a) + (b))
#define min(a, b) __chosen(__common(a, b), a, <, b)
#define max(a, b) __chosen(__common(a, b), a, >, b)
#define min_t(type, a, b) __chosen(type, a, <, b)
#define max_t(type, a, b) __chosen(type, a, >, b)
#define MIN_T(type, a, b) min_t(type, a, b)
#define max3(a, b, c) max(max(a, b), c)
#define min3(a, b, c) min(min(a, b), c)
#define min_not_zero(a, b) ((a) == 0 ? (b) : (b) == 0 ? (a) : min(a, b))
#define clamp_t(type, value, low, high)                                                            \
	({                                                                                         \
		type clamped = (value), least = (low), most = (high);                              \
		clamped >= most ? most : clamped <= least ? least : clamped;                       \
	})
#define clamp(value, low, high) clamp_t(__typeof__(value), value, low, high)
#define mult_frac(x, n, d)                                                                         \
	({                                                                                         \
		__typeof__(x) whole = (x) / (d), rest = (x) % (d);                                 \
		whole * (n) + rest * (n) / (d);                                                    \
	})
#define div_u64(dividend, divisor) ((u64)(dividend) / (u32)(divisor))
#define div64_ul(dividend, divisor) ((dividend) / (divisor))
#define do_div(dividend, divisor) ((dividend) /= (divisor))
#define swap(a, b)                                                                                 \
	do {                                                                                       \
		__typeof__(a) kept = (a);                                                          \
		(a) = (b);                                                                         \
		(b) = kept;                                                                        \
	} while (0)

static inline int fls(unsigned int value)
{
	return value ? 32 - __builtin_clz(value) : 0;
}

static inline int ilog2(unsigned long value)
{
	return 63 - __builtin_clzl(value);
}

static inline unsigned long rounddown_pow_of_two(unsigned long value)
{
	return 1UL << ilog2(value);
}

static inline unsigned long roundup_pow_of_two(unsigned long value)
{
	return value > 1 ? 2UL << ilog2(value - 1) : 1;
}

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

struct list_head {
	struct list_head *next, *prev;
};

#define LIST_HEAD(name) struct list_head name = { &(name), &(name) }

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	list->next = list->prev = list;
}

static inline bool list_empty(const struct list_head *list)
{
	return list->next == list;
}

static inline void link_behind(struct list_head *entry, struct list_head *list)
{
	entry->next = list->next;
	entry->prev = list;
	list->next->prev = entry;
	list->next = entry;
}

#define list_entry(pointer, type, member) container_of(pointer, type, member)
#define list_first_entry(list, type, member) list_entry((list)->next, type, member)
#define list_last_entry(list, type, member) list_entry((list)->prev, type, member)
#define list_first_entry_or_null(list, type, member)                                               \
	(list_empty(list) ? NULL : list_first_entry(list, type, member))
#define list_for_each_entry(entry, list, member)                                                   \
	for (entry = list_first_entry(list, __typeof__(*entry), member); &entry->member != (list); \
	     entry = list_entry(entry->member.next, __typeof__(*entry), member))
#define list_for_each_entry_safe(entry, following, list, member)                                   \
	for (entry = list_first_entry(list, __typeof__(*entry), member),                           \
	    following = list_entry(entry->member.next, __typeof__(*entry), member);                \
	     &entry->member != (list);                                                             \
	     entry = following,                                                                    \
	    following = list_entry(following->member.next, __typeof__(*entry), member))

/* Frees that missed zone->lock: none does, so nothing is ever on these lists. */
struct llist_node;
struct llist_head { struct llist_node *first; };

#define llist_empty(list) ((list)->first == NULL)
#define llist_del_all(list) NULL
#define llist_for_each_entry_safe(entry, following, list, member)                                  \
	for ((entry) = (following) = NULL; (entry) && (list); (entry) = (following))

#define test_bit(number, word) ((*(word) >> (number)) & 1)
#define set_bit(number, word) (*(word) |= BIT(number))
#define clear_bit(number, word) (*(word) &= ~BIT(number))
#define __set_bit set_bit
#define __clear_bit clear_bit

static inline bool test_and_clear_bit(unsigned int number, unsigned long *word)
{
	bool was_set = test_bit(number, word);

	clear_bit(number, word);
	return was_set;
}

#define atomic_long_read(place) ((place)->counter)
#define atomic_long_set(place, value) ((place)->counter = (value))
#define atomic_long_add(value, place) ((place)->counter += (value))
#define atomic_read(place) ((place)->counter)

#define DEFINE_MUTEX(name) int name
#define mutex_lock(mutex) ((void)0)
#define mutex_unlock(mutex) ((void)0)
#define mutex_trylock(mutex) 1
#define preempt_disable() ((void)0)
#define preempt_enable() ((void)0)
#define preempt_disable_nested() ((void)0)
#define preempt_enable_nested() ((void)0)
#define local_irq_save(flags) ((void)(flags))
#define local_irq_restore(flags) ((void)(flags))
#define lockdep_assert_held(lock) ((void)0)
#define cond_resched() ((void)0)
#define might_sleep_if(condition) ((void)0)
#define static_branch_likely(key) 0
#define static_branch_unlikely(key) 0

/* Per-CPU data lie in units of one size, one for each CPU; pointers are into that of CPU 0. */
static int this_cpu;
static long percpu_unit;

#define smp_processor_id() this_cpu
#define raw_smp_processor_id() this_cpu
#define per_cpu_ptr(pointer, cpu)                                                                  \
	((__typeof__(pointer))((char *)(pointer) + (cpu) * percpu_unit))
#define this_cpu_ptr(pointer) per_cpu_ptr(pointer, this_cpu)
#define raw_cpu_ptr(pointer) this_cpu_ptr(pointer)
#define __this_cpu_read(place) (*this_cpu_ptr(&(place)))
#define __this_cpu_write(place, value) (*this_cpu_ptr(&(place)) = (value))
#define __this_cpu_dec_return(place) (--*this_cpu_ptr(&(place)))
#define this_cpu_xchg(place, value)                                                                \
	({                                                                                         \
		__typeof__(place) old_value = __this_cpu_read(place);                              \
		__this_cpu_write(place, value);                                                    \
		old_value;                                                                         \
	})

static int online_cpus;

typedef struct cpumask { bool has[SHIM_CPUS]; } cpumask_t;

#define num_online_cpus() online_cpus
#define for_each_possible_cpu(cpu) for ((cpu) = 0; (cpu) < online_cpus; (cpu)++)
#define for_each_online_cpu(cpu) for_each_possible_cpu(cpu)
#define for_each_cpu(cpu, mask) for_each_possible_cpu(cpu) if ((mask)->has[cpu])
#define cpumask_set_cpu(cpu, mask) ((mask)->has[cpu] = true)
#define cpumask_clear_cpu(cpu, mask) ((mask)->has[cpu] = false)

static inline int cpumask_weight(const cpumask_t *mask)
{
	int cpus = 0;

	for (int cpu = 0; cpu < SHIM_CPUS; cpu++)
		cpus += mask->has[cpu];
	return cpus;
}

struct capture_control;
struct reclaim_state;
enum migrate_mode { MIGRATE_ASYNC, MIGRATE_SYNC_LIGHT, MIGRATE_SYNC };

struct task_struct {
	unsigned int flags;
	struct capture_control *capture_control;
	struct reclaim_state *reclaim_state;
};

static struct task_struct the_task;

#define current (&the_task)
#define PF_MEMALLOC 0x1
#define PF_KTHREAD 0x2
#define PF_EXITING 0x4
#define PF_WQ_WORKER 0x8
#define in_task() true
#define in_interrupt() false
#define in_nmi() false
#define in_hardirq() false
#define can_spin_trylock() true
#define in_serving_softirq() false
#define rt_task(task) false
#define rt_or_dl_task(task) false
#define tsk_is_oom_victim(task) false
#define test_thread_flag(flag) false
#define oom_reserves_allowed(task) false
#define is_kdump_kernel() false

/* Broken assertions of the kernel's code are kept: the first one is reported. */
static const char *broken_assertion;
static int broken_assertion_line;

#define __assert_not(condition, what)                                                              \
	({                                                                                         \
		bool is_broken = !!(condition);                                                    \
		if (is_broken && !broken_assertion) {                                              \
			broken_assertion = what;                                                   \
			broken_assertion_line = __LINE__;                                          \
		}                                                                                  \
		is_broken;                                                                         \
	})
#define BUG_ON(condition) __assert_not(condition, #condition)
#define WARN_ON(condition) __assert_not(condition, #condition)
#define WARN_ON_ONCE(condition) __assert_not(condition, #condition)
#define WARN_ONCE(condition, ...) __assert_not(condition, #condition)
#define VM_BUG_ON(condition) __assert_not(condition, #condition)
#define VM_BUG_ON_PAGE(condition, page) __assert_not(condition, #condition)
#define VM_WARN_ON(condition) __assert_not(condition, #condition)
#define VM_WARN_ON_ONCE(condition) __assert_not(condition, #condition)
#define VM_WARN_ON_ONCE_PAGE(condition, page) __assert_not(condition, #condition)
#define VM_WARN_ONCE(condition, ...) __assert_not(condition, #condition)
