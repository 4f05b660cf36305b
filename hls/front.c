#include "front.h"

#include <string.h>

#include "kl_latency.h"
#include "kl_pragma.h"
#include "records.h"

void front_info(const struct kl_core *core, struct kl_info *info)
{
    static const char name[] = KL_BUILD_NAME;
    memset(info, 0, sizeof *info);
    info->abi_version = KL_ABI_VERSION;
    memcpy(info->build, name, sizeof name);
    info->mac_rows = KL_MAC_ROWS;
    info->mac_cols = KL_MAC_COLS;
    info->cell_lanes = KL_CELL_LANES;
    info->n_slr = KL_N_SLR;
    info->n_layer_max = KL_BUILD_LAYERS;
    /* Of a layer that a pair splits, it holds twice as many. */
    const uint32_t n_hidden = KL_BUILD_UNITS * core->n_part;
    info->n_hidden_max = (uint16_t)(n_hidden < KL_OPERANDS ? n_hidden : (uint32_t)KL_OPERANDS);
    info->n_in_max = KL_BUILD_IN;
    info->n_class_max = KL_N_CLASS_MAX;
    info->n_slot = KL_BUILD_SLOTS;
    info->n_stream = KL_BUILD_STREAMS;
    info->queue_depth = KL_QUEUE_DEPTH;
    info->part = (uint16_t)core->part;
    info->n_part = (uint16_t)core->n_part;
slot:
    for (uint32_t s = 0; s < KL_BUILD_SLOTS; s++)
        info->image_hash[s] = core->model[s].loaded ? core->model[s].image_hash : 0;
    info->cycles = core->cycles;
}

void front_give_info(const struct kl_core *core, uint32_t *words)
{
    struct kl_info info;
    front_info(core, &info);
word:
    for (uint32_t i = 0; i < RECORD_INFO_WORDS; i++) {
        KL_PRAGMA(HLS PIPELINE II = 1) /* a word per cycle, one burst */
        words[i] = record_info_get(&info, i);
    }
}

enum { INFO_CHANGES = offsetof(struct kl_info, image_hash) / 4 }; /* the words before stay as they are */

/* The kernel's words of the block from info's word `from` on, written anew: what the host may have written
 * there is gone. */
static void show(const struct front *front, const struct kl_core *core, uint32_t *reg, uint32_t from)
{
    struct kl_info info;
    front_info(core, &info);
word:
    for (uint32_t i = from; i < RECORD_INFO_WORDS; i++) {
        KL_PRAGMA(HLS PIPELINE II = 1) /* behind the answer: a word per cycle will do */
        reg[KL_REG_INFO + i] = record_info_get(&info, i);
    }
    reg[KL_REG_REQUEST_HEAD] = front->request_head;
    reg[KL_REG_BAD_DOORBELLS] = front->bad_doorbells;
    reg[KL_REG_LOAD_STATUS] = front->load_status;
    /* Last: what they announce is there. */
    reg[KL_REG_LOAD_DONE] = front->load_done;
    reg[KL_REG_RESULT_TAIL] = front->result_tail;
}

void front_init(struct front *front, const struct kl_core *core, uint32_t *reg)
{
    memset(front, 0, sizeof *front);
    memset(reg, 0, KL_N_REG * sizeof *reg);
    show(front, core, reg, 0);
}

/* A wrong counter is seen in every look until the host mends it, and counts once. */
static void count_once(struct front *front, struct front_wrong *wrong, uint32_t value)
{
    front->bad_doorbells += !wrong->stands || wrong->value != value;
    wrong->stands = 1;
    wrong->value = value;
}

int front_look(struct front *front, const struct kl_core *core, const uint32_t *reg)
{
    const uint32_t tail = reg[KL_REG_REQUEST_TAIL];
    const uint32_t n_waiting = tail - front->request_head;
    /* A tail that goes back behind what was seen would take a request away again: wrong as well. */
    const uint32_t n_seen = front->seen_tail - front->request_head;
    const uint64_t since = front->looked_at;
    front->looked_at = core->cycles;
    if (n_waiting > KL_QUEUE_DEPTH || n_waiting < n_seen) {
        count_once(front, &front->wrong_tail, tail);
        return -1;
    }
arrival:
    for (uint32_t i = 0; i < KL_QUEUE_DEPTH; i++) {
        KL_PRAGMA(HLS UNROLL)
        /* It was not there at the last look, so it waits since then at most. */
        if (i >= n_seen && i < n_waiting)
            front->seen_at[(front->request_head + i) % KL_QUEUE_DEPTH] = since;
    }
    front->wrong_tail.stands = 0;
    front->seen_tail = tail;
    return (int)n_waiting;
}

/* Room for an answer; 0 as long as RESULT_HEAD stands wrong. */
static int has_room(struct front *front, const uint32_t *reg)
{
    const uint32_t head = reg[KL_REG_RESULT_HEAD];
    const uint32_t n_untaken = front->result_tail - head;
    if (n_untaken > KL_QUEUE_DEPTH) {
        count_once(front, &front->wrong_head, head);
        return 0;
    }
    front->wrong_head.stands = 0;
    return n_untaken < KL_QUEUE_DEPTH;
}

/* Puts a stream at the list's end, once. If the list is full the oldest has to do without: its next step
 * prepares by itself. */
static void want_prepare(struct front *front, const struct kl_request *request)
{
    uint32_t gone =
        front->n_prepare == KL_QUEUE_DEPTH ? 0 : front->n_prepare; /* the entry to close up over */
    uint32_t n = front->n_prepare;
same:
    for (uint32_t i = 0; i < KL_QUEUE_DEPTH; i++) {
        KL_PRAGMA(HLS UNROLL)
        if (i < n && front->prepare_slot[i] == request->slot && front->prepare_stream[i] == request->stream)
            gone = i;
    }
    n -= gone < n;
shift:
    for (uint32_t i = 0; i + 1 < KL_QUEUE_DEPTH; i++) {
        KL_PRAGMA(HLS UNROLL)
        if (i >= gone && i < n) {
            front->prepare_slot[i] = front->prepare_slot[i + 1];
            front->prepare_stream[i] = front->prepare_stream[i + 1];
        }
    }
    front->prepare_slot[n] = request->slot;
    front->prepare_stream[n] = (uint16_t)request->stream;
    front->n_prepare = n + 1;
}

enum { BEAT_WORDS = RECORD_BEAT_WORDS, BEAT_X = 2 * BEAT_WORDS, BEAT_STEPS = BEAT_X / KL_MAC_COLS };
static_assert((int)RECORD_REQUEST_X == (int)BEAT_WORDS && RECORD_REQUEST_WORDS % BEAT_WORDS == 0,
              "x starts a beat");
static_assert(RECORD_RESULT_WORDS % BEAT_WORDS == 0 && (int)KL_REG_REQUESTS % BEAT_WORDS == 0, "whole beats");
static_assert(BEAT_X % KL_MAC_COLS == 0, "a beat brings whole column steps");

void front_take(struct kl_core *core, const uint32_t *words, struct kl_request *request)
{
head:
    for (uint32_t i = 0; i < RECORD_REQUEST_HEAD; i++) {
        KL_PRAGMA(HLS UNROLL) /* the first beat */
        record_request_put(request, i, words[i]);
    }
    const uint32_t n_in = core_n_in(core, request);
x_beat:
    for (uint32_t first = 0; first < n_in; first += BEAT_X) {
        /* A beat per cycle; its column steps are converted as it comes. */
        KL_PRAGMA(HLS PIPELINE II = 1)
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 8)
    x_word:
        for (uint32_t i = 0; i < BEAT_WORDS; i++) {
            KL_PRAGMA(HLS UNROLL)
            const uint32_t at = RECORD_REQUEST_X + first / 2 + i;
            record_request_put(request, at, words[at]);
        }
    x_step:
        for (uint32_t i = 0; i < BEAT_STEPS; i++) {
            KL_PRAGMA(HLS UNROLL)
            const uint32_t col = first / KL_MAC_COLS + i;
            if (col * KL_MAC_COLS < n_in)
                core_take_x(core, request->x, n_in, col);
        }
    }
}

void front_give(const struct kl_result *result, uint32_t *words)
{
beat:
    for (uint32_t n = RECORD_RESULT_WORDS / BEAT_WORDS; n-- > 0;) {
        KL_PRAGMA(HLS PIPELINE II = 1) /* a beat per cycle, the one with seq_no last */
        record_result_beat(result, n, words);
    }
}

uint32_t front_io_cycles(uint32_t n_in)
{
    const uint32_t head = KL_LAT_BRAM + 1, x = KL_LAT_BRAM + (n_in + BEAT_X - 1) / BEAT_X + KL_LAT_CONVERT;
    return head + x + KL_LAT_CHECK + RECORD_RESULT_WORDS / BEAT_WORDS;
}

/* from_host: the request lies in host_request's ring, not in the block's. */
static void serve_request(struct front *front, struct kl_core *core, uint32_t *reg, int from_host,
                          const uint32_t *host_request, uint32_t *host_result)
{
    KL_PRAGMA(HLS INLINE) /* here and below: what calls the core, or the loader. kl_kernel.c says why */
    struct kl_request request;
    /* A column step of x per cycle: KL_MAC_COLS values, 32 at most. */
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = request.x type = cyclic factor = 32)
    struct kl_result result;
    const uint32_t entry = front->request_head % KL_QUEUE_DEPTH;
    /* Two calls: a pointer to either would be one to two kinds of memory. */
    if (from_host)
        front_take(core, &host_request[entry * RECORD_REQUEST_WORDS], &request);
    else
        front_take(core, &reg[KL_REG_REQUESTS + entry * RECORD_REQUEST_WORDS], &request);
    const uint64_t waited = core->cycles - front->seen_at[entry];
    const uint32_t at = front->result_tail % KL_QUEUE_DEPTH;
    uint32_t *words = &reg[KL_REG_RESULTS + at * RECORD_RESULT_WORDS];
    core_exec_taken(core, &request, waited > UINT32_MAX ? UINT32_MAX : (uint32_t)waited, &result, words);
    front->request_head++;
    if (result.status == KL_OK && request.flags & KL_REQUEST_PREPARE && !(result.flags & KL_RESULT_LATE))
        want_prepare(front, &request);
    /* First where the host looks. Not from inside the pipeline: an AXI write there would make it deeper by
     * the port's latency, and every operation with it. */
    if (reg[KL_REG_CONFIG] & KL_CONFIG_RESULT_TO_HOST && host_result)
        front_give(&result, &host_result[at * RECORD_RESULT_WORDS]);
    front_give(&result, words); /* a step's once more */
    front->result_tail++;
}

/* The newest first: its stream is the likeliest to come again. */
static void serve_prepare(struct front *front, struct kl_core *core)
{
    KL_PRAGMA(HLS INLINE)
    struct kl_result result;
    struct kl_request request;
    front->n_prepare--;
    request.abi_version = KL_ABI_VERSION;
    request.op = KL_OP_PREPARE;
    request.flags = 0;
    request.seq_no = 0;
    request.budget_cycles = 0;
    request.slot = front->prepare_slot[front->n_prepare];
    request.stream = front->prepare_stream[front->n_prepare];
    core_exec_taken(core, &request, 0, &result,
                    NULL); /* a slot that was emptied meanwhile refuses: nothing to prepare */
}

static void load_ended(struct front *front, uint32_t status)
{
    front->load_running = 0;
    front->load_status = status;
    front->load_done = front->load_number;
}

static void load_doorbell(struct front *front, struct kl_core *core, const uint32_t *reg,
                          const uint64_t *image)
{
    const uint32_t status =
        image ? loader_begin(core, reg[KL_REG_LOAD_SLOT], reg[KL_REG_LOAD_SIZE_BYTES]) : (uint32_t)KL_E_IMAGE;
    front->load_doorbell = reg[KL_REG_LOAD_DOORBELL];
    if (status == KL_E_BUSY || front->load_running) {
        front->bad_doorbells++;
        return;
    }
    front->load_running = 1;
    front->load_number = front->load_doorbell;
    if (status != KL_OK)
        load_ended(front, status);
}

uint32_t front_load_beat(struct kl_core *core, const uint64_t *image)
{
    KL_PRAGMA(HLS INLINE off)
    uint64_t beat[LOADER_BEAT_WORDS] = {0};
    const uint32_t n_word = loader_n_word(core), from = core->loader.at;
word:
    for (uint32_t i = 0; i < n_word; i++) {
        KL_PRAGMA(HLS PIPELINE II = 1) /* one burst */
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 0 max = 8)
        beat[i] = image[from + i];
    }
    core->cycles += KL_LOAD_BEAT;
    return loader_advance(core, beat);
}

/* A new load, if the doorbell rang, or a beat of the one under way. */
static void serve_load(struct front *front, struct kl_core *core, const uint32_t *reg, const uint64_t *image)
{
    KL_PRAGMA(HLS INLINE)
    if (reg[KL_REG_LOAD_DOORBELL] != front->load_doorbell) {
        load_doorbell(front, core, reg, image);
    } else if (front->load_running && image) {
        const uint32_t status = front_load_beat(core, image);
        if (status != KL_E_BUSY)
            load_ended(front, status);
    }
}

int front_serve(struct front *front, struct kl_core *core, uint32_t *reg, const uint32_t *host_request,
                uint32_t *host_result)
{
    KL_PRAGMA(HLS INLINE)
    const int n_waiting = front_look(front, core, reg);
    const int from_host = (reg[KL_REG_CONFIG] & KL_CONFIG_REQUEST_FROM_HOST) != 0;
    const int room = has_room(front, reg) && (host_request || !from_host);
    const int worked = n_waiting >= 0 && ((n_waiting > 0 && room) || front->n_prepare > 0);
    if (worked && n_waiting > 0 && room)
        serve_request(front, core, reg, from_host, host_request, host_result);
    else if (worked)
        serve_prepare(front, core);
    /* Before the answer shows: what the host sends when it has seen it did not wait for it. */
    front_look(front, core, reg);
    show(front, core, reg, worked ? INFO_CHANGES : 0);
    return worked;
}

void front_round(struct front *front, struct kl_core *core, uint32_t *reg, const uint64_t *image,
                 const uint32_t *host_request, uint32_t *host_result)
{
    KL_PRAGMA(HLS INLINE)
    front_serve(front, core, reg, host_request, host_result);
    serve_load(front, core, reg, image);
    front_look(front, core, reg);
    show(front, core, reg, INFO_CHANGES);
}
