#include "device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "glue.h"

static struct session sessions[DEVICE_SESSIONS_MAX];
static struct device devices[CONTROL_DEVICES_MAX];

/* The environment's, once. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    uint32_t n_device; /* 0: the environment makes no sense, which was said */
    enum engine_mode mode;
    struct latency latency;
    struct fault_list faults;
    struct fault_control *control;
    int control_fd;
} settings;

static uint32_t parse_count(const char *text)
{
    if (!text || !*text)
        return 1;
    char *end;
    const unsigned long n = strtoul(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && n >= 1 && n <= CONTROL_DEVICES_MAX ? (uint32_t)n : 0;
}

static int read_environment(char error[FAULT_ERROR_CHARS])
{
    const char *fault = getenv("KL_SIM_FAULT"), *control = getenv("KL_SIM_CONTROL");
    const uint32_t n = parse_count(getenv("KL_SIM_DEVICES"));
    if (n == 0) {
        snprintf(error, FAULT_ERROR_CHARS, "KL_SIM_DEVICES is a number from 1 to %d", CONTROL_DEVICES_MAX);
        return -1;
    }
    if (engine_mode_parse(getenv("KL_SIM_EXEC"), &settings.mode) != 0) {
        snprintf(error, FAULT_ERROR_CHARS, "KL_SIM_EXEC is inline, thread or child");
        return -1;
    }
    if (latency_parse(getenv("KL_SIM_LATENCY"), &settings.latency, error) != 0)
        return -1;
    if (fault && *fault && fault_parse(fault, &settings.faults, error) != 0)
        return -1;
    settings.control = fault_control_open(control && *control ? control : NULL, &settings.control_fd, error);
    if (!settings.control)
        return -1;
    settings.n_device = n;
    return 0;
}

static void start_once(void)
{
    char error[FAULT_ERROR_CHARS] = "";
    if (read_environment(error) != 0)
        fprintf(stderr, "killline-sim: %s\n", error);
    for (uint32_t d = 0; d < CONTROL_DEVICES_MAX; d++) {
        struct device *device = &devices[d];
        device->index = d;
        device->kernel_fd = device->memory_fd = device->card_fd = -1;
        device->engine.mode = settings.mode;
        pthread_mutex_init(&device->life, NULL);
        pthread_mutex_init(&device->lock, NULL);
        for (uint32_t u = 0; u < XCLBIN_UNITS_MAX; u++)
            pthread_mutex_init(&device->engine.locks[u], NULL);
    }
}

uint32_t device_count(void)
{
    pthread_once(&once, start_once);
    return settings.n_device;
}

int device_named(const char *name)
{
    unsigned domain = 0, bus = 0, slot, function = 0;
    int end = 0;
    if (strchr(name, ':')) {
        if (sscanf(name, "%4x:%2x:%2x.%1u%n", &domain, &bus, &slot, &function, &end) != 4 || name[end])
            return -1;
    } else if (sscanf(name, "%4u%n", &slot, &end) != 1 || name[end]) {
        return -1;
    }
    return domain == 0 && bus == 0 && function == 0 && slot < device_count() ? (int)slot : -1;
}

struct control_device *device_counters(const struct device *device)
{
    return &settings.control->devices[device->index];
}

int device_control_fd(void)
{
    return settings.control_fd;
}

/* ---- faults ---- */

static int is_at_once(const struct fault_list *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->list[i].after == 0)
            return 1;
    }
    return 0;
}

struct news {
    struct device *device;
    int is_at_once;
};

static void apply(void *context, int is_clear, const char *spec)
{
    struct news *news = (struct news *)context;
    struct fault_list list = {.is_clear = is_clear};
    char error[FAULT_ERROR_CHARS];
    if (*spec && fault_parse(spec, &list, error) != 0)
        fprintf(stderr, "killline-sim: control file: %s\n", error);
    else if (fault_table_add(&news->device->card->faults, &list, news->device->index) != 0)
        fprintf(stderr, "killline-sim: device %u: no room for more faults: reset the device\n",
                news->device->index);
    news->is_at_once |= is_at_once(&list);
}

static void look_slowly(struct device *device)
{
    struct news news = {device, 0};
    pthread_mutex_lock(&device->lock);
    fault_control_read(settings.control, &device->reader, apply, &news);
    atomic_store_explicit(&device->reader_generation, device->reader.generation, memory_order_release);
    pthread_mutex_unlock(&device->lock);
    for (uint32_t u = 0; news.is_at_once && device->is_loaded && u < device->card->n_unit; u++)
        engine_ring(device, u);
}

void device_look(struct device *device)
{
    if (atomic_load_explicit(&settings.control->generation, memory_order_acquire) !=
        atomic_load_explicit(&device->reader_generation, memory_order_relaxed))
        look_slowly(device);
}

int device_fault(struct device *device, enum fault_event event, enum fault_kind kind, uint32_t unit)
{
    struct fault_fired fired;
    device_look(device);
    fault_at(&device->card->faults, event, unit, &fired);
    if (!fired.kinds)
        return 0;
    atomic_fetch_add_explicit(&device_counters(device)->injected[kind], 1, memory_order_relaxed);
    return 1;
}

int device_lost(struct device *device)
{
    if (atomic_exchange_explicit(&device->loss_seen, 1, memory_order_relaxed))
        return -EIO;
    atomic_fetch_add_explicit(&device_counters(device)->lost, 1, memory_order_relaxed);
    queue_fail_all(device);
    return 0;
}

/* ---- cards ---- */

/* The card's shared words, made at the first opening and kept from then on. */
static int make_card(struct device *device)
{
    if (device->card)
        return 0;
    device->card_fd = memfd_create("killline-sim-card", MFD_CLOEXEC);
    if (device->card_fd < 0 || ftruncate(device->card_fd, sizeof(struct card)) != 0)
        return -errno;
    void *at = mmap(NULL, sizeof(struct card), PROT_READ | PROT_WRITE, MAP_SHARED, device->card_fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    struct card *card = (struct card *)at;
    card->magic = CARD_MAGIC;
    card->size_bytes = sizeof *card;
    card->device = device->index;
    card->is_child = settings.mode == ENGINE_CHILD;
    card->latency = settings.latency;
    device->card = card;
    device->reader.clears = atomic_load_explicit(&settings.control->clears, memory_order_relaxed);
    return fault_table_add(&card->faults, &settings.faults, device->index);
}

/* No unit of it is used by anybody. */
static int is_idle(const struct device *device)
{
    for (uint32_t u = 0; u < XCLBIN_UNITS_MAX; u++) {
        if (device->n_shared[u] || device->n_exclusive[u])
            return 0;
    }
    return 1;
}

static void unload(struct device *device)
{
    engine_stop(device);
    queue_fail_all(device);
    device->is_loaded = 0;
    memory_free(device);
    if (device->kernel_fd >= 0)
        close(device->kernel_fd);
    device->kernel_fd = -1;
}

/* Units anew. */
static int restart(struct device *device)
{
    engine_stop(device);
    queue_fail_all(device);
    atomic_store_explicit(&device->loss_seen, 0, memory_order_relaxed);
    for (uint32_t u = 0; u < XCLBIN_UNITS_MAX; u++)
        atomic_store_explicit(&device->done_seen[u], 0, memory_order_relaxed);
    const int rc = engine_start(device);
    if (rc != 0)
        unload(device);
    else
        atomic_fetch_add_explicit(&device_counters(device)->resets, 1, memory_order_relaxed);
    return rc;
}

/* ---- sessions ---- */

struct session *device_session(void *handle)
{
    const size_t at = (size_t)((uintptr_t)handle - (uintptr_t)sessions);
    if (at >= sizeof sessions || at % sizeof *sessions != 0)
        return NULL;
    struct session *session = &sessions[at / sizeof *sessions];
    return atomic_load_explicit(&session->is_open, memory_order_acquire) ? session : NULL;
}

static pthread_mutex_t sessions_lock = PTHREAD_MUTEX_INITIALIZER;

static struct session *new_session(struct device *device)
{
    struct session *session = NULL;
    pthread_mutex_lock(&sessions_lock);
    for (uint32_t i = 0; i < DEVICE_SESSIONS_MAX && !session; i++) {
        if (!sessions[i].device)
            session = &sessions[i];
    }
    if (session) {
        session->device = device;
        atomic_store_explicit(&session->pending, 0, memory_order_relaxed);
        atomic_store_explicit(&session->is_open, 1, memory_order_release);
    }
    pthread_mutex_unlock(&sessions_lock);
    return session;
}

static void drop_session(struct session *session)
{
    pthread_mutex_lock(&sessions_lock);
    session->device = NULL;
    session->core = NULL;
    pthread_mutex_unlock(&sessions_lock);
}

static struct session *open_on(struct device *device)
{
    const int rc = make_card(device);
    if (rc != 0) {
        fprintf(stderr, "killline-sim: device %u: %s\n", device->index, strerror(-rc));
        errno = -rc;
        return NULL;
    }
    struct session *session = new_session(device);
    if (!session) {
        fprintf(stderr, "killline-sim: more than %d devices open\n", DEVICE_SESSIONS_MAX);
        errno = EMFILE;
    }
    return session;
}

struct session *device_open(uint32_t index)
{
    if (index >= device_count()) {
        if (settings.n_device) /* else: it was said why there is none */
            fprintf(stderr, "killline-sim: there is no device %u: KL_SIM_DEVICES makes 0 to %u\n", index,
                    settings.n_device - 1);
        errno = ENODEV;
        return NULL;
    }
    struct device *device = &devices[index];
    pthread_mutex_lock(&device->life);
    struct session *session = open_on(device);
    device->n_session += session != NULL;
    pthread_mutex_unlock(&device->life);
    if (!session)
        return NULL;
    /* XRT looks at the device meanwhile. */
    session->core = glue_register(session, index);
    if (!session->core) {
        device_close(session);
        errno = EIO;
        return NULL;
    }
    return session;
}

static void close_units(struct session *session)
{
    struct device *device = session->device;
    for (uint32_t u = 0; u < XCLBIN_UNITS_MAX; u++) {
        device->n_shared[u] -= atomic_exchange_explicit(&session->shared[u], 0, memory_order_relaxed);
        device->n_exclusive[u] -= atomic_exchange_explicit(&session->exclusive[u], 0, memory_order_relaxed);
    }
}

void device_close(struct session *session)
{
    struct device *device = session->device;
    void *core = session->core;
    pthread_mutex_lock(&device->life);
    atomic_store_explicit(&session->is_open, 0, memory_order_release);
    pthread_mutex_lock(&device->lock);
    queue_forget(device, session, 0, 1);
    close_units(session);
    pthread_mutex_unlock(&device->lock);
    memory_release_all(session);
    if (--device->n_session == 0)
        unload(device);
    queue_tell(session);
    pthread_mutex_unlock(&device->life);
    glue_release(core);
    drop_session(session);
}

/* ---- units ---- */

int device_open_unit(struct session *session, const xuid_t uuid, uint32_t unit, int is_shared)
{
    struct device *device = session->device;
    int rc = -EINVAL;
    pthread_mutex_lock(&device->lock);
    if (!device->is_loaded || unit >= device->card->n_unit ||
        memcmp(uuid, device->uuid, sizeof device->uuid) != 0)
        goto end;
    rc = -EBUSY;
    if (device->n_exclusive[unit] || (!is_shared && device->n_shared[unit]))
        goto end;
    rc = -EMFILE;
    if (is_shared && atomic_load_explicit(&session->shared[unit], memory_order_relaxed) == UINT8_MAX)
        goto end;
    rc = 0;
    if (is_shared) {
        device->n_shared[unit]++;
        atomic_fetch_add_explicit(&session->shared[unit], 1, memory_order_relaxed);
    } else {
        device->n_exclusive[unit]++;
        atomic_store_explicit(&session->exclusive[unit], 1, memory_order_relaxed);
    }
end:
    pthread_mutex_unlock(&device->lock);
    return rc;
}

int device_close_unit(struct session *session, uint32_t unit)
{
    struct device *device = session->device;
    int rc = 0;
    pthread_mutex_lock(&device->lock);
    if (unit >= XCLBIN_UNITS_MAX) {
        rc = -EINVAL;
    } else if (atomic_load_explicit(&session->exclusive[unit], memory_order_relaxed)) {
        device->n_exclusive[unit]--;
        atomic_store_explicit(&session->exclusive[unit], 0, memory_order_relaxed);
    } else if (atomic_load_explicit(&session->shared[unit], memory_order_relaxed)) {
        device->n_shared[unit]--;
        atomic_fetch_sub_explicit(&session->shared[unit], 1, memory_order_relaxed);
    } else {
        rc = -EINVAL;
    }
    pthread_mutex_unlock(&device->lock);
    return rc;
}

/* ---- the xclbin ---- */

/* The kernel's library out of the BITSTREAM section, into a file descriptor. xclbin_parse has checked both.
 */
static int copy_kernel(struct device *device, const struct axlf *axlf)
{
    const struct axlf_section_header *section = NULL;
    for (uint32_t i = 0; i < axlf->m_header.m_numSections; i++) {
        if (axlf->m_sections[i].m_sectionKind == BITSTREAM)
            section = &axlf->m_sections[i];
    }
    const uint8_t *at = section ? (const uint8_t *)axlf + section->m_sectionOffset : NULL;
    struct xclbin_library library;
    if (!at || section->m_sectionSize < sizeof library)
        return -EINVAL;
    memcpy(&library, at, sizeof library);
    if (library.size_bytes > section->m_sectionSize - sizeof library ||
        library.symbol[sizeof library.symbol - 1])
        return -EINVAL;
    memcpy(device->card->build, device->xclbin.build, sizeof device->card->build);
    memcpy(device->card->symbol, library.symbol, sizeof library.symbol);
    device->kernel_fd = memfd_create("killline-sim-kernel", MFD_CLOEXEC);
    if (device->kernel_fd < 0)
        return -errno;
    for (uint64_t done = 0; done < library.size_bytes;) {
        const ssize_t n = write(device->kernel_fd, at + sizeof library + done, library.size_bytes - done);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        done += (uint64_t)n;
    }
    return 0;
}

/* XRT counts units by address. */
static void order_units(struct device *device)
{
    struct card *card = device->card;
    const struct xclbin *xclbin = &device->xclbin;
    card->n_unit = xclbin->n_unit;
    for (uint32_t i = 0; i < xclbin->n_unit; i++) {
        uint32_t at = i;
        for (; at > 0 && xclbin->units[device->order[at - 1]].base > xclbin->units[i].base; at--)
            device->order[at] = device->order[at - 1];
        device->order[at] = i;
    }
    for (uint32_t u = 0; u < card->n_unit; u++)
        memcpy(card->units[u].bank, xclbin->units[device->order[u]].bank, sizeof card->units[u].bank);
}

static int load_new(struct device *device, const struct axlf *axlf, const struct xclbin *xclbin)
{
    unload(device);
    device->xclbin = *xclbin;
    int rc = copy_kernel(device, axlf);
    if (rc == 0)
        rc = memory_make(device);
    if (rc == 0) {
        order_units(device);
        memcpy(device->uuid, axlf->m_header.uuid, sizeof device->uuid);
        device->is_loaded = 1;
        rc = restart(device);
    }
    if (rc != 0)
        unload(device);
    return rc;
}

static int has_buffers(struct device *device)
{
    int n = 0;
    pthread_mutex_lock(&device->lock);
    for (uint32_t i = 0; i < CARD_BUFFERS_MAX; i++)
        n += device->buffers[i].session && device->buffers[i].address;
    pthread_mutex_unlock(&device->lock);
    return n != 0;
}

static int load(struct device *device, const struct axlf *axlf)
{
    struct xclbin *xclbin = (struct xclbin *)malloc(sizeof *xclbin);
    char error[XCLBIN_ERROR_CHARS] = "";
    int rc = -ENOMEM;
    if (!xclbin)
        return rc;
    const int is_same =
        device->is_loaded && memcmp(device->uuid, axlf->m_header.uuid, sizeof device->uuid) == 0;
    const int is_lost = device->is_loaded && atomic_load_explicit(&device->card->lost, memory_order_acquire);
    rc = -EINVAL;
    if (xclbin_parse(axlf, axlf->m_header.m_length, "xclbin", xclbin, error) != 0) {
        fprintf(stderr, "killline-sim: %s\n", error);
    } else if (!xclbin->build[0] || xclbin->abi_version != KL_ABI_VERSION) {
        fprintf(stderr, "killline-sim: the xclbin %s: make one with `killline sim-device xclbin`\n",
                xclbin->build[0] ? "is of another version of Killline"
                                 : "is for a card, not for the software device");
    } else if (is_same) {
        rc = is_idle(device) || is_lost ? restart(device) : 0;
    } else if (!is_idle(device) || has_buffers(device)) {
        fprintf(stderr,
                "killline-sim: device %u: another xclbin is loaded, and its units or buffers are in use\n",
                device->index);
        rc = -EBUSY;
    } else {
        rc = load_new(device, axlf, xclbin);
    }
    free(xclbin);
    return rc;
}

int device_load(struct session *session, const struct axlf *axlf)
{
    struct device *device = session->device;
    if (device_fault(device, FAULT_LOAD_XCLBIN, FAULT_REFUSE_LOAD, 0)) {
        fprintf(stderr, "killline-sim: device %u: xclbin refused (fault)\n", device->index);
        return -EIO;
    }
    pthread_mutex_lock(&device->life);
    const int rc = load(device, axlf);
    pthread_mutex_unlock(&device->life);
    if (rc == 0 && glue_axlf(session->core, axlf) != 0)
        return -EINVAL;
    return rc;
}

int device_reset(struct session *session)
{
    struct device *device = session->device;
    pthread_mutex_lock(&device->life);
    const int rc = !device->is_loaded ? 0 : is_idle(device) ? restart(device) : -EBUSY;
    pthread_mutex_unlock(&device->life);
    return rc;
}
