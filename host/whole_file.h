/* A file that is there whole or not at all: written beside its name ("PATH.part"), then renamed over it, so
 * that a reader never sees half of it and a failure leaves the old one. Cold code. */
#ifndef WHOLE_FILE_H
#define WHOLE_FILE_H

#include <stdio.h>

/* write: puts all of ctx into out; what out says of it (ferror) is looked at here. is_durable: on the disk
 * before it has the name. 0, or -1 with errno set: PATH is untouched, nothing else is left. */
int whole_file_write(const char *path, int is_durable, void (*write)(FILE *out, const void *ctx),
                     const void *ctx);

#endif
