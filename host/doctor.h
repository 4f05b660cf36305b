/* killline doctor's findings: lines that say what is there, whether it will do, and what to do. Cold code,
 * one thread. */
#ifndef DOCTOR_H
#define DOCTOR_H

#include <jansson.h>

#include "model.h"

enum doctor_level {
    DOCTOR_OK,
    DOCTOR_NOTE,    /* works, but somebody may want it otherwise */
    DOCTOR_PROBLEM, /* run --accel xrt cannot work */
};

enum { DOCTOR_TEXT_CHARS = 1024, DOCTOR_LINES_MAX = 64, DOCTOR_DEVICES_MAX = 16 };

struct doctor_line {
    const char *check; /* "driver" */
    enum doctor_level level;
    char text[DOCTOR_TEXT_CHARS];
    char remedy[DOCTOR_TEXT_CHARS]; /* "": nothing to do */
    json_t *data;                   /* figures, or NULL */
};

struct doctor {
    const char *xclbin; /* --xclbin; NULL: the one that killline run would take */
    unsigned limit_s;   /* for each step with XRT */
    struct doctor_line lines[DOCTOR_LINES_MAX];
    unsigned n_line;
    struct model model; /* the shipped package; image NULL: it does not load */
};

/* Adds a line; its text as by printf. data is taken over; NULL: none. The line, for its remedy. */
struct doctor_line *doctor_say(struct doctor *doctor, const char *check, enum doctor_level level,
                               json_t *data, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* What to do about a line. */
void doctor_remedy(struct doctor_line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The shipped model; loads doctor->model. */
void doctor_look_model(struct doctor *doctor);

/* The machine and the libraries. */
void doctor_look_host(struct doctor *doctor);

/* XRT: library, driver, devices, the xclbin and the unit in it. Whatever XRT does - it throws, hangs, or its
 * driver crashes - happens in a child process, which is ended after limit_s. After doctor_look_model. */
void doctor_look_xrt(struct doctor *doctor);

#endif
