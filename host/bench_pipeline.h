/* killline bench pipeline: the whole appliance, packet in to verdict, stage by stage. */
#ifndef BENCH_PIPELINE_H
#define BENCH_PIPELINE_H

/* argv[0] is "pipeline". As a command of cmd.h. */
int bench_pipeline(int argc, char **argv);

#endif
