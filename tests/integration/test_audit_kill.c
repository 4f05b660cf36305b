/* A process that writes an audit log is killed, or runs into the file size limit: what was written before
 * verifies. With real files, real system calls and real signals. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "audit_log.h"

static char dir[] = "/tmp/test_audit_kill_XXXXXX", path[64], error[AUDIT_ERROR_CHARS];

/* Writes for ever, as fast as the ring takes it. */
static void write_for_ever(void)
{
    struct audit_config config = {
        .path = path, .n_ring = 256, .on_full = AUDIT_FULL_WAIT, .header = log_header(AUDIT_CLOCK_REAL)};
    struct audit_log *audit = audit_open(&config, error);
    if (!audit)
        _exit(1);
    uint64_t seed = 1;
    for (uint64_t i = 0;; i++) {
        audit_reserve(audit)->prediction = log_prediction(&seed, i);
        audit_commit(audit);
    }
}

static void test_killed_writer(void **state)
{
    (void)state;
    static const long wait_ms[] = {3, 8, 20, 50, 90};
    uint64_t n_all = 0;
    for (size_t k = 0; k < sizeof(wait_ms) / sizeof(wait_ms[0]); k++) {
        unlink(path);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            write_for_ever();
        struct timespec wait = {0, wait_ms[k] * 1000000};
        struct stat st;
        while (stat(path, &st) != 0 || st.st_size < (off_t)sizeof(struct audit_header))
            usleep(200);
        nanosleep(&wait, NULL);
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

        assert_int_equal(stat(path, &st), 0);
        struct audit_reader *reader = audit_reader_open(path, error);
        if (!reader)
            fail_msg("%s", error);
        const struct audit_record *r;
        uint64_t seed = 1, n = 0;
        int result;
        while ((result = audit_reader_next(reader, &r, error)) == 1) {
            struct audit_prediction p = log_prediction(&seed, n);
            p.record_no = n++;
            assert_memory_equal(&r->prediction, &p, sizeof(p));
        }
        assert_int_equal(result, -1);
        uint64_t n_byte = (uint64_t)st.st_size - sizeof(struct audit_header);
        assert_int_equal(n, n_byte / AUDIT_RECORD_BYTES); /* every whole record of the file verifies */
        assert_int_equal(audit_reader_fault(reader),
                         n_byte % AUDIT_RECORD_BYTES ? AUDIT_FAULT_TORN : AUDIT_FAULT_NOT_CLOSED);
        assert_non_null(strstr(error, "not closed"));
        audit_reader_close(reader);
        n_all += n;
    }
    assert_true(n_all > 0);
}

/* In the child: a file size limit amid a record. Exit status 0: reported as it must be. */
static int run_into_limit(uint64_t limit)
{
    struct rlimit rl = {limit, limit};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &rl) != 0)
        return 2;
    struct audit_config config = {
        .path = path, .n_ring = 64, .on_full = AUDIT_FULL_WAIT, .header = log_header(AUDIT_CLOCK_REAL)};
    struct audit_log *audit = audit_open(&config, error);
    if (!audit)
        return 3;
    log_day(audit, 5000, 3);
    struct audit_totals totals;
    if (audit_close(audit, &totals, error) != -1)
        return 4;
    uint64_t n_whole = (limit - sizeof(struct audit_header)) / AUDIT_RECORD_BYTES;
    return totals.records == n_whole && totals.lost == 5000 + 7 - n_whole &&
                   strstr(error, "File too large") && strstr(error, "ulimit")
               ? 0
               : 5;
}

static void test_file_size_limit(void **state)
{
    (void)state;
    const uint64_t limit = sizeof(struct audit_header) + 700 * AUDIT_RECORD_BYTES + 77;
    unlink(path);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(run_into_limit(limit));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    struct audit_reader *reader = audit_reader_open(path, error);
    assert_non_null(reader);
    const struct audit_record *r;
    while (audit_reader_next(reader, &r, error) == 1)
        ;
    assert_int_equal(audit_reader_records(reader), 700);
    assert_int_equal(audit_reader_fault(reader), AUDIT_FAULT_NOT_CLOSED); /* the torn record was cut off */
    audit_reader_close(reader);
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/audit.kla", dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_writer),
        cmocka_unit_test(test_file_size_limit),
    };
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(dir);
    return result;
}
