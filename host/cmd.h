/* The killline command's subcommands, and what they share. */
#ifndef CMD_H
#define CMD_H

/* argv[0] is the subcommand's name. Each returns the process's exit status: 0 success, 1 failure (message on
 * stderr: what, where, what to do), 2 wrong usage. */
int cmd_run(int argc, char **argv);
int cmd_synth(int argc, char **argv);
int cmd_csim(int argc, char **argv);
int cmd_sim_device(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_decode(int argc, char **argv);
int cmd_book(int argc, char **argv);
int cmd_features(int argc, char **argv);
int cmd_model(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_audit(int argc, char **argv);
int cmd_sweep(int argc, char **argv);
int cmd_listen(int argc, char **argv);
int cmd_halt(int argc, char **argv);
int cmd_resume(int argc, char **argv);
int cmd_status(int argc, char **argv);

/* "killline: " message and newline on stderr; returns 1. */
int cmd_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A progress line on stderr, at most every 200 ms, only after 2 s and wiped by cmd_progress_done. what:
 * "writing", unit: "messages"; total 0: unknown. Not for the hot path. */
void cmd_progress(const char *what, const char *unit, unsigned long long done, unsigned long long total);
void cmd_progress_done(void);

/* Parses an unsigned number with optional k, M, G suffix within [min, max]; 0, or -1. */
int cmd_parse_u64(const char *text, unsigned long long min, unsigned long long max, unsigned long long *out);

#endif
