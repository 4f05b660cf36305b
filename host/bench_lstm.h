/* killline bench lstm: the cpu backend against FP32 LSTMs with the same weights, in the same run. */
#ifndef BENCH_LSTM_H
#define BENCH_LSTM_H

/* argv[0] is "lstm". Exit status as in cmd.h. */
int bench_lstm(int argc, char **argv);

#endif
