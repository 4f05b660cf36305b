/* A host that does anything to a unit: requests, doorbells right and wrong, writes all over the register
 * block, loads of good and damaged images while requests are served, run-mode commands between the rounds.
 *
 * A model of the controller, written from kl_abi.h's text, says after every start what the block must show.
 * A second unit of the same build, driven by exec() and load_advance() alone, says what every answer must be:
 * the same requests in the same order give the same bytes, or the status that is documented. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernel_front_rig.h"
#include "tests/model_image.h"

static void check(int holds)
{
    if (!holds)
        abort();
}

/* ---- input ---- */

struct input {
    const uint8_t *at, *end;
};

static uint32_t byte_of(struct input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

static uint32_t word_of(struct input *input)
{
    uint32_t word = 0;
    for (int i = 0; i < 4; i++)
        word |= byte_of(input) << (8 * i);
    return word;
}

/* ---- images ---- */

enum { N_IMAGE = 6, BUFFER_BYTES = 4096 };

static struct {
    uint32_t size_bytes;
    _Alignas(
        8) uint8_t bytes[BUFFER_BYTES]; /* whatever size the host claims below this is there to be read */
} images[N_IMAGE];

static void set_up_images(void)
{
    static const struct model_image_shape shapes[N_IMAGE] = {
        {.n_in = 3, .n_layer = 1, .n_class = 2, .n_hidden = {5}},
        {.n_in = 17, .n_layer = 2, .n_class = 3, .n_hidden = {9, 2}},
        {.n_in = 1, .n_layer = 3, .n_class = 8, .n_hidden = {1, 1, 1}},
        {.n_in = 3, .n_layer = 1, .n_class = 2, .n_hidden = {5}},   /* damaged */
        {.n_in = 129, .n_layer = 1, .n_class = 1, .n_hidden = {2}}, /* beyond the build */
        {.n_in = 3, .n_layer = 1, .n_class = 2, .n_hidden = {5}},   /* a weight off its grid */
    };
    for (int i = 0; i < N_IMAGE; i++) {
        struct kl_image_header *image = model_image_new(&shapes[i], (uint64_t)i);
        check(image != NULL && image->size_bytes <= BUFFER_BYTES);
        if (i == 5) {
            ((uint8_t *)image)[model_image_layer(image, 0).w_h] |= 1;
            ((uint8_t *)image)[model_image_layer(image, 0).w_h + 1] = 0;
            model_image_seal(image);
        }
        images[i].size_bytes = image->size_bytes;
        memcpy(images[i].bytes, image, image->size_bytes);
        images[i].bytes[i == 3 ? image->size_bytes - 3 : BUFFER_BYTES - 1] ^= 1;
        free(image);
    }
}

/* ---- the model of the controller ---- */

struct asked {
    uint32_t slot, stream;
};

static struct kernel_front_rig rig; /* the unit under test */
static struct kl_unit *twin;        /* driven by exec and load_advance alone */

static struct {
    uint32_t head, tail, seen, n_bad; /* REQUEST_HEAD, RESULT_TAIL; REQUEST_TAIL as last accepted */
    uint64_t arrived[KL_QUEUE_DEPTH]; /* the clock when an entry came */
    uint64_t load_cycles;             /* the clock is the twin's and what loads took */
    int tail_is_bad, head_is_bad;     /* and counted, with this value: */
    uint32_t bad_tail, bad_head;
    struct asked asked[KL_QUEUE_DEPTH]; /* for a prepare, newest last */
    uint32_t n_asked;
    int loading; /* by a doorbell, this one: */
    uint32_t load_number, doorbell, load_done, load_status;
    int loading_natively; /* by load_begin */
    uint32_t load_slot;
    uint64_t load_hash, hash[KL_N_SLOT]; /* of the image under way; of those in the slots, 0: empty */
} model;

static void load_began(uint32_t slot, const uint8_t *image)
{
    model.load_slot = slot;
    memcpy(&model.load_hash, image + KL_IMAGE_HASH_AT, sizeof model.load_hash);
    model.hash[slot] = 0;
}

/* A beat of the load on the twin. Returns its status. */
static uint32_t load_advances(void)
{
    const uint32_t status = rig.build->load_advance(twin);
    if (status == KL_OK)
        model.hash[model.load_slot] = model.load_hash;
    return status;
}

static uint64_t twin_cycles(void)
{
    struct kl_info info;
    rig.build->info(twin, &info);
    return info.cycles;
}

static uint64_t clock_now(void)
{
    return twin_cycles() + model.load_cycles;
}

static void count_bad(int *stands, uint32_t *last, uint32_t value)
{
    if (!*stands || *last != value)
        model.n_bad++;
    *stands = 1;
    *last = value;
}

/* The kernel looks at the tail in every start. Returns 0: it stands wrong. */
static int look(void)
{
    const uint32_t tail = rig.reg[KL_REG_REQUEST_TAIL];
    if (tail - model.head > KL_QUEUE_DEPTH || tail - model.head < model.seen - model.head) {
        count_bad(&model.tail_is_bad, &model.bad_tail, tail);
        return 0;
    }
    model.tail_is_bad = 0;
    for (; model.seen != tail; model.seen++)
        model.arrived[model.seen % KL_QUEUE_DEPTH] = clock_now();
    return 1;
}

static int room(void)
{
    const uint32_t n_untaken = model.tail - rig.reg[KL_REG_RESULT_HEAD];
    if (n_untaken > KL_QUEUE_DEPTH) {
        count_bad(&model.head_is_bad, &model.bad_head, rig.reg[KL_REG_RESULT_HEAD]);
        return 0;
    }
    model.head_is_bad = 0;
    return n_untaken < KL_QUEUE_DEPTH;
}

/* What a request that has waited must be answered with; carried out on the twin. */
static struct kl_result answer_of(const struct kl_request *request, uint64_t waited)
{
    struct kl_request sooner = *request; /* with what is left of its budget */
    const uint32_t wait_cycles = waited > UINT32_MAX ? UINT32_MAX : (uint32_t)waited;
    if (request->budget_cycles)
        sooner.budget_cycles =
            request->budget_cycles > wait_cycles ? request->budget_cycles - wait_cycles : 1;
    struct kl_result result = kernel_rig_exec(rig.build, twin, &sooner);
    if (result.status == KL_OK) {
        result.wait_cycles = wait_cycles;
        result.check = kl_result_check(&result);
    } else {
        check(kernel_rig_refused(&result, request, result.status));
    }
    if (request->slot < KL_N_SLOT && model.hash[request->slot] == 0)
        check(result.status != KL_OK);
    else if (result.status == KL_OK)
        check(result.image_hash == model.hash[request->slot]);
    return result;
}

static void ask(uint32_t slot, uint32_t stream)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < model.n_asked; i++)
        if (model.asked[i].slot != slot || model.asked[i].stream != stream)
            model.asked[n++] = model.asked[i];
    if (n == KL_QUEUE_DEPTH)
        memmove(model.asked, model.asked + 1, --n * sizeof *model.asked);
    model.asked[n++] = (struct asked){slot, stream};
    model.n_asked = n;
}

/* The host's ring in memory. */
static struct kl_request ring[KL_QUEUE_DEPTH];

static int reads_ring(void)
{
    return (rig.reg[KL_REG_CONFIG] & KL_CONFIG_REQUEST_FROM_HOST) != 0;
}

/* One service round: runs it, and says what must come out. */
static void round_of(const void *image, int to_buffer, int has_ring)
{
    struct kl_result buffer[KL_QUEUE_DEPTH], expected_buffer[KL_QUEUE_DEPTH], expected;
    memset(buffer, 0xa5, sizeof buffer);
    memset(expected_buffer, 0xa5, sizeof expected_buffer);
    int answered = 0, prepared = 0;
    const int good = look(), has_room = room() && (has_ring || !reads_ring());
    const uint32_t at = model.tail % KL_QUEUE_DEPTH;
    if (good && has_room && model.seen != model.head) {
        struct kl_request request;
        const uint32_t entry = model.head % KL_QUEUE_DEPTH;
        if (reads_ring())
            request = ring[entry];
        else
            memcpy(&request, &rig.reg[KL_REG_REQUESTS + entry * (sizeof request / 4)], sizeof request);
        expected = answer_of(&request, clock_now() - model.arrived[entry]);
        if (expected.status == KL_OK && request.flags && !expected.flags)
            ask(request.slot, request.stream);
        answered = 1;
        model.head++;
        model.tail++;
        if (to_buffer && rig.reg[KL_REG_CONFIG] & KL_CONFIG_RESULT_TO_HOST)
            expected_buffer[at] = expected;
    } else if (good && model.n_asked) {
        const struct asked *newest = &model.asked[--model.n_asked];
        kernel_rig_op(rig.build, twin, KL_OP_PREPARE, newest->slot, newest->stream);
        prepared = 1;
    }
    if (rig.reg[KL_REG_LOAD_DOORBELL] != model.doorbell) {
        model.doorbell = rig.reg[KL_REG_LOAD_DOORBELL];
        uint32_t status = KL_E_IMAGE;
        if (model.loading || (image && model.loading_natively && rig.reg[KL_REG_LOAD_SLOT] < KL_N_SLOT))
            status = KL_E_BUSY;
        else if (image)
            status = rig.build->load_begin(twin, rig.reg[KL_REG_LOAD_SLOT], image,
                                           rig.reg[KL_REG_LOAD_SIZE_BYTES]);
        model.n_bad += status == KL_E_BUSY;
        if (status == KL_OK) {
            load_began(rig.reg[KL_REG_LOAD_SLOT], image);
            model.loading = 1;
            model.load_number = model.doorbell;
        } else if (status != KL_E_BUSY) {
            model.load_status = status;
            model.load_done = model.doorbell;
        }
    } else if (model.loading && image) {
        const uint32_t status = load_advances();
        model.load_cycles += KL_LOAD_BEAT;
        if (status != KL_E_BUSY) {
            model.loading = 0;
            model.load_status = status;
            model.load_done = model.load_number;
        }
    }

    rig.image = image;
    rig.host_request = has_ring ? ring : NULL;
    rig.host_result = to_buffer ? buffer : NULL;
    kernel_front_rig_round(&rig);
    if (answered) {
        const struct kl_result result = kernel_front_rig_answer(&rig, at);
        check(memcmp(&result, &expected, sizeof result) == 0);
    }
    check(memcmp(buffer, expected_buffer, sizeof buffer) == 0);
    check(rig.reg[KL_REG_REQUEST_HEAD] == model.head);
    check(rig.reg[KL_REG_RESULT_TAIL] == model.tail);
    check(rig.reg[KL_REG_BAD_DOORBELLS] == model.n_bad);
    check(rig.reg[KL_REG_LOAD_STATUS] == model.load_status);
    check(rig.reg[KL_REG_LOAD_DONE] == model.load_done);
    struct kl_info info, of_twin;
    memcpy(&info, &rig.reg[KL_REG_INFO], sizeof info);
    rig.build->info(twin, &of_twin);
    of_twin.cycles += model.load_cycles;
    /* What never changes is written anew in idle rounds, in case the host has written there. */
    const size_t from = answered || prepared ? offsetof(struct kl_info, image_hash) : 0;
    check(memcmp((char *)&info + from, (char *)&of_twin + from, sizeof info - from) == 0);
}

/* ---- what the host does ---- */

static struct kl_request request_of(struct input *input)
{
    const uint32_t kind = byte_of(input), place = byte_of(input), more = byte_of(input);
    struct kl_request request = {.abi_version = KL_ABI_VERSION,
                                 .op = (uint16_t)(kind % 8 < 5 ? KL_OP_STEP : kind % 8 - 4),
                                 .slot = place & 1,
                                 .flags = kind >> 3 & 1,
                                 .stream = place >> 1 & 3,
                                 .seq_no = word_of(input)};
    uint64_t seed = more;
    for (int k = 0; k < KL_N_IN_MAX; k++)
        request.x[k] = model_image_random_x(&seed);
    switch (kind >> 4) {
    case 0:
        request.budget_cycles = byte_of(input) << (place >> 6); /* around what steps take */
        break;
    case 1:
        request.budget_cycles = word_of(input);
        break;
    case 2: /* something of the head is any value */
        ((uint8_t *)&request)[more % 64] = (uint8_t)byte_of(input);
        break;
    case 3: /* something of x is any value */
        request.x[place >> 3 & 3] = (uint16_t)word_of(input);
        break;
    default:
        break;
    }
    return request;
}

/* Into the ring that CONFIG says; the other one has something else there. CONFIG may change before it is
 * taken, against the rules: then that is the request. */
static void post(struct input *input)
{
    const struct kl_request request = request_of(input);
    struct kl_request other = request;
    other.seq_no ^= 1;
    other.stream ^= 1;
    ring[rig.reg[KL_REG_REQUEST_TAIL] % KL_QUEUE_DEPTH] = reads_ring() ? request : other;
    kernel_front_rig_post(&rig, reads_ring() ? &other : &request);
}

static void ring_load(struct input *input)
{
    const uint32_t which = byte_of(input), slot = byte_of(input);
    rig.reg[KL_REG_LOAD_SLOT] = slot < 250 ? slot & 1 : slot;
    /* The right size, or any other that the buffer has. */
    rig.reg[KL_REG_LOAD_SIZE_BYTES] =
        which < 200 ? images[which % N_IMAGE].size_bytes : word_of(input) % (BUFFER_BYTES + 1);
    rig.reg[KL_REG_LOAD_DOORBELL]++;
}

/* Any word of the block but the size of a load, whose buffer must have it. */
static void scribble(struct input *input)
{
    uint32_t r = byte_of(input);
    if (r >= 128) /* the rings are most of the block */
        r = (r | byte_of(input) << 8) % KL_N_REG;
    const uint32_t how = byte_of(input), value = word_of(input);
    if (r == KL_REG_LOAD_SIZE_BYTES)
        return;
    rig.reg[r] = how & 1 ? value : how & 2 ? rig.reg[r] + (int8_t)value : rig.reg[r] ^ 1u << value % 32;
}

static void run_exec(struct input *input)
{
    struct kl_request request[3];
    struct kl_result result[3];
    const uint32_t n = byte_of(input) % 4;
    const struct kl_arguments arguments = {
        .command = KL_COMMAND_EXEC, .n_request = n, .request = request, .result = result};
    look();
    const uint64_t start = clock_now();
    for (uint32_t i = 0; i < n; i++)
        request[i] = request_of(input);
    rig.build->kernel(rig.unit, &arguments);
    for (uint32_t i = 0; i < n; i++) {
        const struct kl_result expected = answer_of(&request[i], clock_now() - start);
        check(memcmp(&result[i], &expected, sizeof expected) == 0);
    }
}

static void check_status(const struct kl_result *result, uint32_t status, uint32_t slot)
{
    struct kl_info info;
    rig.build->info(twin, &info);
    struct kl_result expected = {.abi_version = KL_ABI_VERSION,
                                 .status = (uint16_t)status,
                                 .slot = (uint16_t)slot,
                                 .image_hash = status == KL_OK ? info.image_hash[slot] : 0};
    expected.check = kl_result_check(&expected);
    check(memcmp(result, &expected, sizeof expected) == 0);
}

static void run_load(struct input *input)
{
    const uint32_t which = byte_of(input) % N_IMAGE, slot = byte_of(input) % 3;
    struct kl_result result;
    const struct kl_arguments arguments = {.command = KL_COMMAND_LOAD,
                                           .slot = slot,
                                           .image = images[which].bytes,
                                           .image_size_bytes = images[which].size_bytes,
                                           .result = &result};
    look();
    uint32_t status = rig.build->load_begin(twin, slot, images[which].bytes, images[which].size_bytes);
    if (status == KL_OK) {
        load_began(slot, images[which].bytes);
        do {
            status = load_advances();
            model.load_cycles += KL_LOAD_BEAT;
        } while (status == KL_E_BUSY);
    }
    rig.build->kernel(rig.unit, &arguments);
    check_status(&result, status, slot);
}

static struct kl_state state; /* the last one saved */

static void run_save(struct input *input)
{
    const struct kl_request request = request_of(input);
    struct kl_state of_twin = state;
    struct kl_result result;
    const struct kl_arguments arguments = {
        .command = KL_COMMAND_SAVE, .request = &request, .result = &result, .state = &state};
    look();
    rig.build->kernel(rig.unit, &arguments);
    check_status(&result, rig.build->save(twin, request.slot, request.stream, &of_twin), request.slot);
    check(memcmp(&state, &of_twin, sizeof state) == 0);
}

static void run_restore(struct input *input)
{
    const struct kl_request request = request_of(input);
    const uint32_t damage = word_of(input);
    struct kl_state damaged = state;
    struct kl_result result;
    if (damage & 1)
        ((uint8_t *)&damaged)[(damage >> 4) % sizeof damaged] ^= (uint8_t)(1 << (damage >> 1 & 7));
    const struct kl_arguments arguments = {
        .command = KL_COMMAND_RESTORE, .request = &request, .result = &result, .state = &damaged};
    look();
    rig.build->kernel(rig.unit, &arguments);
    check_status(&result, rig.build->restore(twin, request.slot, request.stream, &damaged), request.slot);
    check(!(damage & 1) || result.status != KL_OK);
}

static void run_info(void)
{
    struct kl_info info, expected;
    const struct kl_arguments arguments = {.command = KL_COMMAND_INFO,
                                           .result = (struct kl_result *)(void *)&info};
    look();
    rig.build->kernel(rig.unit, &arguments);
    rig.build->info(twin, &expected);
    expected.cycles += model.load_cycles;
    check(memcmp(&info, &expected, sizeof info) == 0);
}

static void run_unknown(struct input *input)
{
    const uint32_t command = word_of(input);
    struct kl_result result;
    const struct kl_arguments arguments = {.command = command, .slot = 1, .result = &result};
    if (command == KL_COMMAND_INFO)
        run_info();
    if (command <= KL_COMMAND_INFO)
        return;
    look();
    rig.build->kernel(rig.unit, &arguments);
    check_status(&result, KL_E_OP, 1);
}

/* load_begin and load_advance beside the register block. */
static void load_natively(struct input *input)
{
    const uint32_t which = byte_of(input) % N_IMAGE, slot = byte_of(input) % 3;
    const uint32_t status =
        rig.build->load_begin(rig.unit, slot, images[which].bytes, images[which].size_bytes);
    check(status == rig.build->load_begin(twin, slot, images[which].bytes, images[which].size_bytes));
    check(status != KL_OK || (!model.loading && !model.loading_natively));
    if (status == KL_OK) {
        load_began(slot, images[which].bytes);
        model.loading_natively = 1;
    }
}

static void advance_natively(struct input *input)
{
    for (uint32_t n = byte_of(input) * 4; n > 0; n--) {
        const uint32_t status = rig.build->load_advance(rig.unit);
        /* The twin has only this way, so it would go on with what the doorbell began. */
        check(status == (model.loading_natively ? load_advances() : (uint32_t)KL_E_EMPTY));
        model.loading_natively &= status == KL_E_BUSY;
    }
}

/* As after init and a load into each slot, at a fraction of their time: what no input of this target changes
 * is left as it is. */
static void freshen(struct kl_unit *unit, struct kl_unit *fresh)
{
    enum { N_WORD = 16 }; /* more than any of the images has */
    struct kl_core *core = &unit->core;
    struct kl_core *from = &fresh->core;
    unit->image = NULL;
    memcpy(core, from, offsetof(struct kl_core, weights));
    for (uint32_t i = 0; i < KL_N_SLOT * N_WORD * KL_MAC_ROWS; i++) {
        const uint32_t slot = i % KL_N_SLOT, word = i / KL_N_SLOT % N_WORD, row = i / KL_N_SLOT / N_WORD;
        memcpy(weights_row(&core->weights, slot, word, row), weights_row(&from->weights, slot, word, row),
               KL_MAC_COLS * sizeof(int16_t));
    }
    memcpy(core->weights.head, from->weights.head, sizeof core->weights.head);
    memcpy(core->bias, from->bias, offsetof(struct kl_core, h) - offsetof(struct kl_core, bias));
    memcpy(core->h, from->h, sizeof core->h);
    memcpy(core->c, from->c, sizeof core->c);
    memset(core->prepared, 0, sizeof core->prepared);
    front_init(&unit->front, core, unit->reg);
}

static void start(struct input *input)
{
    static struct kl_unit *fresh;
    if (!fresh) {
        set_up_images();
        rig = (struct kernel_front_rig){.build = &kl_build_small,
                                        .unit = kernel_rig_unit(&kl_build_small, 0, 1)};
        twin = kernel_rig_unit(&kl_build_small, 0, 1);
        fresh = kernel_rig_unit(&kl_build_small, 0, 1);
        check(rig.unit != NULL && twin != NULL && fresh != NULL);
        rig.reg = rig.build->registers(rig.unit);
        for (uint32_t slot = 0; slot < KL_N_SLOT; slot++)
            check(kernel_rig_load_bytes(rig.build, fresh, slot, images[slot].bytes,
                                        images[slot].size_bytes) == KL_OK);
    }
    /* The first byte's bits: models in the slots, and counters shortly before they wrap. */
    const uint32_t how = byte_of(input);
    freshen(rig.unit, fresh);
    freshen(twin, fresh);
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++)
        rig.unit->core.model[slot].loaded = twin->core.model[slot].loaded = how >> slot & 1;
    memset(&model, 0, sizeof model);
    memset(&state, 0, sizeof state);
    memset(ring, 0, sizeof ring);
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        if (how >> slot & 1)
            memcpy(&model.hash[slot], images[slot].bytes + KL_IMAGE_HASH_AT, sizeof model.hash[slot]);
    }
    const uint32_t at = 0u - (how >> 2);
    struct front *front = &rig.unit->front;
    front->request_head = front->seen_tail = front->result_tail = front->bad_doorbells = at;
    front->load_doorbell = at;
    rig.reg[KL_REG_REQUEST_TAIL] = rig.reg[KL_REG_RESULT_HEAD] = rig.reg[KL_REG_LOAD_DOORBELL] = at;
    model.head = model.seen = model.tail = model.n_bad = model.doorbell = at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {.at = data, .end = data + size};
    const uint8_t *image = NULL; /* of the load doorbells: the same while a load is under way */
    start(&input);
    while (input.at < input.end) {
        const uint32_t what = byte_of(&input);
        if (!model.loading)
            image = images[what % N_IMAGE].bytes;
        switch (what >> 4) {
        case 0:
            scribble(&input);
            break;
        case 1:
            ring_load(&input);
            break;
        case 2:
            run_exec(&input);
            break;
        case 3:
            rig.reg[KL_REG_RESULT_HEAD]++; /* an answer is taken, or was not there */
            break;
        case 4:
            rig.reg[KL_REG_RESULT_HEAD] = model.tail;
            break;
        case 5:
            rig.reg[KL_REG_REQUEST_TAIL] = model.seen; /* a wrong tail is mended */
            if (what & 4)
                rig.reg[KL_REG_CONFIG] ^= what & 3; /* the two rings in memory */
            break;
        case 6:
            run_save(&input);
            break;
        case 7:
            run_restore(&input);
            break;
        case 8:
            (what & 1 ? run_load : run_unknown)(&input);
            break;
        case 9:
            load_natively(&input);
            break;
        case 10:
            advance_natively(&input);
            break;
        case 11:
            round_of(NULL, what & 1, (what & 2) == 0);
            break;
        case 12: /* long enough for a load */
            for (uint32_t n = byte_of(&input) * 2; n > 0; n--)
                round_of(image, what & 1, (what & 2) == 0);
            break;
        case 13:
            round_of(image, what & 1, (what & 2) == 0);
            break;
        default:
            post(&input);
            break;
        }
    }
    return 0;
}
