/* What a unit does in one start: a round of doorbell mode, or a command. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit_self.h"

/* ---- faults ---- */

static int is_fired(const struct fault_fired *fired, enum fault_kind kind)
{
    return fired->kinds >> kind & 1;
}

static void injected(struct unit *unit, enum fault_kind kind)
{
    atomic_fetch_add_explicit(&unit->counters->injected[kind], 1, memory_order_relaxed);
}

static void crash(struct unit *unit, int by_signal)
{
    if (unit->card->is_child) {
        signal(by_signal, SIG_DFL);
        raise(by_signal);
        abort(); /* a signal that does not kill */
    }
    fprintf(stderr,
            "killline-sim: device %u: crash without a child process (KL_SIM_EXEC): the device vanishes\n",
            unit->card->device);
    atomic_store_explicit(&unit->card->lost, 1, memory_order_release);
}

/* A high bit of the last weight that is not 0: the output layer's lie at the end (most of the memory is
 * unused by a small model). */
static uint64_t output_weight_bit(const uint8_t *weights, size_t size_bytes)
{
    size_t at = size_bytes - size_bytes % 2;
    while (at > 2 && weights[at - 2] == 0 && weights[at - 1] == 0)
        at -= 2;
    return 8 * (uint64_t)(at - 2) + 12;
}

int unit_break(struct unit *unit, const struct fault_fired *fired)
{
    if (is_fired(fired, FAULT_CRASH)) {
        injected(unit, FAULT_CRASH);
        crash(unit, (int)fired->by[FAULT_CRASH]->value);
    }
    if (is_fired(fired, FAULT_VANISH)) {
        injected(unit, FAULT_VANISH);
        atomic_store_explicit(&unit->card->lost, 1, memory_order_release);
    }
    if (is_fired(fired, FAULT_HANG)) {
        atomic_store_explicit(&unit->shared->state, CARD_UNIT_HUNG, memory_order_release);
        injected(unit, FAULT_HANG);
    }
    if (atomic_load_explicit(&unit->card->lost, memory_order_relaxed) ||
        atomic_load_explicit(&unit->shared->state, memory_order_relaxed) == CARD_UNIT_HUNG)
        return 0;
    if (is_fired(fired, FAULT_FLIP_WEIGHT)) {
        size_t size_bytes;
        uint8_t *weights = unit->build->weights(unit->kernel, &size_bytes);
        uint64_t bit = fired->by[FAULT_FLIP_WEIGHT]->value;
        bit = bit == FAULT_ANY_WEIGHT ? output_weight_bit(weights, size_bytes) : bit % (8 * size_bytes);
        weights[bit / 8] ^= (uint8_t)(1u << bit % 8);
        injected(unit, FAULT_FLIP_WEIGHT);
    }
    return 1;
}

static void delay(struct unit *unit, const struct fault_fired *fired)
{
    if (is_fired(fired, FAULT_LATE)) {
        latency_until(latency_now_ns() + 1000 * fired->by[FAULT_LATE]->value);
        injected(unit, FAULT_LATE);
    }
}

/* Faults of an answer on its way. before: the answer given before it; NULL: none. */
static void tamper(struct unit *unit, const struct fault_fired *fired, const struct kl_result *before,
                   struct kl_result *result)
{
    if (is_fired(fired, FAULT_DUPLICATE) && before) {
        *result = *before;
        injected(unit, FAULT_DUPLICATE);
    }
    if (is_fired(fired, FAULT_ERROR)) {
        const struct kl_result was = *result;
        memset(result, 0, sizeof *result);
        result->abi_version = was.abi_version;
        result->status = (uint16_t)fired->by[FAULT_ERROR]->value;
        result->stream = was.stream;
        result->seq_no = was.seq_no;
        result->slot = was.slot;
        result->check = kl_result_check(result);
        injected(unit, FAULT_ERROR);
    }
    if (is_fired(fired, FAULT_FLIP_ANSWER)) {
        const struct fault *fault = fired->by[FAULT_FLIP_ANSWER];
        ((uint8_t *)result)[fault->value / 8] ^= (uint8_t)(1u << fault->value % 8);
        if (fault->is_sealed)
            result->check = kl_result_check(result);
        injected(unit, FAULT_FLIP_ANSWER);
    }
}

/* ---- a round ---- */

/* A request's words from where the host has put them: host memory, or the register block. */
static void copy_request(struct unit *unit, uint32_t number, const uint8_t *from_host)
{
    const uint32_t entry = number % KL_QUEUE_DEPTH;
    if (from_host) {
        const uint64_t *from =
            (const uint64_t *)(const void *)(from_host + entry * sizeof(struct kl_request));
        uint64_t *to = (uint64_t *)(void *)&unit->requests[entry];
        for (uint32_t i = 0; i < sizeof(struct kl_request) / 8; i++)
            to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
        return;
    }
    const uint32_t first = KL_REG_REQUESTS + entry * (uint32_t)(sizeof(struct kl_request) / 4);
    for (uint32_t i = 0; i < sizeof(struct kl_request) / 4; i++)
        unit->reg[first + i] = unit_shared_reg(unit, first + i);
}

static const uint32_t *answer_words(const struct unit *unit, uint32_t number)
{
    return &unit->reg[KL_REG_RESULTS + number % KL_QUEUE_DEPTH * (uint32_t)(sizeof(struct kl_result) / 4)];
}

/* An answer's words to where the host looks for them. Its check says when it is whole, in whatever order
 * words come. */
static void give(struct unit *unit, uint32_t number, const uint32_t *words, uint8_t *to_host)
{
    enum { N = sizeof(struct kl_result) / 4 };
    const uint32_t entry = number % KL_QUEUE_DEPTH, first = KL_MAP_REG / 4 + KL_REG_RESULTS + entry * N;
    for (uint32_t i = 0; i < N; i++)
        atomic_store_explicit(&unit->shared->map[first + i], words[i], memory_order_relaxed);
    if (!to_host)
        return;
    uint64_t *to = (uint64_t *)(void *)(to_host + entry * sizeof(struct kl_result));
    for (uint32_t i = N / 2; i-- > 0;)
        __atomic_store_n(&to[i], words[2 * i] | (uint64_t)words[2 * i + 1] << 32, __ATOMIC_RELEASE);
}

/* The answer that a round has brought, on its way. */
static void pass_on(struct unit *unit, uint32_t number, const struct fault_fired *fired, uint8_t *to_host)
{
    atomic_fetch_add_explicit(&unit->counters->requests, 1, memory_order_relaxed);
    if (!fired->kinds) {
        give(unit, number, answer_words(unit, number), to_host);
        return;
    }
    struct kl_result result, before;
    uint32_t words[sizeof result / 4];
    memcpy(&result, answer_words(unit, number), sizeof result);
    memcpy(&before, answer_words(unit, number - 1), sizeof before);
    delay(unit, fired);
    tamper(unit, fired, number ? &before : NULL, &result);
    memcpy(words, &result, sizeof words);
    give(unit, number, words, to_host);
}

static uint64_t pointer(const struct unit *unit, uint32_t offset)
{
    return atomic_load_explicit(&unit->shared->map[offset / 4], memory_order_relaxed) |
           (uint64_t)atomic_load_explicit(&unit->shared->map[offset / 4 + 1], memory_order_relaxed) << 32;
}

static uint8_t *place_of(struct unit *unit, enum kl_argument argument, uint32_t offset, uint64_t size_bytes)
{
    const uint64_t address = pointer(unit, offset);
    uint8_t *at = unit_resolve(unit, argument, address, size_bytes);
    if (!at) {
        unit_bad_access(unit, argument, address, size_bytes);
        atomic_store_explicit(&unit->shared->state, CARD_UNIT_ERROR, memory_order_relaxed);
    }
    return at;
}

/* The load's side of a round: where the image is. 0: the unit is in error now. */
static int find_image(struct unit *unit, const void **image, int *rang)
{
    *image = NULL;
    *rang = unit->reg[KL_REG_LOAD_DOORBELL] != unit->load_seen;
    if (*rang && !unit->is_loading) {
        struct fault_fired fired;
        fault_at(&unit->card->faults, FAULT_LOAD_MODEL, unit->index, &fired);
        if (fired.kinds) { /* no image: KL_E_IMAGE */
            injected(unit, FAULT_REFUSE_LOAD);
            return 1;
        }
        unit->load_bytes = unit->reg[KL_REG_LOAD_SIZE_BYTES];
    }
    if (!*rang && !unit->is_loading)
        return 1;
    *image = place_of(unit, KL_ARG_IMAGE, KL_MAP_IMAGE, unit->load_bytes);
    return *image != NULL;
}

static void follow_load(struct unit *unit, int rang, uint32_t bad_before)
{
    const uint32_t number = unit->reg[KL_REG_LOAD_DOORBELL];
    if (rang) {
        unit->load_seen = number;
        if (unit->reg[KL_REG_BAD_DOORBELLS] == bad_before && !unit->is_loading) {
            unit->is_loading = 1;
            unit->load_number = number;
        }
    }
    if (unit->is_loading && unit->reg[KL_REG_LOAD_DONE] == unit->load_number)
        unit->is_loading = 0;
    atomic_store_explicit(&unit->shared->is_loading, (uint32_t)unit->is_loading, memory_order_relaxed);
}

static uint32_t n_waiting(const struct unit *unit)
{
    const uint32_t n = unit->reg[KL_REG_REQUEST_TAIL] - unit->reg[KL_REG_REQUEST_HEAD];
    const uint32_t n_untaken = unit->reg[KL_REG_RESULT_TAIL] - unit->reg[KL_REG_RESULT_HEAD];
    return n <= KL_QUEUE_DEPTH && n_untaken < KL_QUEUE_DEPTH ? n : 0;
}

/* Latency: when what the round does can begin. */
static uint64_t begin_ns(const struct unit *unit, int fetches)
{
    uint64_t at = latency_now_ns();
    const uint64_t arrive = atomic_load_explicit(&unit->shared->arrive_ns, memory_order_relaxed);
    if (arrive > at)
        at = arrive;
    if (fetches)
        at += unit->card->latency.fetch_ns;
    return unit->busy_until_ns > at ? unit->busy_until_ns : at;
}

static uint64_t cycles_ns(const struct unit *unit, uint64_t cycles)
{
    return cycles * 1000 / unit->card->latency.kernel_mhz;
}

uint32_t unit_round(struct unit *unit)
{
    unit_words_in(unit);
    uint32_t *reg = unit->reg;
    const uint32_t config = reg[KL_REG_CONFIG], waiting = n_waiting(unit);
    struct fault_fired fired = {.kinds = 0};
    uint8_t *from_host = NULL, *to_host = NULL;
    if (waiting) {
        if (config & KL_CONFIG_REQUEST_FROM_HOST &&
            !(from_host = place_of(unit, KL_ARG_REQUEST, KL_MAP_REQUEST, sizeof unit->requests)))
            return 0;
        if (config & KL_CONFIG_RESULT_TO_HOST &&
            !(to_host = place_of(unit, KL_ARG_RESULT, KL_MAP_RESULT, sizeof unit->results)))
            return 0;
        fault_at(&unit->card->faults, FAULT_REQUEST, unit->index, &fired);
        if (fired.kinds && !unit_break(unit, &fired))
            return 0;
        if (unit->fetched - reg[KL_REG_REQUEST_HEAD] > waiting)
            unit->fetched = reg[KL_REG_REQUEST_HEAD];
        for (; unit->fetched != reg[KL_REG_REQUEST_TAIL]; unit->fetched++)
            copy_request(unit, unit->fetched, from_host);
    }
    const void *image;
    int rang;
    if (!find_image(unit, &image, &rang))
        return 0;
    const uint32_t answers = reg[KL_REG_RESULT_TAIL], bad = reg[KL_REG_BAD_DOORBELLS];
    const uint64_t cycles = unit_cycles(unit);
    const int is_timed = (int)unit->card->latency.is_on;
    const uint64_t begin = is_timed ? begin_ns(unit, from_host != NULL) : 0;

    unit->build->kernel(unit->kernel, &(struct kl_arguments){.command = KL_COMMAND_SERVICE,
                                                             .image = image,
                                                             .request = unit->requests,
                                                             .result = unit->results});
    const int was_loading = unit->is_loading;
    follow_load(unit, rang, bad);
    const uint64_t took = unit_cycles(unit) - cycles;
    const int answered = reg[KL_REG_RESULT_TAIL] != answers;
    if (is_timed && took) {
        unit->busy_until_ns = begin + cycles_ns(unit, took);
        if (answered || was_loading)
            latency_until(unit->busy_until_ns + (to_host && answered ? unit->card->latency.write_ns : 0));
    }
    if (answered)
        pass_on(unit, answers, &fired, to_host);
    unit_words_out(unit);
    if (!took && !answered && !rang)
        return 0;
    return UNIT_WORKED | (answered ? UNIT_ANSWERED : 0) | (n_waiting(unit) ? UNIT_WAITING : 0) |
           (was_loading ? UNIT_LOADING : 0);
}

/* ---- a command ---- */

/* A pointer argument of a command. */
static int find(struct unit *unit, const uint32_t *words, enum kl_argument argument, uint32_t offset,
                uint64_t size_bytes, uint8_t **at)
{
    const uint64_t address = words[offset / 4] | (uint64_t)words[offset / 4 + 1] << 32;
    *at = unit_resolve(unit, argument, address, size_bytes);
    if (!*at)
        unit_bad_access(unit, argument, address, size_bytes);
    return *at ? 0 : -1;
}

/* The arguments of a command that touches memory: every byte that it can touch. */
static int find_all(struct unit *unit, const uint32_t *words, struct kl_arguments *out)
{
    uint8_t *image = NULL, *request = NULL, *result = NULL, *state = NULL;
    const uint32_t command = out->command;
    uint64_t n_request = 0, n_result = 1;
    if (command == KL_COMMAND_EXEC)
        n_request = n_result = out->n_request;
    if (command == KL_COMMAND_SAVE || command == KL_COMMAND_RESTORE)
        n_request = 1;
    if (command == KL_COMMAND_LOAD && out->image_size_bytes &&
        find(unit, words, KL_ARG_IMAGE, KL_MAP_IMAGE, out->image_size_bytes, &image) != 0)
        return -1;
    if (n_request && find(unit, words, KL_ARG_REQUEST, KL_MAP_REQUEST, n_request * sizeof(struct kl_request),
                          &request) != 0)
        return -1;
    if (n_result &&
        find(unit, words, KL_ARG_RESULT, KL_MAP_RESULT, n_result * sizeof(struct kl_result), &result) != 0)
        return -1;
    if ((command == KL_COMMAND_SAVE || command == KL_COMMAND_RESTORE) &&
        find(unit, words, KL_ARG_STATE, KL_MAP_STATE, sizeof(struct kl_state), &state) != 0)
        return -1;
    out->image = image;
    out->request = (const struct kl_request *)(const void *)request;
    out->result = (struct kl_result *)(void *)result;
    out->state = (struct kl_state *)(void *)state;
    return 0;
}

static uint32_t execute(struct unit *unit, struct kl_arguments *arguments, const struct fault_fired *fired)
{
    const int is_timed = (int)unit->card->latency.is_on;
    const uint64_t begin = is_timed ? begin_ns(unit, 0) + 1000u * unit->card->latency.run_us : 0;
    const uint64_t cycles = unit_cycles(unit);
    unit_words_in(unit);
    unit->build->kernel(unit->kernel, arguments);
    /* A command does not show its cycles in the block: the info does. */
    struct kl_info info;
    unit->build->info(unit->kernel, &info);
    memcpy(&unit->reg[KL_REG_INFO], &info, sizeof info);
    unit_words_out(unit);
    if (is_timed) {
        unit->busy_until_ns = begin + cycles_ns(unit, unit_cycles(unit) - cycles);
        latency_until(unit->busy_until_ns);
    }
    delay(unit, fired);
    if (is_fired(fired, FAULT_ERROR)) {
        injected(unit, FAULT_ERROR);
        return CARD_RUN_ERROR;
    }
    if (arguments->command == KL_COMMAND_EXEC && arguments->n_request) {
        tamper(unit, fired, unit->has_last ? &unit->last : NULL, &arguments->result[0]);
        unit->last = arguments->result[0];
        unit->has_last = 1;
    }
    return CARD_RUN_DONE;
}

uint32_t unit_command(struct unit *unit, const uint32_t words[CARD_N_ARGUMENT_WORD])
{
    struct kl_arguments arguments = {.command = words[KL_MAP_COMMAND / 4],
                                     .slot = words[KL_MAP_SLOT / 4],
                                     .image_size_bytes = words[KL_MAP_IMAGE_SIZE_BYTES / 4],
                                     .n_request = words[KL_MAP_N_REQUEST / 4]};
    if (arguments.command == KL_COMMAND_SERVICE) {
        unit_round(unit);
        return atomic_load_explicit(&unit->shared->state, memory_order_relaxed) == CARD_UNIT_ERROR
                   ? CARD_RUN_ERROR
                   : CARD_RUN_DONE;
    }
    if (find_all(unit, words, &arguments) != 0)
        return CARD_RUN_ERROR;
    struct fault_fired fired;
    if (arguments.command == KL_COMMAND_LOAD) {
        fault_at(&unit->card->faults, FAULT_LOAD_MODEL, unit->index, &fired);
        if (fired.kinds) {
            injected(unit, FAULT_REFUSE_LOAD);
            arguments.image_size_bytes = 0; /* KL_E_IMAGE */
        }
    }
    fault_at(&unit->card->faults, FAULT_REQUEST, unit->index, &fired);
    if (fired.kinds && !unit_break(unit, &fired))
        return CARD_RUN_ERROR;
    return execute(unit, &arguments, &fired);
}
