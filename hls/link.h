/* The link between the two compute units that share a model's rows: an AXI4-Stream in each direction.
 * Natively a queue whose words arrive KL_LAT_LINK cycles after they were sent; both units count the same
 * clock. */
#ifndef LINK_H
#define LINK_H

#include "kl_latency.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One part of h. seq_no: of the request that both units work on. */
struct link_word {
    uint32_t seq_no;
    uint8_t layer, part;
    uint16_t pad;
    int16_t h[KL_CELL_LANES];
};

enum { LINK_DEPTH = 2 * KL_N_PART }; /* a unit is never more than a layer ahead: every part of two layers */

struct link {
    struct link_word word[LINK_DEPTH];
    uint32_t arrival[LINK_DEPTH]; /* in the reader's cycles since the start of the request */
    uint32_t head, tail;
};

/* tail - head <= LINK_DEPTH always: see above. */
static inline void link_send(struct link *link, const struct link_word *word, uint32_t now)
{
    link->word[link->tail % LINK_DEPTH] = *word;
    link->arrival[link->tail % LINK_DEPTH] = now + KL_LAT_LINK;
    link->tail++;
}

/* 1: *word is the next one; 0: none has arrived by now. */
static inline int link_receive(struct link *link, struct link_word *word, uint32_t now)
{
    if (link->head == link->tail || link->arrival[link->head % LINK_DEPTH] > now)
        return 0;
    *word = link->word[link->head % LINK_DEPTH];
    link->head++;
    return 1;
}

#ifdef __cplusplus
}
#endif

#endif
