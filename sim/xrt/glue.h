/* glue.cpp's three functions: what XRT offers in C++ only. */
#ifndef GLUE_H
#define GLUE_H

struct axlf;

/* Makes XRT's device object of a handle, and lets go of it. NULL: XRT refused. */
void *glue_register(void *handle, unsigned id);
void glue_release(void *core);

/* Makes the xclbin known to XRT. 0, or -1: XRT refused. */
int glue_axlf(void *core, const struct axlf *top);

#endif
