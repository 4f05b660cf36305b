/* killline bench feed: what decoding and the books cost per message, against a bare walk over the same bytes.
 */
#ifndef BENCH_FEED_H
#define BENCH_FEED_H

/* argv[0] is "feed". Exit status as in cmd.h. */
int bench_feed(int argc, char **argv);

#endif
