#include <stdio.h>
#include <string.h>

#include "bench_feed.h"
#include "bench_killline.h"
#include "bench_lstm.h"
#include "bench_pipeline.h"
#include "cmd.h"

static const char usage_text[] =
    "usage: killline bench feed|killline|lstm|pipeline [OPTIONS]\n"
    "\n"
    "  feed      decode and order books, per message, against a bare frame walk\n"
    "  killline  the kill line's evaluation procedure: ages, stages, indicators, the line that is "
    "recommended\n"
    "  lstm      the cpu backend, per step, against FP32 LSTMs in plain C and Eigen\n"
    "  pipeline  the whole appliance, packet in to verdict, stage by stage, at several rates\n"
    "\n"
    "killline bench feed --help says more, and so on.\n";

int cmd_bench(int argc, char **argv)
{
    if (argc >= 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        fputs(usage_text, stdout);
        return 0;
    }
    if (argc >= 2 && !strcmp(argv[1], "feed"))
        return bench_feed(argc - 1, argv + 1);
    if (argc >= 2 && !strcmp(argv[1], "killline"))
        return bench_killline(argc - 1, argv + 1);
    if (argc >= 2 && !strcmp(argv[1], "lstm"))
        return bench_lstm(argc - 1, argv + 1);
    if (argc >= 2 && !strcmp(argv[1], "pipeline"))
        return bench_pipeline(argc - 1, argv + 1);
    if (argc >= 2)
        cmd_error("bench: there is no '%s' to measure; killline bench --help lists what there is", argv[1]);
    else
        fputs(usage_text, stderr);
    return 2;
}
