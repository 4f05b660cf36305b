/* Control's folder and its clients: orders without an appliance, folders that are refused, modes and owners,
 * two appliances, and clients of every kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "test_control_rig.h"

/* ---- without an appliance ---- */

static void offline(void **state)
{
    (void)state;
    struct order h = {ORDER_HALT, "ann (uid 7)", "dark"}, r = {ORDER_RESUME, "bob (uid 8)", "light"};
    struct state_file s;
    assert_int_equal(control_ask(rig.folder, ask_status, answer, error), 1);
    assert_int_equal(control_set(rig.folder, &r, error), -1);
    assert_non_null(strstr(error, "nothing to resume"));
    assert_false(control_is_taken(rig.folder, answer));
    memset(&s, 0, sizeof(s));
    s.n_device_fault = 1;
    s.device_fault_utc_ns[0] = 5;
    char path[128], deeper[128];
    snprintf(path, sizeof(path), "%s/state.json", rig.folder);
    assert_int_equal(state_file_write(path, &s, error), 0);
    assert_int_equal(control_set(rig.folder, &h, error), 0);
    expect_file(GOVERNOR_HALTED, GOVERNOR_BY_OPERATOR, 1, "ann (uid 7)", "dark");
    assert_int_equal(control_read(rig.folder, &s, error), 0);
    assert_int_equal(s.n_device_fault, 1); /* a halt forgives nothing */
    rig_start(&rig);                       /* and so it starts */
    assert_int_equal(rig.start.rung, GOVERNOR_HALTED);
    assert_int_equal(control_set(rig.folder, &r, error), 1); /* not behind its back */
    char pid[32];
    snprintf(pid, sizeof(pid), "process %d)", (int)getpid());
    assert_non_null(strstr(error, pid));
    rig_stop(&rig);
    assert_int_equal(control_set(rig.folder, &r, error), 0);
    expect_file(GOVERNOR_WARNING, GOVERNOR_BY_OPERATOR, 0, "bob (uid 8)", "light");
    assert_int_equal(control_read(rig.folder, &s, error), 0);
    assert_int_equal(s.n_device_fault, 0);
    assert_int_equal(control_set(rig.folder, &r, error), -1);
    assert_non_null(strstr(error, "it was left WARNING"));
    assert_int_equal(truncate(path, 3), 0); /* unreadable is halted, and resumed like that */
    assert_int_equal(control_set(rig.folder, &r, error), 0);
    expect_file(GOVERNOR_WARNING, GOVERNOR_BY_OPERATOR, 0, "bob (uid 8)", "light");
    snprintf(deeper, sizeof(deeper), "%s/a/b", rig.folder);
    assert_int_equal(control_set(deeper, &r, error), -1);
    assert_int_equal(access(deeper, F_OK), -1); /* not made for nothing */
    assert_int_equal(control_set(deeper, &h, error), 0);
}

/* ---- folder ---- */

static void where(void **state)
{
    (void)state;
    char folder[CONTROL_PATH_CHARS], longest[CONTROL_PATH_CHARS];
    assert_int_equal(control_folder("/x/y", folder, error), 0);
    assert_string_equal(folder, "/x/y");
    setenv("XDG_STATE_HOME", "/state", 1);
    setenv("HOME", "/home/op", 1);
    assert_int_equal(control_folder("", folder, error), 0);
    assert_string_equal(folder, "/state/killline");
    setenv("XDG_STATE_HOME", "relative", 1);
    assert_int_equal(control_folder("", folder, error), 0);
    assert_string_equal(folder, "/home/op/.local/state/killline");
    unsetenv("XDG_STATE_HOME");
    unsetenv("HOME");
    assert_int_equal(control_folder("", folder, error), -1);
    assert_non_null(strstr(error, "neither XDG_STATE_HOME nor HOME"));
    memset(longest, 'x', sizeof(longest));
    longest[108 - sizeof("/control.sock")] = '\0';
    assert_int_equal(control_folder(longest, folder, error), 0);
    strcat(longest, "x");
    assert_int_equal(control_folder(longest, folder, error), -1);
    assert_non_null(strstr(error, "95 characters, and a socket's address leaves 94"));
}

static void expect_refused(const char *folder, const char *why)
{
    struct state_file s;
    char warning[CONTROL_ERROR_CHARS];
    if (control_open(folder, &s, warning, error))
        fail_msg("%s was opened", folder);
    if (!strstr(error, why) || !strstr(error, folder))
        fail_msg("no '%s' in: %s", why, error);
}

static void bad_folders(void **state)
{
    (void)state;
    char path[96], part[160];
    snprintf(path, sizeof(path), "%s/file", rig.folder);
    fclose(fopen(path, "w"));
    expect_refused(path, "is not a folder");
    snprintf(part, sizeof(part), "%s/under/it", path);
    struct state_file s;
    assert_null(control_open(part, &s, rig.warning, error));
    assert_non_null(strstr(error, "could not be made: Not a directory. Choose another folder"));
    expect_refused("/proc/killline", "could not be made: No such file");
    assert_int_equal(chmod(rig.folder, 0770), 0);
    expect_refused(rig.folder, "others could change the state there");
    assert_non_null(strstr(error, "chmod 700"));
    assert_int_equal(chmod(rig.folder, 0700), 0);
    snprintf(path, sizeof(path), "%s/lock", rig.folder);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    expect_refused(rig.folder, "lock: Too many levels of symbolic links. Remove it");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(rig.folder, "lock: is no lock file. Remove it");
}

/* Root orders in the appliance's user's folder: nothing there becomes root's, or its user could not start
 * again. And a folder that is another user's is refused. */
static void owners(void **state)
{
    (void)state;
    enum { NOBODY = 65534 };
    const struct order h = {ORDER_HALT, "ann (uid 0)", "dark"};
    struct state_file s;
    struct stat st;
    if (geteuid()) {
        print_message("not root: folders of other users are not tested\n");
        skip();
    }
    const pid_t child = fork();
    if (!child)
        _exit(chmod(rig.folder, 0755) || setuid(NOBODY) || control_open(rig.folder, &s, rig.warning, error) ||
              !strstr(error, "Permission denied. Choose another folder"));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(chown(rig.folder, NOBODY, NOBODY), 0);
    assert_int_equal(control_set(rig.folder, &h, error), 0);
    static const char *const names[] = {"lock", "state.json"};
    for (int i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof(path), "%s/%s", rig.folder, names[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_uid, NOBODY);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
}

static void modes(void **state)
{
    (void)state;
    char folder[128], path[160];
    struct stat st;
    const mode_t old = umask(0777);
    snprintf(folder, sizeof(folder), "%s", rig.folder);
    strcat(rig.folder, "/a/b"); /* made with its parent */
    rig_start(&rig);
    umask(old);
    rig_await(&rig, GOVERNOR_ACTIVE, 0);
    static const struct {
        const char *name;
        mode_t mode;
    } files[] = {{"/a", 0700},
                 {"/a/b", 0700},
                 {"/a/b/lock", 0600},
                 {"/a/b/control.sock", 0600},
                 {"/a/b/state.json", 0600}};
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
            snprintf(path, sizeof(path), "%s%s", folder, files[i].name);
            assert_int_equal(stat(path, &st), 0);
            assert_int_equal(st.st_mode & 0777, files[i].mode);
        }
        rig_stop(&rig);
        umask(0);
        rig_start(&rig);
        umask(old);
    }
    rig_stop(&rig);
    memcpy(rig.folder, folder, sizeof(rig.folder));
    passed = 1;
}

static void two_appliances(void **state)
{
    (void)state;
    char pid[64];
    snprintf(pid, sizeof(pid), "another appliance has this folder (process %d)", (int)getpid());
    expect_refused(rig.folder, pid);
    assert_true(control_is_taken(rig.folder, pid));
    json_t *root = ask(halt); /* the first has not noticed */
    assert_true(is_true(root, "ok"));
    json_decref(root);
    passed = 1;
}

/* ---- clients ---- */

static int dial(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = 10};
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/control.sock", rig.folder);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

/* Sends it, and expects an error's answer. */
static void expect_error(const char *request, size_t size_bytes, const char *why)
{
    char got[1024];
    size_t n = 0;
    ssize_t more;
    const int fd = dial();
    for (size_t at = 0;
         at < size_bytes && (more = send(fd, request + at, size_bytes - at, MSG_NOSIGNAL)) > 0;)
        at += (size_t)more;
    while (n < sizeof(got) - 1 && (more = recv(fd, got + n, sizeof(got) - 1 - n, 0)) > 0)
        n += (size_t)more;
    close(fd);
    got[n] = '\0';
    if (!strstr(got, "\"ok\":false") || !strstr(got, why) || got[n - 1] != '\n')
        fail_msg("no '%s' in the answer '%s'", why, got);
}

static void wrong_requests(void **state)
{
    (void)state;
    static const struct {
        const char *request, *why;
    } wrong[] = {
        {"\n", "is no JSON object"},
        {"halt\n", "is no JSON object"},
        {"[]\n", "is no JSON object"},
        {"{}\n", "'command' is not"},
        {"{\"command\":\"stop\"}\n", "'command' is not"},
        {"{\"command\":1}\n", "'command' is not"},
        {"{\"command\":\"status\",\"by\":\"b\"}\n", "keys are missing, or too many"},
        {"{\"command\":\"halt\",\"by\":\"b\"}\n", "keys are missing, or too many"},
        {"{\"command\":\"halt\",\"by\":\"\",\"reason\":\"r\"}\n", "'by' is not 1 to 30"},
        {"{\"command\":\"halt\",\"by\":\"0123456789012345678901234567890\",\"reason\":\"r\"}\n",
         "'by' is not"},
        {"{\"command\":\"halt\",\"by\":\"b\\u0007\",\"reason\":\"r\"}\n", "'by' is not"},
        {"{\"command\":\"halt\",\"by\":\"b\",\"reasons\":\"r\"}\n", "'reason' is not"},
        {"{\"command\":\"resume\",\"by\":\"b\",\"reason\":\"\"}\n", "'reason' is not 1 to 93"},
        {"{\"command\":\"halt\",\"command\":\"halt\",\"by\":\"b\",\"reason\":\"r\"}\n", "is no JSON object"},
        {"{\"command\":\"status\"}\n{\"command\":\"status\"}\n", "more than one line"},
        {"{\"command\":", "no whole line within a second"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        expect_error(wrong[i].request, strlen(wrong[i].request), wrong[i].why);
    char *junk = malloc(1 << 20);
    assert_non_null(junk);
    memset(junk, 'x', 1 << 20);
    junk[(1 << 20) - 1] = '\n';
    expect_error(junk, 1 << 20, "longer than 1023 bytes");
    for (size_t i = 0; i < 1 << 20; i++)
        junk[i] = (char)(i * 2654435761u >> 13); /* newlines and NULs among them */
    expect_error(junk, 1 << 20, "request");
    free(junk);
    assert_false(order_is_halted(&rig.desk));
    passed = 1;
}

/* Silent ones, ones that hang up in the middle, ones that never read: none keeps a halt waiting for long. */
static void crowd(void **state)
{
    (void)state;
    enum { N = 50 };
    int fds[N];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            fds[i] = dial();
            if (round == 1)
                assert_int_equal(send(fds[i], "{\"comm", 6, MSG_NOSIGNAL), 6);
            if (round == 2)
                send(fds[i], "{\"command\":\"status\"}\n", 21, MSG_NOSIGNAL);
        }
        const uint64_t before = clock_tsc();
        json_t *root = ask(halt);
        const double took_ms = clock_cycles_to_ns(&rig.clock, clock_tsc() - before) / 1e6;
        assert_true(is_true(root, "ok"));
        assert_true(took_ms < 5000);
        json_decref(root);
        if (round == 1)
            for (int i = 0; i < N; i++)
                shutdown(fds[i], SHUT_WR);
        for (int i = 0; i < N; i++)
            close(fds[i]);
        root = ask(resume);
        assert_true(is_true(root, "ok"));
        json_decref(root);
    }
    fds[0] = dial(); /* one that is there at the end */
    rig_stop(&rig);
    char c;
    assert_true(recv(fds[0], &c, 1, 0) <= 0);
    close(fds[0]);
    rig_start(&rig);
    passed = 1;
}

/* Several at once, all served. */
static void *ask_often(void *argument)
{
    unsigned *served = argument;
    char line[CONTROL_ANSWER_BYTES], why[CONTROL_ERROR_CHARS];
    for (int i = 0; i < 20; i++)
        *served += !control_ask(rig.folder, ask_status, line, why) && strstr(line, "\"running\":true");
    return NULL;
}

static void many_at_once(void **state)
{
    (void)state;
    pthread_t threads[8];
    unsigned served[8] = {0};
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_often, &served[i]), 0);
    for (int i = 0; i < 10; i++) {
        json_decref(ask(halt));
        json_decref(ask(resume));
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(served[i], 20);
    }
    passed = 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PREPARED(owners), /* first: it forks */
        PREPARED(bad_folders),   PREPARED(offline),       PREPARED(where), PREPARED(modes),
        RUNNING(two_appliances), RUNNING(wrong_requests), RUNNING(crowd),  RUNNING(many_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
