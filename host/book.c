#include "book.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Orders: a hash table of one-cache-line buckets with three slots each, linear probing from bucket to bucket.
 * passed counts the live orders whose search goes beyond the bucket (they found it full); a search ends at
 * the first bucket with none, so a deletion needs no tombstone and moves nothing. Saturated it stays:
 * searches are then longer than needed, never wrong.
 *
 * Linear hashing (Litwin 1980): only the first n_home buckets are homes. An add that leaves more than three
 * orders to four homes makes one more, so what is in use stays about as small as the live orders, and in the
 * cache, however large the limit is. Against all buckets as homes from the start (limit of 2 million orders,
 * measured interleaved): 22,000 live orders 50 to 45 ns per message, its p99 from 250 to 120 ns; AAPL
 * 2019-12-30, 382 live orders, 88 to 40 ns. Three to four against one to one: 22,000 live orders 43 to 41 ns,
 * 215,000 77 to 73 ns; against five to four 49 ns, against one to two 41 and 99 ns. */
enum { BUCKET_SLOTS = 3, LOG2_HOMES_MIN = 6 };

struct bucket {
    uint64_t ref[BUCKET_SLOTS];
    uint32_t price[BUCKET_SLOTS];
    uint32_t qty[BUCKET_SLOTS]; /* 0: free slot */
    uint16_t locate[BUCKET_SLOTS];
    uint8_t side[BUCKET_SLOTS];
    uint8_t pad[3];
    uint16_t passed;
    uint16_t pad1;
};
static_assert(sizeof(struct bucket) == 64, "one bucket, one cache line");

/* Levels of one side: a block of the level pool, best price last, so that work near the touch moves little.
 */
struct side_levels {
    uint32_t first; /* index into the pool */
    uint32_t n;
    uint32_t log2_cap; /* block size; meaningless while n is 0: no block then */
};

struct locate_book {
    union {
        struct book_bbo bbo;
        struct { /* the same, by side */
            uint32_t price[2];
            uint64_t qty[2];
        } best;
    };
    struct side_levels side[2];
    uint8_t pad[16];
};
static_assert(sizeof(struct locate_book) == 64, "one locate, one cache line");
static_assert(BOOK_BID == 0 && BOOK_ASK == 1 && offsetof(struct book_bbo, ask_price) == 4 &&
                  offsetof(struct book_bbo, bid_qty) == 8 && offsetof(struct book_bbo, ask_qty) == 16,
              "struct book_bbo is struct best");

/* Pool of levels: a buddy allocator. Blocks are 2^k entries, k >= LOG2_BLOCK_MIN, aligned to their size; free
 * ones are in one doubly linked list per k (the links lie in the block's first entry), and state[] has for
 * the first unit of each block its k and whether it is free. */
enum { LOG2_BLOCK_MIN = 2, LOG2_POOL_MAX = 30, BLOCK_FREE = 0x80, NO_BLOCK = UINT32_MAX };

struct free_links {
    uint32_t prev, next;
};

struct book_set {
    struct bucket *bucket;
    uint64_t bucket_mask; /* all buckets: probing wraps here */
    uint64_t n_home;      /* home buckets so far: home_mask < n_home <= 2 * home_mask + 1, or all of them */
    uint64_t home_mask;   /* 2^k - 1 */
    struct locate_book *locate;
    struct book_level *level;
    uint8_t *block_state;
    uint32_t free_list[LOG2_POOL_MAX + 1];
    uint32_t log2_pool;
    struct book_limits limits;
    struct book_counters counters;
};

static uint32_t log2_up(uint64_t n)
{
    uint32_t k = 0;
    while ((1ull << k) < n)
        k++;
    return k;
}

/* Zeroed, every page touched; in 2 MiB pages where it is worth it and the system has them. */
static void *table_alloc(size_t size_bytes)
{
    const size_t huge_bytes = 2u << 20;
    size_t align = size_bytes >= huge_bytes ? huge_bytes : 64;
    size_bytes = (size_bytes + align - 1) / align * align;
    void *p = aligned_alloc(align, size_bytes);
    if (!p)
        return NULL;
    if (align == huge_bytes)
        (void)madvise(p, size_bytes, MADV_HUGEPAGE); /* a hint: without it only slower */
    memset(p, 0, size_bytes);
    return p;
}

/* ---- level pool ---- */

static struct free_links *block_links(struct book_set *set, uint32_t block)
{
    static_assert(sizeof(struct free_links) <= sizeof(struct book_level), "links fit into an entry");
    return (struct free_links *)(void *)&set->level[block];
}

static void block_push(struct book_set *set, uint32_t block, uint32_t k)
{
    struct free_links *links = block_links(set, block);
    links->prev = NO_BLOCK;
    links->next = set->free_list[k];
    if (links->next != NO_BLOCK)
        block_links(set, links->next)->prev = block;
    set->free_list[k] = block;
    set->block_state[block >> LOG2_BLOCK_MIN] = (uint8_t)(BLOCK_FREE | k);
}

static void block_unlink(struct book_set *set, uint32_t block, uint32_t k)
{
    struct free_links links = *block_links(set, block);
    if (links.next != NO_BLOCK)
        block_links(set, links.next)->prev = links.prev;
    if (links.prev != NO_BLOCK)
        block_links(set, links.prev)->next = links.next;
    else
        set->free_list[k] = links.next;
}

/* NO_BLOCK: no free block is large enough. At most LOG2_POOL_MAX steps. */
static uint32_t block_alloc(struct book_set *set, uint32_t k)
{
    uint32_t from = k;
    while (from <= set->log2_pool && set->free_list[from] == NO_BLOCK)
        from++;
    if (from > set->log2_pool)
        return NO_BLOCK;
    uint32_t block = set->free_list[from];
    block_unlink(set, block, from);
    while (from > k) {
        from--;
        block_push(set, block + (1u << from), from);
    }
    set->block_state[block >> LOG2_BLOCK_MIN] = (uint8_t)k;
    return block;
}

static void block_free(struct book_set *set, uint32_t block, uint32_t k)
{
    while (k < set->log2_pool) {
        uint32_t buddy = block ^ (1u << k);
        if (set->block_state[buddy >> LOG2_BLOCK_MIN] != (BLOCK_FREE | k))
            break;
        block_unlink(set, buddy, k);
        set->block_state[(block | buddy) >> LOG2_BLOCK_MIN] = 0; /* no longer the start of a block */
        block &= buddy;
        k++;
    }
    block_push(set, block, k);
}

static void pool_clear(struct book_set *set)
{
    memset(set->block_state, 0, (1ull << set->log2_pool) >> LOG2_BLOCK_MIN);
    for (uint32_t k = 0; k <= LOG2_POOL_MAX; k++)
        set->free_list[k] = NO_BLOCK;
    block_push(set, 0, set->log2_pool);
    set->counters.n_level = 0;
}

/* ---- levels ---- */

/* Prices mapped so that on either side the better price is the larger key. */
static inline uint32_t side_flip(unsigned side)
{
    return side == BOOK_BID ? 0 : UINT32_MAX;
}

/* Number of levels worse than price = index at which it is or belongs. From the touch outward, where nearly
 * all work is, in groups that are counted without a branch: at which level of a group it ends, nobody
 * foresees. What is left by bisection, which bounds it. Against a loop from level to level: 48 to 45 ns
 * per message. */
static inline uint32_t level_index(const struct book_level *level, uint32_t n, uint32_t price, uint32_t flip)
{
    enum { GROUP = 8, N_GROUP = 3 };
    uint32_t key = price ^ flip, i = n;
    for (int group = 0; group < N_GROUP && i >= GROUP; group++) {
        uint32_t n_better = 0; /* or the same */
        for (uint32_t k = 1; k <= GROUP; k++)
            n_better += (level[i - k].price ^ flip) >= key;
        i -= n_better;
        if (n_better < GROUP)
            return i;
    }
    uint32_t low = 0;
    while (low < i) {
        uint32_t mid = low + (i - low) / 2;
        if ((level[mid].price ^ flip) < key)
            low = mid + 1;
        else
            i = mid;
    }
    return low;
}

/* Takes over the side's best level and writes change->top and change->crossed. Scalar loads and stores on
 * purpose: a copy of the whole BBO right behind a store to it waits for that store to reach the cache. */
static inline void best_refresh(struct book_set *set, struct locate_book *book, unsigned side,
                                struct book_change *change)
{
    const struct side_levels *levels = &book->side[side];
    uint32_t price = 0;
    uint64_t qty = 0;
    if (__builtin_expect(levels->n > 0, 1)) {
        const struct book_level *best = &set->level[levels->first + levels->n - 1];
        price = best->price;
        qty = best->qty;
    }
    uint32_t flip = side_flip(side), other_price = book->best.price[side ^ 1];
    change->top = (book->best.price[side] != price) | (book->best.qty[side] != qty);
    change->crossed = (qty != 0) & (book->best.qty[side ^ 1] != 0) & ((price ^ flip) >= (other_price ^ flip));
    book->best.price[side] = price;
    book->best.qty[side] = qty;
}

static int side_resize(struct book_set *set, struct side_levels *levels, uint32_t log2_cap)
{
    uint32_t block = block_alloc(set, log2_cap);
    if (block == NO_BLOCK)
        return -1;
    memcpy(&set->level[block], &set->level[levels->first], levels->n * sizeof(struct book_level));
    block_free(set, levels->first, levels->log2_cap);
    levels->first = block;
    levels->log2_cap = log2_cap;
    return 0;
}

/* 0, or -1 when a new level is needed and there is no room. */
static inline int level_add(struct book_set *set, struct locate_book *book, unsigned side, uint32_t price,
                            uint32_t qty)
{
    struct side_levels *levels = &book->side[side];
    struct book_level *level = &set->level[levels->first];
    uint32_t i = level_index(level, levels->n, price, side_flip(side));
    if (i < levels->n && level[i].price == price) {
        level[i].qty += qty;
        level[i].n_order++;
        return 0;
    }
    if (set->counters.n_level == set->limits.n_level)
        return -1;
    if (levels->n == 0) {
        uint32_t block = block_alloc(set, LOG2_BLOCK_MIN);
        if (block == NO_BLOCK)
            return -1;
        levels->first = block;
        levels->log2_cap = LOG2_BLOCK_MIN;
        level = &set->level[block];
    } else if (levels->n == 1u << levels->log2_cap) {
        if (side_resize(set, levels, levels->log2_cap + 1) != 0)
            return -1;
        level = &set->level[levels->first];
    }
    for (uint32_t j = levels->n; j > i; j--)
        level[j] = level[j - 1];
    level[i] = (struct book_level){.price = price, .n_order = 1, .qty = qty};
    levels->n++;
    set->counters.n_level++;
    if (set->counters.n_level > set->counters.n_level_peak)
        set->counters.n_level_peak = set->counters.n_level;
    return 0;
}

/* qty and price of an order in the book, so the level exists and holds at least that much. */
static inline void level_take(struct book_set *set, struct locate_book *book, unsigned side, uint32_t price,
                              uint32_t qty, int order_gone)
{
    struct side_levels *levels = &book->side[side];
    struct book_level *level = &set->level[levels->first];
    uint32_t i = level_index(level, levels->n, price, side_flip(side));
    assert(i < levels->n && level[i].price == price && level[i].qty >= qty);
    level[i].qty -= qty;
    if (!order_gone)
        return;
    if (--level[i].n_order > 0)
        return;
    assert(level[i].qty == 0);
    uint32_t n = --levels->n;
    for (; i < n; i++)
        level[i] = level[i + 1];
    set->counters.n_level--;
    if (n == 0)
        block_free(set, levels->first, levels->log2_cap);
    else if (levels->log2_cap > LOG2_BLOCK_MIN && n <= 1u << (levels->log2_cap - 2))
        (void)side_resize(set, levels, levels->log2_cap - 1); /* no smaller block free: it stays as it is */
}

/* ---- orders ---- */

/* References of a day are handed out in rising order, so the 16 neighbours in number that share all but their
 * low bits go to 8 neighbouring buckets: the lines of an add are there since the add before. Longer runs
 * would be faster still on a stream, but two dense ones that meet spill over as much. The rest is scattered:
 * the product's top byte, which depends on all bits above, becomes the lowest one, as the masks take from
 * there. */
static inline uint64_t ref_hash(uint64_t ref)
{
    return __builtin_bswap64((ref >> 4) * 0x9e3779b97f4a7c15ull) << 3 | (ref >> 1 & 7);
}

static inline uint64_t bucket_of(const struct book_set *set, uint64_t ref)
{
    uint64_t home = ref_hash(ref) & (2 * set->home_mask + 1);
    uint64_t beyond =
        home >= set->n_home; /* not a home yet: without its highest bit. No branch: nobody foresees it */
    return home ^ ((set->home_mask + 1) & -beyond);
}

static inline unsigned bucket_match(const struct bucket *b, uint64_t ref)
{
    unsigned mask = 0;
    for (unsigned i = 0; i < BUCKET_SLOTS; i++)
        mask |= (unsigned)((b->ref[i] == ref) & (b->qty[i] != 0)) << i;
    return mask;
}

static inline unsigned bucket_free_slots(const struct bucket *b)
{
    unsigned mask = 0;
    for (unsigned i = 0; i < BUCKET_SLOTS; i++)
        mask |= (unsigned)(b->qty[i] == 0) << i;
    return mask;
}

/* home: bucket_of(set, ref), here and below: the callers need it twice. */

/* Bucket with the order and *slot, or NULL. Bounded by the table. */
static inline struct bucket *order_find(const struct book_set *set, uint64_t home, uint64_t ref,
                                        unsigned *slot)
{
    uint64_t at = home;
    for (uint64_t probe = 0; probe <= set->bucket_mask; probe++) {
        struct bucket *b = &set->bucket[at];
        unsigned match = bucket_match(b, ref);
        if (__builtin_expect(match != 0, 1)) {
            *slot = (unsigned)__builtin_ctz(match);
            return b;
        }
        if (__builtin_expect(b->passed == 0, 1))
            return NULL;
        at = (at + 1) & set->bucket_mask;
    }
    return NULL;
}

/* The reference is not in the table and n_order is below its limit, so there is room. */
static inline void order_insert(struct book_set *set, uint16_t locate, uint64_t home, uint64_t ref,
                                unsigned side, uint32_t qty, uint32_t price)
{
    uint64_t at = home;
    unsigned room;
    while (__builtin_expect((room = bucket_free_slots(&set->bucket[at])) == 0, 0)) {
        if (set->bucket[at].passed != UINT16_MAX)
            set->bucket[at].passed++;
        at = (at + 1) & set->bucket_mask;
    }
    struct bucket *b = &set->bucket[at];
    unsigned i = (unsigned)__builtin_ctz(room);
    b->ref[i] = ref;
    b->price[i] = price;
    b->qty[i] = qty;
    b->locate[i] = locate;
    b->side[i] = (uint8_t)side;
}

static inline void order_remove(struct book_set *set, uint64_t home, struct bucket *b, unsigned slot)
{
    b->qty[slot] = 0;
    for (uint64_t at = home; __builtin_expect(&set->bucket[at] != b, 0); at = (at + 1) & set->bucket_mask)
        if (set->bucket[at].passed != UINT16_MAX)
            set->bucket[at].passed--;
}

/* Makes one more bucket a home: of the orders at home in bucket `from`, those whose next hash bit is set
 * move. Such an order lies less than 2^k buckets behind its home: with d full buckets in between there were 3
 * d + 1 orders, and never more than 1.5 per home, at most 3 * 2^k. So the search is bounded and cannot meet
 * what it has moved. */
static void homes_split(struct book_set *set)
{
    uint64_t to = set->n_home, from = to & set->home_mask, wide_mask = 2 * set->home_mask + 1;
    for (uint64_t distance = 0; distance <= set->home_mask; distance++) {
        struct bucket *b = &set->bucket[(from + distance) & set->bucket_mask];
        for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
            if (b->qty[i] == 0 || (ref_hash(b->ref[i]) & wide_mask) != to)
                continue;
            uint64_t ref = b->ref[i];
            uint32_t qty = b->qty[i];
            order_remove(set, from, b, i);
            order_insert(set, b->locate[i], to, ref, b->side[i], qty, b->price[i]);
        }
        if (b->passed == 0)
            break;
    }
    set->n_home = to + 1;
    if (set->n_home == wide_mask + 1)
        set->home_mask = wide_mask;
}

static inline void homes_grow(struct book_set *set)
{
    if (__builtin_expect(4 * set->counters.n_order > 3 * set->n_home && set->n_home <= set->bucket_mask, 0))
        homes_split(set);
}

static void homes_clear(struct book_set *set)
{
    const uint64_t homes_min = 1u << LOG2_HOMES_MIN;
    set->n_home = set->bucket_mask < homes_min ? set->bucket_mask + 1 : homes_min;
    set->home_mask = set->n_home - 1;
}

/* ---- public ---- */

struct book_set *book_create(const struct book_limits *limits)
{
    const uint32_t n_order_max = 1u << 30, n_level_max = 1u << 28;
    if (limits->n_order == 0 || limits->n_order > n_order_max || limits->n_level == 0 ||
        limits->n_level > n_level_max)
        return NULL;
    struct book_set *set = calloc(1, sizeof(*set));
    if (!set)
        return NULL;
    set->limits = *limits;
    set->bucket_mask = (1ull << log2_up(limits->n_order)) - 1; /* a home for every order */
    set->log2_pool = log2_up(4ull * limits->n_level);
    set->bucket = table_alloc((set->bucket_mask + 1) * sizeof(struct bucket));
    set->locate = table_alloc(BOOK_N_LOCATE * sizeof(struct locate_book));
    set->level = table_alloc((1ull << set->log2_pool) * sizeof(struct book_level));
    set->block_state = table_alloc((1ull << set->log2_pool) >> LOG2_BLOCK_MIN);
    if (!set->bucket || !set->locate || !set->level || !set->block_state) {
        book_free(set);
        return NULL;
    }
    homes_clear(set);
    pool_clear(set);
    return set;
}

void book_free(struct book_set *set)
{
    if (!set)
        return;
    free(set->bucket);
    free(set->locate);
    free(set->level);
    free(set->block_state);
    free(set);
}

void book_clear(struct book_set *set)
{
    memset(set->bucket, 0, (set->bucket_mask + 1) * sizeof(struct bucket));
    memset(set->locate, 0, BOOK_N_LOCATE * sizeof(struct locate_book));
    homes_clear(set);
    pool_clear(set);
    set->counters.n_order = 0;
}

enum book_status book_add(struct book_set *set, uint16_t locate, uint64_t ref, enum book_side side,
                          uint32_t qty, uint32_t price, struct book_change *change)
{
    unsigned slot;
    uint64_t home = bucket_of(set, ref);
    if (__builtin_expect(order_find(set, home, ref, &slot) != NULL, 0)) {
        set->counters.duplicate_ref++;
        return BOOK_DUPLICATE_REF;
    }
    if (__builtin_expect(qty == 0, 0)) {
        set->counters.zero_qty++;
        return BOOK_ZERO_QTY;
    }
    struct locate_book *book = &set->locate[locate];
    if (__builtin_expect(set->counters.n_order == set->limits.n_order, 0) ||
        __builtin_expect(level_add(set, book, side, price, qty) != 0, 0)) {
        set->counters.full++;
        return BOOK_FULL;
    }
    order_insert(set, locate, home, ref, side, qty, price);
    set->counters.n_order++;
    homes_grow(set);
    if (set->counters.n_order > set->counters.n_order_peak)
        set->counters.n_order_peak = set->counters.n_order;
    set->counters.updates++;
    *change = (struct book_change){.side = (uint8_t)side, .price = price, .qty = qty};
    best_refresh(set, book, side, change);
    return BOOK_OK;
}

/* The order, or NULL with *status. */
static inline struct bucket *order_of(struct book_set *set, uint16_t locate, uint64_t home, uint64_t ref,
                                      unsigned *slot, enum book_status *status)
{
    struct bucket *b = order_find(set, home, ref, slot);
    if (__builtin_expect(b == NULL, 0)) {
        set->counters.unknown_ref++;
        *status = BOOK_UNKNOWN_REF;
        return NULL;
    }
    if (__builtin_expect(b->locate[*slot] != locate, 0)) {
        set->counters.wrong_locate++;
        *status = BOOK_WRONG_LOCATE;
        return NULL;
    }
    return b;
}

/* Takes qty, not more than is left, off the order. */
static inline void order_take(struct book_set *set, uint16_t locate, uint64_t home, struct bucket *b,
                              unsigned slot, uint32_t qty, struct book_change *change)
{
    struct locate_book *book = &set->locate[locate];
    unsigned side = b->side[slot];
    uint32_t price = b->price[slot], left = b->qty[slot] - qty;
    if (left > 0) {
        b->qty[slot] = left;
    } else {
        order_remove(set, home, b, slot);
        set->counters.n_order--;
    }
    level_take(set, book, side, price, qty, left == 0);
    set->counters.updates++;
    *change = (struct book_change){.side = (uint8_t)side, .price = price, .qty = qty};
    best_refresh(set, book, side, change);
}

enum book_status book_reduce(struct book_set *set, uint16_t locate, uint64_t ref, uint32_t qty,
                             struct book_change *change)
{
    unsigned slot;
    enum book_status status = BOOK_OK;
    uint64_t home = bucket_of(set, ref);
    struct bucket *b = order_of(set, locate, home, ref, &slot, &status);
    if (__builtin_expect(b == NULL, 0))
        return status;
    if (__builtin_expect(qty == 0, 0)) {
        set->counters.zero_qty++;
        return BOOK_ZERO_QTY;
    }
    if (__builtin_expect(qty > b->qty[slot], 0)) {
        set->counters.excess_qty++;
        qty = b->qty[slot];
        status = BOOK_EXCESS_QTY;
    }
    order_take(set, locate, home, b, slot, qty, change);
    return status;
}

enum book_status book_delete(struct book_set *set, uint16_t locate, uint64_t ref, struct book_change *change)
{
    unsigned slot;
    enum book_status status = BOOK_OK;
    uint64_t home = bucket_of(set, ref);
    struct bucket *b = order_of(set, locate, home, ref, &slot, &status);
    if (__builtin_expect(b == NULL, 0))
        return status;
    order_take(set, locate, home, b, slot, b->qty[slot], change);
    return BOOK_OK;
}

enum book_status book_replace(struct book_set *set, uint16_t locate, uint64_t ref, uint64_t new_ref,
                              uint32_t qty, uint32_t price, struct book_change *change)
{
    unsigned slot, new_slot;
    enum book_status status = BOOK_OK;
    uint64_t home = bucket_of(set, ref);
    struct bucket *b = order_of(set, locate, home, ref, &slot, &status);
    if (__builtin_expect(b == NULL, 0))
        return status;
    uint64_t new_home = bucket_of(set, new_ref);
    if (__builtin_expect(new_ref != ref && order_find(set, new_home, new_ref, &new_slot) != NULL, 0)) {
        set->counters.duplicate_ref++;
        return BOOK_DUPLICATE_REF;
    }
    if (__builtin_expect(qty == 0, 0)) {
        set->counters.zero_qty++;
        return BOOK_ZERO_QTY;
    }
    struct locate_book *book = &set->locate[locate];
    unsigned side = b->side[slot];
    uint32_t best_price = book->best.price[side];
    uint64_t best_qty = book->best.qty[side];
    order_take(set, locate, home, b, slot, b->qty[slot], change);
    change->new_price = price;
    if (__builtin_expect(level_add(set, book, side, price, qty) == 0, 1)) {
        order_insert(set, locate, new_home, new_ref, side, qty, price);
        set->counters.n_order++;
        change->new_qty = qty;
        best_refresh(set, book, side, change);
    } else {
        set->counters.full++;
        status = BOOK_FULL;
    }
    change->top = (book->best.price[side] != best_price) | (book->best.qty[side] != best_qty);
    return status;
}

void book_prefetch(const struct book_set *set, uint16_t locate, uint64_t ref)
{
    __builtin_prefetch(&set->bucket[bucket_of(set, ref)], 1);
    __builtin_prefetch(&set->locate[locate], 1);
}

void book_bbo(const struct book_set *set, uint16_t locate, struct book_bbo *out)
{
    *out = set->locate[locate].bbo;
}

size_t book_levels(const struct book_set *set, uint16_t locate, enum book_side side, struct book_level *out,
                   size_t n)
{
    const struct side_levels *levels = &set->locate[locate].side[side];
    if (n > levels->n)
        n = levels->n;
    for (size_t i = 0; i < n; i++)
        out[i] = set->level[levels->first + levels->n - 1 - i];
    return n;
}

size_t book_depth(const struct book_set *set, uint16_t locate, enum book_side side)
{
    return set->locate[locate].side[side].n;
}

const struct book_counters *book_counters(const struct book_set *set)
{
    return &set->counters;
}
