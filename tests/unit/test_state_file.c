/* The state file: back and forth in every rung, everything that is no state file, and writes that are killed
 * or find the disk full. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/state_file.h"

static char dir[] = "/tmp/test_state_file.XXXXXX";
static char path[64], fresh[64];
static char error[STATE_FILE_ERROR_CHARS];

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/state.json", dir);
    snprintf(fresh, sizeof(fresh), "%s/state.json.new", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir); /* fails if a test left anything else */
}

static int remove_file(void **state)
{
    (void)state;
    unlink(path);
    error[0] = '\0';
    return 0;
}

/* Compared as a whole: no padding may differ, so it is zeroed. */
static struct state_file *full(struct state_file *s)
{
    memset(s, 0, sizeof(*s));
    s->rung = GOVERNOR_HALTED;
    s->cause = GOVERNOR_BY_DEVICE_THROTTLE;
    s->latched = 1;
    s->since_utc_ns = 1796090523123456789;
    memset(s->by, 'b', sizeof(s->by) - 1);
    memset(s->reason, '"', sizeof(s->reason) - 1);
    s->n_device_fault = s->n_halt_fault = GOVERNOR_N_FAULT;
    for (uint64_t i = 0; i < GOVERNOR_N_FAULT; i++) {
        s->device_fault_utc_ns[i] = i;
        s->halt_fault_utc_ns[i] = INT64_MAX;
    }
    return s;
}

static void back_and_forth(void **state)
{
    (void)state;
    struct state_file out, in;
    for (unsigned rung = 0; rung < GOVERNOR_N_RUNG; rung++)
        for (unsigned cause = 0; cause < GOVERNOR_N_CAUSE; cause++)
            for (int latched = 0; latched <= (rung == GOVERNOR_HALTED); latched++) {
                memset(&out, 0, sizeof(out));
                out.rung = rung;
                out.cause = cause;
                out.latched = latched;
                out.n_halt_fault = 1;
                out.halt_fault_utc_ns[0] = rung * 100 + cause;
                assert_int_equal(state_file_write(path, &out, error), 0);
                memset(&in, 0, sizeof(in));
                assert_int_equal(state_file_read(path, &in, error), 0);
                assert_memory_equal(&in, &out, sizeof(in));
            }
    assert_int_equal(state_file_write(path, full(&out), error), 0);
    memset(&in, 0, sizeof(in));
    assert_int_equal(state_file_read(path, &in, error), 0);
    assert_memory_equal(&in, &out, sizeof(in));
    assert_int_equal(access(fresh, F_OK), -1);
}

static void none_yet(void **state)
{
    (void)state;
    struct state_file s;
    assert_int_equal(state_file_read(path, &s, error), 0);
    assert_int_equal(s.rung, GOVERNOR_ACTIVE);
    assert_int_equal(s.cause, GOVERNOR_BY_START);
    assert_int_equal(s.latched, 0);
    assert_string_equal(error, "");
}

/* Mode 0600 whatever the umask. */
static void mode(void **state)
{
    (void)state;
    static const mode_t masks[] = {0, 022, 0777};
    struct state_file s;
    struct stat st;
    for (size_t i = 0; i < 3; i++) {
        const mode_t old = umask(masks[i]);
        const int bad = state_file_write(path, full(&s), error);
        umask(old);
        assert_int_equal(bad, 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
    }
}

static void expect_doubt(const char *why)
{
    struct state_file s;
    memset(&s, 0xff, sizeof(s));
    assert_int_equal(state_file_read(path, &s, error), -1);
    assert_int_equal(s.rung, GOVERNOR_HALTED);
    assert_int_equal(s.cause, GOVERNOR_BY_STATE_FILE);
    assert_int_equal(s.latched, 1);
    assert_int_equal(s.n_device_fault + s.n_halt_fault, 0);
    if (!strstr(error, path) || !strstr(error, why) || !strstr(error, "killline resume --by"))
        fail_msg("no '%s', '%s' or remedy in: %s", path, why, error);
}

static void put(const char *text, size_t size_bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, size_bytes, f), size_bytes);
    assert_int_equal(fclose(f), 0);
}

#define HEAD   "{\"killline_state\":1,"
#define RUNG   "\"rung\":\"halted\",\"cause\":\"operator\",\"latched\":true,"
#define REST   "\"since_utc_ns\":5,\"by\":\"b\",\"reason\":\"r\","
#define FAULTS "\"device_faults_utc_ns\":[1,2],\"halt_faults_utc_ns\":[]}"

static void other_content(void **state)
{
    (void)state;
    struct state_file s;
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {"", "is empty"},
        {"\n", "expected near"},
        {"null", "expected near"},
        {"{}", "no state file of killline"},
        {"[1,2]", "no state file of killline"},
        {"{\"killline_state\":\"1\"}", "no state file of killline"},
        {"{\"killline_state\":0}", "no state file of killline"},
        {"{\"killline_state\":2,\"anything\":1}", "of version 2, this killline reads 1"},
        {HEAD RUNG REST FAULTS "x", ":1:"},
        {HEAD "\"rung\":\"halted\"," RUNG REST FAULTS, "duplicate"},
        {HEAD RUNG REST "\"more\":1," FAULTS, "has a key that no state file has"},
        {HEAD RUNG FAULTS, "'since_utc_ns' is missing"},
        {HEAD REST FAULTS, "'rung' is missing"},
        {HEAD RUNG REST "\"device_faults_utc_ns\":[]}", "'halt_faults_utc_ns' is missing"},
        {HEAD "\"rung\":\"HALTED\",\"cause\":\"operator\",\"latched\":true," REST FAULTS, "'rung'"},
        {HEAD "\"rung\":3,\"cause\":\"operator\",\"latched\":true," REST FAULTS, "'rung'"},
        {HEAD "\"rung\":\"halted\",\"cause\":\"\",\"latched\":true," REST FAULTS, "'cause'"},
        {HEAD "\"rung\":\"halted\",\"cause\":\"operator\",\"latched\":1," REST FAULTS, "'latched'"},
        {HEAD "\"rung\":\"active\",\"cause\":\"operator\",\"latched\":true," REST FAULTS, "'latched'"},
        {HEAD RUNG "\"since_utc_ns\":-1,\"by\":\"b\",\"reason\":\"r\"," FAULTS, "'since_utc_ns'"},
        {HEAD RUNG "\"since_utc_ns\":5.0,\"by\":\"b\",\"reason\":\"r\"," FAULTS, "'since_utc_ns'"},
        {HEAD RUNG "\"since_utc_ns\":99999999999999999999,\"by\":\"b\",\"reason\":\"r\"," FAULTS, ":1:"},
        {HEAD RUNG "\"since_utc_ns\":5,\"by\":7,\"reason\":\"r\"," FAULTS, "'by'"},
        {HEAD RUNG "\"since_utc_ns\":5,\"by\":\"a\\nb\",\"reason\":\"r\"," FAULTS, "'by'"},
        {HEAD RUNG "\"since_utc_ns\":5,\"by\":\"012345678901234567890123456789012345678901234567\","
                   "\"reason\":\"r\"," FAULTS,
         "'by'"},
        {HEAD RUNG "\"since_utc_ns\":5,\"by\":\"b\",\"reason\":\"\\u00e9\"," FAULTS, "'reason'"},
        {HEAD RUNG "\"since_utc_ns\":5,\"by\":\"b\",\"reason\":\"a\\u0000b\"," FAULTS, ":1:"},
        {HEAD RUNG REST "\"device_faults_utc_ns\":[2,1],\"halt_faults_utc_ns\":[]}",
         "'device_faults_utc_ns'"},
        {HEAD RUNG REST "\"device_faults_utc_ns\":[],\"halt_faults_utc_ns\":[true]}", "'halt_faults_utc_ns'"},
        {HEAD RUNG REST "\"device_faults_utc_ns\":{},\"halt_faults_utc_ns\":[]}", "'device_faults_utc_ns'"},
    };
    put(HEAD RUNG REST FAULTS, strlen(HEAD RUNG REST FAULTS)); /* which is one */
    assert_int_equal(state_file_read(path, &s, error), 0);
    assert_string_equal(s.reason, "r");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        put(wrong[i].text, strlen(wrong[i].text));
        expect_doubt(wrong[i].why);
    }
    char many[4096] = HEAD RUNG REST "\"halt_faults_utc_ns\":[],\"device_faults_utc_ns\":[0";
    for (int i = 0; i < GOVERNOR_N_FAULT; i++)
        strcat(many, ",1");
    strcat(many, "]}");
    put(many, strlen(many));
    expect_doubt("'device_faults_utc_ns'");
}

/* Cut short anywhere: at every byte. */
static void truncated(void **state)
{
    (void)state;
    struct state_file s;
    assert_int_equal(state_file_write(path, full(&s), error), 0);
    char whole[16384];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(whole, 1, sizeof(whole), f);
    fclose(f);
    assert_in_range(n, 1000, 8000);
    for (size_t i = 0; i < n - 2; i++) /* without its "}\n" at least */
        if (state_file_parse(path, whole, i, &s, error) != -1 || s.rung != GOVERNOR_HALTED ||
            s.cause != GOVERNOR_BY_STATE_FILE)
            fail_msg("cut at byte %zu it is still read", i);
}

static void huge(void **state)
{
    (void)state;
    assert_int_equal(truncate(path, 0) && errno != ENOENT, 0);
    put(HEAD, strlen(HEAD));
    assert_int_equal(truncate(path, (off_t)1 << 40), 0); /* sparse */
    expect_doubt("is larger than any state file");
    char deep[16000];
    memset(deep, '[', sizeof(deep));
    put(deep, sizeof(deep));
    expect_doubt(":1:");
}

static void no_regular_file(void **state)
{
    (void)state;
    struct state_file s;
    char other[64];
    snprintf(other, sizeof(other), "%s/other", dir);
    assert_int_equal(state_file_write(other, full(&s), error), 0);
    assert_int_equal(symlink(other, path), 0);
    expect_doubt("is a symbolic link");
    memset(&s, 0, sizeof(s));
    assert_int_equal(state_file_write(path, &s, error), 0); /* the link is replaced, not what it leads to */
    assert_int_equal(state_file_read(other, &s, error), 0);
    assert_int_equal(s.cause, GOVERNOR_BY_DEVICE_THROTTLE);
    unlink(other);
    unlink(path);

    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(10); /* nobody writes into it */
    expect_doubt("is not a regular file");
    alarm(0);
    assert_int_equal(state_file_write(path, full(&s), error), 0);
    assert_int_equal(state_file_read(path, &s, error), 0);
    unlink(path);

    assert_int_equal(mkdir(path, 0700), 0);
    expect_doubt("is not a regular file");
    assert_int_equal(state_file_write(path, full(&s), error), -1);
    assert_non_null(strstr(error, "remove that folder"));
    assert_int_equal(access(fresh, F_OK), -1);
    rmdir(path);
}

static void no_folder(void **state)
{
    (void)state;
    struct state_file s;
    assert_int_equal(state_file_write("/nowhere/at/all/state.json", full(&s), error), -1);
    assert_non_null(strstr(error, "/nowhere/at/all/state.json: could not be written: No such file"));
    char longer[5000];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_int_equal(state_file_write(longer, full(&s), error), -1);
    assert_non_null(strstr(error, "path too long"));
}

/* The disk is full after any number of bytes: refused, the old file is as it was, nothing beside it. */
static void disk_full(void **state)
{
    (void)state;
    struct state_file s, old, in;
    memset(&old, 0, sizeof(old));
    old.since_utc_ns = 42;
    assert_int_equal(state_file_write(path, &old, error), 0);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t room = 0; room < 2000; room += 333) {
        const struct rlimit limit = {room, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        const int bad = state_file_write(path, full(&s), error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(bad, -1);
        assert_non_null(strstr(error, "could not be written: File too large"));
        memset(&in, 0, sizeof(in));
        assert_int_equal(state_file_read(path, &in, error), 0);
        assert_memory_equal(&in, &old, sizeof(in));
        assert_int_equal(access(fresh, F_OK), -1);
    }
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(state_file_write(path, full(&s), error), 0);
}

/* A writer that is killed at any moment: the file is one of those that it wrote, whole, and not older than
 * the last whose write had returned; and the next writer is not in the way of what the dead one left. */
static void killed(void **state)
{
    (void)state;
    struct state_file s;
    _Atomic uint64_t *returned =
        mmap(NULL, sizeof(*returned), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(returned, MAP_FAILED);
    *returned = 0;
    srand(1);
    for (int i = 0; i < 100; i++) {
        const uint64_t before = *returned;
        const pid_t child = fork();
        if (!child) {
            for (uint64_t n = before + 1;; n++) {
                full(&s)->since_utc_ns = n;
                if (state_file_write(path, &s, error))
                    _exit(1);
                *returned = n;
            }
        }
        assert_true(child > 0);
        while (*returned < before + 2) { /* it writes */
            if (waitpid(child, NULL, WNOHANG))
                fail_msg("round %d: the writer could not write", i);
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        }
        nanosleep(&(struct timespec){.tv_nsec = rand() % 2000000}, NULL);
        assert_int_equal(kill(child, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        if (state_file_read(path, &s, error))
            fail_msg("round %d: %s", i, error);
        assert_in_range(s.since_utc_ns, *returned, *returned + 1);
    }
    munmap(returned, sizeof(*returned));
    assert_int_equal(state_file_write(path, full(&s), error), 0);
    assert_int_equal(access(fresh, F_OK), -1);
}

int main(void)
{
#define CLEAN(f) cmocka_unit_test_setup_teardown(f, remove_file, remove_file)
    const struct CMUnitTest tests[] = {
        CLEAN(back_and_forth), CLEAN(none_yet), CLEAN(mode),      CLEAN(other_content),
        CLEAN(truncated),      CLEAN(huge),     CLEAN(no_folder), CLEAN(no_regular_file),
        CLEAN(disk_full),      CLEAN(killed),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
