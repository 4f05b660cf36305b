#ifndef ITCH_H
#define ITCH_H
#endif
