/* Inside control*.c. Two threads, so that a halt never waits for a disk: the server (control_serve.c)
 * listens, orders and answers; the keeper (control_keep.c) looks at the governor, writes the file and the
 * lines on stderr. They meet under one mutex. */
#ifndef CONTROL_SELF_H
#define CONTROL_SELF_H

#include <jansson.h>
#include <pthread.h>

#include "control.h"

enum {
    CONTROL_N_CLIENT = 16,
    CONTROL_TICK_MS = 10,
    CONTROL_CLIENT_MS = 1000, /* a client's time for its line */
    CONTROL_CROWD_MS = 200,   /* the same for the oldest while others wait for a place */
    CONTROL_ACK_MS = 1000,    /* the poll loop's time to carry out an order */
    CONTROL_SAVE_MS = 2000,   /* the file's, before the command is answered */
};

struct control_client {
    int fd; /* -1: free */
    uint32_t uid;
    uint64_t since_ms;
    size_t size_bytes;
    char request[CONTROL_REQUEST_BYTES];
};

struct control {
    char folder[CONTROL_PATH_CHARS];
    int lock_fd, listen_fd, stop_fd;
    int started;
    struct control_view view;
    pthread_t server, keeper;

    /* The server's. */
    struct control_client client[CONTROL_N_CLIENT];
    int owes; /* a halt is in force that the poll loop was not told of */
    struct order owed;

    /* Under the mutex. */
    pthread_mutex_t mutex;
    pthread_cond_t wake, kept;
    struct order last;   /* by and reason of the last order that came into force */
    struct order resume; /* the one that is about to */
    int has_resume;
    uint64_t asked,
        looked;   /* looks at the governor that the server has asked for; that the keeper has done */
    int ends;     /* the keeper: look once more, then end */
    int is_saved; /* as of the last look, the file says what is; else save_error */
    char save_error[STATE_FILE_ERROR_CHARS];

    /* The keeper's. */
    struct state_file began;        /* as the last run left it */
    struct state_file tried, shown; /* last to be written; on stderr */
    int has_tried;
    uint64_t alerts, lost, lost_shown_ms, retry_ms;
};

/* control.c */
void control_path(const char *folder, const char *name, char path[CONTROL_PATH_CHARS + 32]);
uint64_t control_now_ms(void); /* CLOCK_MONOTONIC */
uint64_t control_now_utc_ns(void);
void control_pid(const char *folder, char text[CONTROL_PID_CHARS]); /* who has, or had, the lock */

/* control_keep.c */
uint64_t control_utc_ns(const struct clock_calibration *clock, uint64_t tsc);
/* What the state is now. */
void control_look(struct control *control, struct governor_stats *stats, struct state_file *state);
void *control_keep(void *control);
/* A look at once. 0: the file says what is; -1 with a message. */
int control_save(struct control *control, char error[STATE_FILE_ERROR_CHARS]);

/* control_answer.c: a request's line, without its end, to the answer, one line, NUL-terminated. */
void control_answer(struct control *control, const char *request, size_t size_bytes, uint32_t uid,
                    char answer[CONTROL_ANSWER_BYTES]);
/* The same when the request is none. */
void control_refuse(const char *why, char answer[CONTROL_ANSWER_BYTES]);
/* A halt that the poll loop was not told of is ordered as soon as it can be. */
void control_pay(struct control *control);

/* control_request.c */
enum control_command { CONTROL_STATUS = 0, CONTROL_HALT, CONTROL_RESUME };
struct control_request {
    enum control_command command;
    char name[ORDER_NAME_CHARS], reason[ORDER_REASON_CHARS];
};
/* NULL, or what is wrong with it. */
const char *control_request_parse(const char *text, size_t size_bytes, struct control_request *request);

/* control_serve.c */
void *control_serve(void *control);

#endif
